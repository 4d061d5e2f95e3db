//! Smooth weighted round robin, by a schedule that is built when the upstream is compiled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use yumen_plugin::Exchange;

use super::EndpointCandidates;
use super::policy::{BalancingPolicy, PolicyContext};
use crate::endpoint::Endpoint;

/// The longest schedule; larger weights are scaled down to it.
const TURNS_MAX: u64 = 4096;

/// The positions of one worker, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerCursors {
    first: RoundRobinCursor,
    /// The position of further attempts. With a common position, each retry would take the turn of the endpoint behind a
    /// failing one, and the failing endpoint would get more first attempts than its share.
    again: RoundRobinCursor,
}

/// The number of turns taken. One worker writes it.
#[derive(Debug, Default)]
struct RoundRobinCursor(AtomicU32);

impl RoundRobinCursor {
    #[inline]
    fn take(&self) -> u32 {
        // One writer, so a plain load and store suffice instead of an atomic addition.
        let turn = self.0.load(Relaxed);
        self.skip(1);
        turn
    }

    #[inline]
    fn skip(&self, turns: u32) {
        self.0.store(self.0.load(Relaxed).wrapping_add(turns), Relaxed);
    }
}

/// The positions of all workers; outlives snapshots.
#[derive(Debug, Default)]
pub struct RoundRobinState {
    cursors: Box<[WorkerCursors]>,
}

impl RoundRobinState {
    /// Positions of this number of workers, spread over `turns` so that not all workers begin with the same endpoint.
    pub fn new(workers: usize, turns: usize) -> RoundRobinState {
        let start = |worker| {
            let cursor = || RoundRobinCursor(AtomicU32::new((worker * turns / workers.max(1)) as u32));
            WorkerCursors { first: cursor(), again: cursor() }
        };
        RoundRobinState { cursors: (0..workers.max(1)).map(start).collect() }
    }

    /// The number of turns taken by first attempts, by worker.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u32> {
        self.cursors.iter().map(|cursors| cursors.first.0.load(Relaxed))
    }

    /// Continues from positions of the predecessor process, which may have another number of workers.
    pub(crate) fn go_on_from(&self, turns: &[u32]) {
        // The predecessor may have had fewer workers.
        for (cursors, turn) in self.cursors.iter().zip(turns.iter().cycle()) {
            cursors.first.0.store(*turn, Relaxed);
        }
    }

    #[inline]
    fn cursors(&self, worker: usize) -> Option<&WorkerCursors> {
        self.cursors.get(worker).or(self.cursors.first())
    }
}

/// The turns of one priority.
#[derive(Debug)]
struct PriorityGroup {
    priority: i32,
    turns: Box<[u32]>,
}

/// Endpoints in turn, by weight.
#[derive(Debug)]
pub struct RoundRobin {
    groups: Box<[PriorityGroup]>,
    /// Whether no endpoint can be down or in slow start.
    is_unchecked: bool,
    state: Arc<RoundRobinState>,
}

impl RoundRobin {
    pub(super) fn new(endpoints: &[Endpoint], state: Arc<RoundRobinState>) -> RoundRobin {
        let mut priorities: Vec<i32> =
            endpoints.iter().filter(|endpoint| endpoint.weight > 0).map(|one| one.priority).collect();
        // Descending: the first group is the one that serves while all is well.
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let group = |priority| PriorityGroup { priority, turns: schedule(endpoints, priority) };
        RoundRobin {
            groups: priorities.into_iter().map(group).collect(),
            is_unchecked: endpoints.iter().all(|one| one.health.is_none() && one.outlier.is_none()),
            state,
        }
    }

    /// The length of the round of the highest priority, for [`RoundRobinState::new`].
    fn turns(endpoints: &[Endpoint]) -> usize {
        let highest = endpoints.iter().filter(|one| one.weight > 0).map(|one| one.priority).max();
        highest.map_or(0, |priority| scaled(endpoints, priority).map(|(_, weight)| weight as usize).sum())
    }

    /// The next turn of an endpoint in the pool. Turns that are passed over count as taken: otherwise the endpoint behind
    /// one that is down would replace it each time and bear two shares alone.
    fn pick_turn(&self, pool: &EndpointCandidates<'_>, worker: usize) -> Option<usize> {
        let is_first = pool.tried.count() == 0;
        let cursors = self.state.cursors(worker);
        let cursor = cursors.map(|cursors| if is_first { &cursors.first } else { &cursors.again });
        let (skipped, index) = self.next(pool, cursor)?;
        if let Some(cursor) = cursor {
            // Only after a result: a fruitless search moves no position.
            cursor.skip(skipped as u32 + 1);
        }
        Some(index)
    }

    /// In turn, but an endpoint in slow start passes a random part of its turns on.
    fn pick_by_share(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        const PASSED_ON_MAX: u32 = 64;
        // The largest share is taken as the whole: if all endpoints are new, none waits for another.
        let most = pool.iter().map(|(index, _)| pool.share(index).0).max()?;
        // The bound ends an unlucky series of draws; the last turn is then taken as it comes.
        for _ in 0..PASSED_ON_MAX {
            let index = self.pick_turn(pool, ex.host.worker())?;
            let share = pool.share(index).0;
            if share >= most || ex.host.random() % most < share {
                return Some(index);
            }
        }
        self.pick_turn(pool, ex.host.worker())
    }

    /// The next endpoint in the pool, with the number of turns passed over. Without a position, which an upstream of one
    /// endpoint lacks, the first one.
    fn next(
        &self,
        pool: &EndpointCandidates<'_>,
        cursor: Option<&RoundRobinCursor>,
    ) -> Option<(usize, usize)> {
        let turns = &self.groups.iter().find(|group| group.priority == pool.priority)?.turns;
        let start = cursor.map_or(0, |cursor| cursor.0.load(Relaxed)) as usize % turns.len();
        let round = turns[start..].iter().chain(&turns[..start]);
        round.map(|index| *index as usize).enumerate().find(|(_, index)| pool.has(*index))
    }
}

impl BalancingPolicy for RoundRobin {
    const NAME: &'static str = "roundrobin";
    const TAKES_TURNS: bool = true;

    fn build(context: &PolicyContext<'_>) -> RoundRobin {
        let PolicyContext { endpoints, carry, origin, .. } = context;
        // A single endpoint needs no position.
        if endpoints.len() < 2 {
            return RoundRobin::new(endpoints, context.no_turns.clone());
        }
        let make = || RoundRobinState::new(context.workers, RoundRobin::turns(endpoints));
        RoundRobin::new(endpoints, carry.get_or_create_portable(&format!("turns {origin}"), make))
    }

    fn require_pool(&mut self) {
        self.is_unchecked = false;
    }

    /// The next turn of the highest priority, if every endpoint can be picked.
    #[inline]
    fn pick_unchecked(&self, worker: usize) -> Option<usize> {
        // With health or outlier checks an endpoint may be down, and the pool must be consulted.
        let turns = &self.groups.first().filter(|_| self.is_unchecked)?.turns;
        let turn = self.state.cursors(worker).map_or(0, |cursors| cursors.first.take());
        Some(turns[turn as usize % turns.len()] as usize)
    }

    fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        match pool.slow_start {
            Some(_) => self.pick_by_share(pool, ex),
            None => self.pick_turn(pool, ex.host.worker()),
        }
    }

    fn peek(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        // `peek` predicts a first attempt, and skips no turn.
        self.next(pool, self.state.cursors(ex.host.worker()).map(|cursors| &cursors.first))
            .map(|(_, index)| index)
    }
}

/// The weights of one priority, scaled down in proportion. Their sum is about [`TURNS_MAX`] at most.
fn scaled(endpoints: &[Endpoint], priority: i32) -> impl Iterator<Item = (u32, u64)> + '_ {
    let weights = move || {
        let all = endpoints.iter().enumerate();
        all.filter(move |(_, one)| one.weight > 0 && one.priority == priority)
            .map(|(index, one)| (index as u32, u64::from(one.weight)))
    };
    // Weights of 100 and 200 need three turns, not 300.
    let divisor = weights().fold(0, |divisor, (_, weight)| common_divisor(divisor, weight)).max(1);
    let total: u64 = weights().map(|(_, weight)| weight / divisor).sum();
    let shrink = total.div_ceil(TURNS_MAX).max(1);
    // The smallest weight keeps a turn.
    weights().map(move |(index, weight)| (index, (weight / divisor / shrink).max(1)))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The schedule: each turn goes to the endpoint that is furthest behind its share.
fn schedule(endpoints: &[Endpoint], priority: i32) -> Box<[u32]> {
    let mut lags: Vec<(u32, u64, i64)> =
        scaled(endpoints, priority).map(|(index, weight)| (index, weight, 0)).collect();
    let total: u64 = lags.iter().map(|(_, weight, _)| weight).sum();
    // Equal weights need no schedule.
    if lags.len() as u64 == total {
        return lags.into_iter().map(|(index, _, _)| index).collect();
    }
    (0..total)
        .map(|_| {
            lags.iter_mut().for_each(|(_, weight, lag)| *lag += *weight as i64);
            // The first of equals, so that the order of the nodes decides.
            let next = lags.iter_mut().rev().max_by_key(|(_, _, lag)| *lag);
            next.map_or(0, |(index, _, lag)| {
                // Nginx's smooth weighted round robin: the endpoint pays the sum of weights for its turn.
                *lag -= total as i64;
                *index
            })
        })
        .collect()
}
