//! Load balancing: the part that all policies share.
//!
//! A policy (`policy.rs`) sees a [`EndpointCandidates`] of endpoints that may be picked; the rules of health, priority and
//! weight are decided here once.

mod consistent_hash;
mod ewma;
mod least_conn;
mod policy;
mod round_robin;
mod slow_start;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use yumen_plugin::Exchange;

pub use policy::Balancer;
pub(crate) use policy::PolicyContext;
pub use round_robin::RoundRobinState;
pub use slow_start::{EndpointStart, SlowStart};

use crate::upstream::{Endpoint, TriedEndpoints, Upstream};

/// Counts an attempt at an endpoint as under way.
fn count_active(endpoints: &[Endpoint], index: usize) {
    if let Some(endpoint) = endpoints.get(index) {
        endpoint.state.active.fetch_add(1, Relaxed);
    }
}

/// Reverts [`count_active`].
fn uncount_active(endpoints: &[Endpoint], index: usize) {
    if let Some(endpoint) = endpoints.get(index) {
        endpoint.state.active.fetch_sub(1, Relaxed);
    }
}

/// The endpoints that may be picked for one attempt.
#[derive(Clone, Copy)]
struct EndpointCandidates<'u> {
    endpoints: &'u [Endpoint],
    tried: &'u TriedEndpoints,
    priority: i32,
    eligible: Eligible,
    /// How new endpoints come into use, and the time.
    slow: Option<(&'u SlowStart, u64)>,
}

/// Which endpoints may be picked, as far as their health decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eligible {
    /// Those that are up.
    Up,
    /// None is up: those whose last probe succeeded.
    Recovering,
    /// None is up, and no probe has succeeded: all.
    All,
}

impl Eligible {
    fn of(endpoints: &[Endpoint], tried: &TriedEndpoints) -> Eligible {
        if endpoints.iter().any(|endpoint| endpoint.weight > 0 && endpoint.is_up()) {
            return Eligible::Up;
        }
        let is_recovering =
            |(at, one): (usize, &Endpoint)| one.weight > 0 && !tried.has(at) && one.is_recovering();
        match endpoints.iter().enumerate().any(is_recovering) {
            true => Eligible::Recovering,
            false => Eligible::All,
        }
    }
}

impl<'u> EndpointCandidates<'u> {
    /// The healthy endpoints of the highest priority that has one untried. Where every endpoint is down, those whose
    /// last probe succeeded come first, then all. `None` where nothing is left.
    fn of(upstream: &'u Upstream, tried: &'u TriedEndpoints, now_us: u64) -> Option<EndpointCandidates<'u>> {
        let endpoints = &*upstream.endpoints;
        let eligible = Eligible::of(endpoints, tried);
        let slow = upstream.slow_start.as_deref().map(|slow| (slow, now_us));
        let mut pool = EndpointCandidates { endpoints, tried, priority: 0, eligible, slow };
        let open = endpoints.iter().enumerate().filter(|(at, _)| pool.is_open(*at));
        pool.priority = open.map(|(_, endpoint)| endpoint.priority).max()?;
        Some(pool)
    }

    fn is_open(&self, index: usize) -> bool {
        let endpoint = &self.endpoints[index];
        let is_eligible = match self.eligible {
            Eligible::Up => endpoint.is_up(),
            Eligible::Recovering => endpoint.is_recovering(),
            Eligible::All => true,
        };
        endpoint.weight > 0 && !self.tried.has(index) && is_eligible
    }

    fn has(&self, index: usize) -> bool {
        self.endpoints[index].priority == self.priority && self.is_open(index)
    }

    /// The share of its weight that an endpoint gets now, of so many.
    fn share(&self, index: usize) -> (u64, u64) {
        match self.slow {
            None => (1, 1),
            Some((slow, now_us)) => (slow.share(index, now_us), slow_start::WHOLE),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &'u Endpoint)> {
        let pool = *self;
        self.endpoints.iter().enumerate().filter(move |(index, _)| pool.has(*index))
    }
}

impl Endpoint {
    fn is_up(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_up())
            && self.outlier.as_ref().is_none_or(|tally| !tally.ejection.is_ejected())
    }

    /// Whether its last probe succeeded. An endpoint that is down needs several in a row to be up again, and one that
    /// is ejected as an outlier may be up by its probes.
    fn is_recovering(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_up() || health.active.successes.load(Relaxed) > 0)
    }
}

impl Upstream {
    /// The endpoint for this attempt, by index; `None` where there is none that was not tried.
    ///
    /// Healthy endpoints of the highest priority first. Where all are unhealthy, those whose last probe succeeded are
    /// used, or all where there are none.
    #[inline]
    pub fn pick(&self, ex: &Exchange<'_>, tried: &TriedEndpoints) -> Option<usize> {
        if let [only] = &*self.endpoints {
            return (only.weight > 0 && !tried.has(0)).then_some(0);
        }
        if tried.is_empty()
            && let Some(index) = self.balancer.pick_unchecked(ex.host.worker())
        {
            return Some(index);
        }
        if let Some(slow) = &self.slow_start {
            slow.note(&self.endpoints, ex.now.mono_us);
        }
        let pool = EndpointCandidates::of(self, tried, ex.now.mono_us)?;
        self.balancer.pick(&pool, ex)
    }

    /// The endpoint [`Upstream::pick`] would give next, without taking anybody's turn.
    pub fn peek(&self, ex: &Exchange<'_>) -> Option<usize> {
        let tried = TriedEndpoints::default();
        if !self.balancer.takes_turns() {
            return self.pick(ex, &tried);
        }
        let pool = EndpointCandidates::of(self, &tried, ex.now.mono_us)?;
        self.balancer.peek(&pool, ex)
    }

    /// Which endpoints may be picked for a first attempt: those that are up and of the highest priority.
    pub fn in_rotation(&self) -> Vec<bool> {
        let tried = TriedEndpoints::default();
        let pool = EndpointCandidates::of(self, &tried, 0);
        (0..self.endpoints.len()).map(|index| pool.is_some_and(|pool| pool.has(index))).collect()
    }

    /// Counts an attempt at an endpoint as under way from `began_us` of the monotonic clock on.
    #[inline]
    pub fn started(&self, index: usize, began_us: u64) -> InFlight<'_> {
        self.balancer.started(&self.endpoints, index);
        InFlight { upstream: self, index, began_us }
    }
}

/// The in-flight guard of an attempt: the endpoint counts the attempt until the guard is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is over"]
pub struct InFlight<'u> {
    upstream: &'u Upstream,
    index: usize,
    began_us: u64,
}

impl InFlight<'_> {
    /// Which of the upstream's endpoints.
    pub fn index(&self) -> usize {
        self.index
    }

    /// For how long it is under way at `now_us`.
    pub fn lasts_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.began_us)
    }

    /// It ended at `now_us` of the monotonic clock.
    pub fn end_now(self, now_us: u64) {
        let lasted_us = self.lasts_us(now_us);
        self.end(lasted_us, now_us);
    }

    /// It ended after `duration_us`, at `now_us` of the monotonic clock. One that is merely dropped tells nothing
    /// of how fast the endpoint is.
    #[inline]
    pub fn end(self, duration_us: u64, now_us: u64) {
        let Upstream { balancer, endpoints, .. } = self.upstream;
        balancer.answered(endpoints, self.index, duration_us, now_us);
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.upstream.balancer.ended(&self.upstream.endpoints, self.index);
    }
}
