//! Protection of an upstream against overload: limits with a queue, ejection of failing endpoints, a retry budget.
//!
//! The counts are shared by all workers and outlive snapshots. Knows no sockets and no clock.

mod limiter;
mod outlier;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use limiter::EndpointSlot;
pub use limiter::{EndpointCounts, EndpointPermit, QueueTicket, RequestPermit, RetryPermit, UpstreamLimiter};
pub use outlier::{
    AttemptFailure, EjectionEvent, EndpointEjection, OutlierRules, OutlierState, SuccessRateRules,
};

/// The value of an absent bound.
pub const UNBOUNDED: u32 = u32::MAX;

/// Bounds of concurrent use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyBounds {
    /// Requests in flight.
    pub requests: u32,
    /// Open connections.
    pub connections: u32,
}

impl ConcurrencyBounds {
    /// No bounds.
    pub const NONE: ConcurrencyBounds = ConcurrencyBounds { requests: UNBOUNDED, connections: UNBOUNDED };
}

/// Bounds of an upstream, and of the queue in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectionLimits {
    /// Bounds of all endpoints together.
    pub all: ConcurrencyBounds,
    /// Bounds of each endpoint.
    pub each: ConcurrencyBounds,
    /// The most queued requests.
    pub pending_max: u32,
    /// The longest time in the queue, in milliseconds.
    pub pending_timeout_ms: u64,
}

/// The bound of retries in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    /// The share of the requests in flight.
    pub share: f64,
    /// Retries that are allowed however few requests are in flight.
    pub min: u32,
}

impl RetryBudget {
    fn allowed(&self, requests: u32) -> u32 {
        // The minimum lets an upstream with little traffic retry at all.
        ((f64::from(requests) * self.share) as u32).max(self.min)
    }
}

/// The protection of one upstream.
#[derive(Debug)]
pub struct UpstreamProtection {
    /// Bounds and queue.
    pub limits: Option<ProtectionLimits>,
    /// Rules for the ejection of endpoints.
    pub outliers: Option<OutlierRules>,
    /// The bound of retries.
    pub budget: Option<RetryBudget>,
    /// The counts of the upstream.
    pub gate: Arc<UpstreamLimiter>,
    /// The counts of each endpoint, in the order of the endpoints.
    pub endpoints: Box<[Arc<EndpointCounts>]>,
}

impl UpstreamProtection {
    /// Whether requests in flight are counted.
    pub fn counts_requests(&self) -> bool {
        self.limits.is_some() || self.budget.is_some()
    }

    fn bounds_connections(&self) -> bool {
        // The bounds of the limiter, which may be newer than those of this snapshot.
        let room = &self.gate.room;
        self.limits.is_some() && [&room.all, &room.each].iter().any(|most| most.connections() != UNBOUNDED)
    }

    /// The limiter that counts open connections; `None` if they are not bounded.
    pub fn counts_connections(&self) -> Option<&Arc<UpstreamLimiter>> {
        self.bounds_connections().then_some(&self.gate)
    }

    /// Whether no connection may be opened to any endpoint.
    pub fn is_out_of_connections(&self) -> bool {
        // A racy read suffices: `connect` decides.
        self.limits.is_some() && self.gate.connections.load(Relaxed) >= self.gate.room.all.connections()
    }

    /// A permit for one more connection to an endpoint; `Ok(None)` if connections are not bounded.
    pub fn connect(&self, index: usize) -> Result<Option<EndpointPermit>, LimiterFull> {
        if !self.bounds_connections() {
            // Without bounds no count is kept, so connecting touches no shared cache line.
            return Ok(None);
        }
        EndpointPermit::get(&self.gate, &self.endpoints[index]).map(Some).ok_or(LimiterFull)
    }

    /// A permit for one more request to the upstream.
    pub(crate) fn enter(&self, worker: usize) -> Result<RequestPermit, LimiterFull> {
        // Without limits the request is only counted, for the retry budget.
        let most = self.limits.map_or(UNBOUNDED, |_| self.gate.room.all.requests());
        RequestPermit::get(&self.gate, most, worker).ok_or(LimiterFull)
    }

    /// Counts one more request at an endpoint, if it has capacity.
    pub(crate) fn enter_endpoint(&self, index: usize) -> Option<EndpointSlot> {
        EndpointSlot::get(&self.endpoints[index], self.gate.room.each.requests())
    }
}

/// No capacity is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterFull;

impl UpstreamProtection {
    /// Ends the ejections whose time has passed.
    pub fn end_ejections(&self, now_ms: u64) {
        // One load on the way of every request; the lock is taken only when an ejection ends.
        if self.outliers.is_none() || !self.gate.outliers.is_due(now_ms) {
            return;
        }
        self.gate.outliers.end_ejections(&self.endpoints, now_ms);
    }

    /// Records the result of an attempt; returns the ejection that follows from it.
    pub fn observe(&self, index: usize, failure: AttemptFailure, now_ms: u64) -> Option<EjectionEvent> {
        let rules = self.outliers.as_ref()?;
        self.gate.outliers.observe(rules, &self.endpoints, index, failure, now_ms)
    }

    /// The number of ejected endpoints.
    pub fn ejected(&self) -> usize {
        self.endpoints.iter().filter(|tally| tally.ejection.is_ejected()).count()
    }

    /// A permit for one more retry, which the request keeps once the retry is made. `Ok(None)` if retries are not
    /// bounded, or if the request has the permit already.
    pub fn retry(&self, request: Option<&RequestPermit>) -> Result<Option<RetryPermit>, LimiterFull> {
        let (Some(budget), Some(request)) = (self.budget, request) else { return Ok(None) };
        // The budget follows the load: retries must not multiply the traffic of a failing upstream.
        let allowed = budget.allowed(self.gate.requests.load(Relaxed));
        let permit = request.retry(allowed);
        if permit.is_err() {
            self.gate.retries_refused.fetch_add(1, Relaxed);
        }
        permit
    }
}
