//! How an upstream misbehaves: latency, stalls, errors, a rate limit. Pure but for the counter of the limit.
//! Must not know HTTP.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::prepared::next_random;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: f64 = 1e9;

/// What an upstream does beside answering.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamBehaviour {
    /// How long each response takes.
    pub latency: LatencyShape,
    /// Moments in which nothing is answered.
    pub stalls: Option<StallSchedule>,
    /// This share of the responses, from 0 to 1, are errors.
    pub error_share: f64,
    /// The status of those.
    pub error_status: u16,
    /// Requests per second; what is over is answered 429.
    pub rate_limit: Option<f64>,
}

impl Default for UpstreamBehaviour {
    fn default() -> Self {
        Self {
            latency: LatencyShape::None,
            stalls: None,
            error_share: 0.0,
            error_status: 500,
            rate_limit: None,
        }
    }
}

/// A distribution of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyShape {
    /// As fast as it can.
    #[default]
    None,
    /// Always so long.
    Fixed(u64),
    /// Evenly between the two.
    Uniform(u64, u64),
}

/// Nothing is answered during a stall; what comes in waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSchedule {
    /// The first begins so long after the start, milliseconds.
    pub first_ms: u64,
    /// From the beginning of one to that of the next; 0 for a single one.
    pub every_ms: u64,
    /// How long each lasts.
    pub for_ms: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BehaviourVerdict {
    Good,
    Error(u16),
    Limited,
}

/// The behaviour with what it has to remember.
pub(crate) struct BehaviourState {
    behaviour: UpstreamBehaviour,
    /// When the next request is within the limit, if it keeps to the rate evenly.
    next_ns: AtomicU64,
    /// Errors are every so manieth, counted over all threads: a share that is exact can be tested.
    counted: AtomicU64,
}

impl BehaviourState {
    pub(crate) fn new(behaviour: UpstreamBehaviour) -> Self {
        Self { behaviour, next_ns: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    /// What becomes of the request that came now.
    pub(crate) fn verdict(&self, now_ns: u64) -> BehaviourVerdict {
        if !self.admits(now_ns) {
            return BehaviourVerdict::Limited;
        }
        let share = self.behaviour.error_share;
        if share <= 0.0 {
            return BehaviourVerdict::Good;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed);
        let errors_until = |count: u64| (count as f64 * share).floor();
        if errors_until(number + 1) > errors_until(number) {
            return BehaviourVerdict::Error(self.behaviour.error_status);
        }
        BehaviourVerdict::Good
    }

    /// When a request that came now is to be answered.
    pub(crate) fn answer_at_ns(&self, now_ns: u64, random: &mut u64) -> u64 {
        let delay_ns = match self.behaviour.latency {
            LatencyShape::None => 0,
            LatencyShape::Fixed(delay_ns) => delay_ns,
            LatencyShape::Uniform(low, high) => {
                low + next_random(random) % (high.saturating_sub(low)).saturating_add(1).max(1)
            }
        };
        let at_ns = now_ns + delay_ns;
        self.behaviour.stalls.map_or(at_ns, |stalls| stalls.leave_at_ns(at_ns))
    }

    /// Evenly spaced, with a tenth of a second's worth allowed at once.
    fn admits(&self, now_ns: u64) -> bool {
        let Some(rate) = self.behaviour.rate_limit else { return true };
        let space_ns = (SECOND_NS / rate) as u64;
        let burst_ns = 100 * MILLISECOND_NS;
        let take = |next_ns: u64| {
            let next_ns = next_ns.max(now_ns.saturating_sub(burst_ns));
            (next_ns <= now_ns).then_some(next_ns + space_ns)
        };
        self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl StallSchedule {
    /// The same moment, or the end of the stall it falls into.
    pub(crate) fn leave_at_ns(self, at_ns: u64) -> u64 {
        let Some(since_ns) = at_ns.checked_sub(self.first_ms * MILLISECOND_NS) else { return at_ns };
        let into_ns = match self.every_ms * MILLISECOND_NS {
            0 => since_ns,
            every_ns => since_ns % every_ns,
        };
        let for_ns = self.for_ms * MILLISECOND_NS;
        if into_ns < for_ns { at_ns + for_ns - into_ns } else { at_ns }
    }
}
