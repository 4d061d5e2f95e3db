//! Injected behaviour of the test upstream: latency, stalls, errors and a rate limit. Independent of HTTP.
//! Pure except for the counters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::prepared::next_random;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: f64 = 1e9;

/// Injected behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamBehaviour {
    /// Latency of each response.
    pub latency: LatencyShape,
    /// Periods without responses.
    pub stalls: Option<StallSchedule>,
    /// Share of error responses, from 0 to 1.
    pub error_share: f64,
    /// Status of the error responses.
    pub error_status: u16,
    /// Requests per second; excess requests are answered with 429.
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

/// Distribution of latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyShape {
    /// No added latency.
    #[default]
    None,
    /// Constant latency.
    Fixed(u64),
    /// Uniform distribution between two bounds.
    Uniform(u64, u64),
}

/// Stalls of the upstream. Requests during a stall are answered at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSchedule {
    /// Start of the first stall, in milliseconds after the start.
    pub first_ms: u64,
    /// Period of the stalls in milliseconds; 0 for a single one.
    pub every_ms: u64,
    /// Duration of each stall in milliseconds.
    pub for_ms: u64,
}

/// Treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BehaviourVerdict {
    Good,
    Error(u16),
    Limited,
}

/// The behaviour with its counters.
pub(crate) struct BehaviourState {
    behaviour: UpstreamBehaviour,
    /// Earliest time of the next request within the limit.
    next_ns: AtomicU64,
    /// Requests counted over all threads. Errors are spread evenly, so that tests can check the exact share.
    counted: AtomicU64,
}

impl BehaviourState {
    pub(crate) fn new(behaviour: UpstreamBehaviour) -> Self {
        Self { behaviour, next_ns: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    /// Treatment of a request that arrives now.
    pub(crate) fn verdict(&self, now_ns: u64) -> BehaviourVerdict {
        // Before the errors, whose share is of the admitted requests.
        if !self.admits(now_ns) {
            return BehaviourVerdict::Limited;
        }
        let share = self.behaviour.error_share;
        // The usual case touches no shared counter.
        if share <= 0.0 {
            return BehaviourVerdict::Good;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed);
        // Errors are evenly spread: one whenever the expected number reaches the next integer.
        let errors_until = |count: u64| (count as f64 * share).floor();
        if errors_until(number + 1) > errors_until(number) {
            return BehaviourVerdict::Error(self.behaviour.error_status);
        }
        BehaviourVerdict::Good
    }

    /// Due time of the response to a request that arrives now.
    pub(crate) fn answer_at_ns(&self, now_ns: u64, random: &mut u64) -> u64 {
        let delay_ns = match self.behaviour.latency {
            LatencyShape::None => 0,
            LatencyShape::Fixed(delay_ns) => delay_ns,
            LatencyShape::Uniform(low, high) => {
                low + next_random(random) % (high.saturating_sub(low)).saturating_add(1).max(1)
            }
        };
        let at_ns = now_ns + delay_ns;
        // A response that is due during a stall waits as well, whenever its request came.
        self.behaviour.stalls.map_or(at_ns, |stalls| stalls.leave_at_ns(at_ns))
    }

    /// Rate limit with even spacing and a burst of 100 ms.
    fn admits(&self, now_ns: u64) -> bool {
        let Some(rate) = self.behaviour.rate_limit else { return true };
        let space_ns = (SECOND_NS / rate) as u64;
        let burst_ns = 100 * MILLISECOND_NS;
        let take = |next_ns: u64| {
            // Unused time allows a burst of 100 ms at most.
            let next_ns = next_ns.max(now_ns.saturating_sub(burst_ns));
            (next_ns <= now_ns).then_some(next_ns + space_ns)
        };
        // One word holds the whole state of the limit, so no ordering is needed.
        self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl StallSchedule {
    /// Returns the time itself, or the end of the stall that contains it.
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
