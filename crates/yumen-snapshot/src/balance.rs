//! Load balancing: the rules of health, priority and weight that all policies share.
//!
//! A policy (`policy.rs`) picks one of the [`EndpointCandidates`]. Knows no upstream beyond its endpoints.

mod consistent_hash;
mod ewma;
mod least_conn;
mod policy;
mod round_robin;
mod slow_start;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

pub use policy::Balancer;
pub(crate) use policy::PolicyContext;
pub use round_robin::RoundRobinState;
pub(crate) use slow_start::PreviousEndpoints;
pub use slow_start::{EndpointStart, SlowStart};

use crate::endpoint::{Endpoint, TriedEndpoints};

/// Counts an attempt at an endpoint as in flight.
fn count_active(endpoints: &[Endpoint], index: usize) {
    if let Some(endpoint) = endpoints.get(index) {
        // An approximate count suffices: policies compare loads, they do not enforce bounds.
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
pub(crate) struct EndpointCandidates<'u> {
    endpoints: &'u [Endpoint],
    tried: &'u TriedEndpoints,
    priority: i32,
    eligible: Eligible,
    slow_start: Option<&'u SlowStart>,
    /// The time of the pick on the monotonic clock.
    now_us: u64,
}

/// The rule of health for endpoints that may be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eligible {
    /// Endpoints that are up.
    Up,
    /// No endpoint is up: endpoints whose last probe succeeded.
    Recovering,
    /// No endpoint is up and no probe succeeded: all endpoints, since the probes may be wrong.
    All,
}

impl Eligible {
    fn of(endpoints: &[Endpoint], tried: &TriedEndpoints) -> Eligible {
        // An endpoint of weight 0 gets no requests, so its health must not hide that all others are down.
        if endpoints.iter().any(|endpoint| endpoint.weight > 0 && endpoint.is_up()) {
            return Eligible::Up;
        }
        let is_recovering =
            // A tried endpoint cannot be picked again, so it must not exclude the others.
            |(at, one): (usize, &Endpoint)| one.weight > 0 && !tried.has(at) && one.is_recovering();
        match endpoints.iter().enumerate().any(is_recovering) {
            true => Eligible::Recovering,
            false => Eligible::All,
        }
    }
}

impl<'u> EndpointCandidates<'u> {
    /// The healthy endpoints of the highest priority with an untried one. If all endpoints are down, those whose last
    /// probe succeeded, or else all. `None` if no endpoint is left.
    pub(crate) fn of(
        endpoints: &'u [Endpoint],
        slow_start: Option<&'u SlowStart>,
        tried: &'u TriedEndpoints,
        now_us: u64,
    ) -> Option<EndpointCandidates<'u>> {
        let eligible = Eligible::of(endpoints, tried);
        let mut pool = EndpointCandidates { endpoints, tried, priority: 0, eligible, slow_start, now_us };
        let open = endpoints.iter().enumerate().filter(|(at, _)| pool.is_open(*at));
        // A lower priority serves only once all endpoints of the higher one are down or tried.
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

    pub(crate) fn has(&self, index: usize) -> bool {
        self.endpoints[index].priority == self.priority && self.is_open(index)
    }

    /// The share of its weight that an endpoint gets now, and the whole share.
    fn share(&self, index: usize) -> (u64, u64) {
        match self.slow_start {
            None => (1, 1),
            Some(slow_start) => (slow_start.share(index, self.now_us), slow_start::WHOLE),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &'u Endpoint)> {
        let pool = *self;
        self.endpoints.iter().enumerate().filter(move |(index, _)| pool.has(*index))
    }
}

impl Endpoint {
    /// Whether its checks and outlier detection admit requests.
    pub(crate) fn is_up(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_up())
            && self.outlier.as_ref().is_none_or(|tally| !tally.ejection.is_ejected())
    }

    /// Whether the last probe succeeded. An endpoint that is down needs several successes in a row to be up again, and an
    /// ejected endpoint may be up by its probes.
    fn is_recovering(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_up() || health.active.successes.load(Relaxed) > 0)
    }
}
