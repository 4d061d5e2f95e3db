//! What keeps an upstream from being asked more than it can bear: bounds with a queue, endpoints left out
//! for a while, a budget of retries.
//!
//! Counts over all workers and outlives snapshots; knows no sockets and reads no clock.

mod limiter;
mod outlier;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use yumen_plugin::Exchange;

use limiter::EndpointSlot;
pub use limiter::{EndpointCounts, EndpointPermit, QueueTicket, RequestPermit, RetryPermit, UpstreamLimiter};
pub use outlier::{
    AttemptFailure, EjectionEvent, EndpointEjection, OutlierRules, OutlierState, SuccessRateRules,
};

use crate::upstream::{TriedEndpoints, Upstream};

/// Stands for no bound.
pub const UNBOUNDED: u32 = u32::MAX;

/// Bounds of what is asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyBounds {
    /// Requests under way.
    pub requests: u32,
    /// Open connections.
    pub connections: u32,
}

impl ConcurrencyBounds {
    /// No bounds.
    pub const NONE: ConcurrencyBounds = ConcurrencyBounds { requests: UNBOUNDED, connections: UNBOUNDED };
}

/// Bounds of an upstream and what happens beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectionLimits {
    /// Of all endpoints together.
    pub all: ConcurrencyBounds,
    /// Of each.
    pub each: ConcurrencyBounds,
    /// The most requests that wait.
    pub pending_max: u32,
    /// How long one waits at most, in milliseconds.
    pub pending_timeout_ms: u64,
}

/// How many retries may be under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    /// As a share of the requests under way.
    pub share: f64,
    /// However few requests there are.
    pub min: u32,
}

impl RetryBudget {
    fn allowed(&self, requests: u32) -> u32 {
        ((f64::from(requests) * self.share) as u32).max(self.min)
    }
}

/// The protection of one upstream.
#[derive(Debug)]
pub struct UpstreamProtection {
    /// Bounds, if it has any.
    pub limits: Option<ProtectionLimits>,
    /// When endpoints are left out, if they are.
    pub outliers: Option<OutlierRules>,
    /// How many retries there may be, if that is bounded.
    pub budget: Option<RetryBudget>,
    /// What is counted.
    pub gate: Arc<UpstreamLimiter>,
    /// What is counted of each endpoint, in their order.
    pub endpoints: Box<[Arc<EndpointCounts>]>,
}

/// A request that was let in.
#[derive(Debug, PartialEq)]
pub struct AdmittedRequest {
    /// The endpoint it goes to.
    pub index: usize,
    /// Leave to open a connection, where they are bounded and none idles.
    pub permit: Option<EndpointPermit>,
}

impl UpstreamProtection {
    /// Whether requests under way are counted.
    pub fn counts_requests(&self) -> bool {
        self.limits.is_some() || self.budget.is_some()
    }

    fn bounds_connections(&self) -> bool {
        let room = &self.gate.room;
        self.limits.is_some() && [&room.all, &room.each].iter().any(|most| most.connections() != UNBOUNDED)
    }

    /// What open connections are counted at, where they are bounded.
    pub fn counts_connections(&self) -> Option<&Arc<UpstreamLimiter>> {
        self.bounds_connections().then_some(&self.gate)
    }

    /// Whether no connection may be opened to any endpoint.
    pub fn is_out_of_connections(&self) -> bool {
        self.limits.is_some() && self.gate.connections.load(Relaxed) >= self.gate.room.all.connections()
    }

    /// Leave to open one more connection to an endpoint; `Ok(None)` where they are not bounded.
    pub fn connect(&self, index: usize) -> Result<Option<EndpointPermit>, LimiterFull> {
        if !self.bounds_connections() {
            return Ok(None);
        }
        let most = (self.gate.room.all.connections(), self.gate.room.each.connections());
        EndpointPermit::get(&self.gate, &self.endpoints[index], most).map(Some).ok_or(LimiterFull)
    }
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterFull;

impl Upstream {
    /// Picks an endpoint that has room and takes a place there; `Ok(None)` where there is none to pick. A place that
    /// is at an endpoint already stays there until there is room at another.
    /// `idles` tells whether a connection to an endpoint waits to be used again.
    pub fn admit(
        &self,
        protection: &UpstreamProtection,
        ex: &Exchange<'_>,
        tried: &TriedEndpoints,
        place: &mut Option<RequestPermit>,
        idles: impl Fn(usize) -> bool,
    ) -> Result<Option<AdmittedRequest>, LimiterFull> {
        let has_come = place.is_none();
        if has_come && protection.counts_requests() {
            let most = protection.limits.map_or(UNBOUNDED, |_| protection.gate.room.all.requests());
            *place = Some(RequestPermit::get(&protection.gate, most, ex.host.worker()).ok_or(LimiterFull)?);
        }
        let admitted = self.admit_at_endpoint(protection, ex, tried, place, idles);
        if has_come && !matches!(admitted, Ok(Some(_))) {
            // Whoever is called now would find no room either.
            place.take().into_iter().for_each(RequestPermit::release_without_wake);
        }
        admitted
    }

    fn admit_at_endpoint(
        &self,
        protection: &UpstreamProtection,
        ex: &Exchange<'_>,
        tried: &TriedEndpoints,
        place: &mut Option<RequestPermit>,
        idles: impl Fn(usize) -> bool,
    ) -> Result<Option<AdmittedRequest>, LimiterFull> {
        let mut passed = tried.clone();
        for _ in 0..self.endpoints.len() {
            let Some(index) = self.pick(ex, &passed) else { break };
            let (Some(_), Some(place)) = (protection.limits, place.as_mut()) else {
                return Ok(Some(AdmittedRequest { index, permit: None }));
            };
            passed.push(index);
            let most = protection.gate.room.each.requests();
            let Some(endpoint) = EndpointSlot::get(&protection.endpoints[index], most) else { continue };
            let permit = if idles(index) { Ok(None) } else { protection.connect(index) };
            if let Ok(permit) = permit {
                place.move_to(endpoint);
                return Ok(Some(AdmittedRequest { index, permit }));
            }
        }
        if passed.count() > tried.count() { Err(LimiterFull) } else { Ok(None) }
    }

    /// Lets endpoints back in whose time is over; to be asked before one is picked or shown.
    pub fn end_ejections(&self, now_ms: u64) {
        if let Some(protection) = &self.protection {
            protection.end_ejections(now_ms);
        }
    }
}

impl UpstreamProtection {
    /// Lets endpoints back in whose time is over.
    pub fn end_ejections(&self, now_ms: u64) {
        if self.outliers.is_none() || !self.gate.outliers.is_due(now_ms) {
            return;
        }
        self.gate.outliers.end_ejections(&self.endpoints, now_ms);
    }

    /// Notes how an attempt ended; says where that changed something for the endpoint.
    pub fn observe(&self, index: usize, failure: AttemptFailure, now_ms: u64) -> Option<EjectionEvent> {
        let rules = self.outliers.as_ref()?;
        self.gate.outliers.observe(rules, &self.endpoints, index, failure, now_ms)
    }

    /// How many endpoints are left out.
    pub fn ejected(&self) -> usize {
        self.endpoints.iter().filter(|tally| tally.ejection.is_ejected()).count()
    }

    /// Leave for one more retry, for its place to note once it is made; `Ok(None)` where they are not bounded, or the
    /// place has it already.
    pub fn retry(&self, place: Option<&RequestPermit>) -> Result<Option<RetryPermit>, LimiterFull> {
        let (Some(budget), Some(place)) = (self.budget, place) else { return Ok(None) };
        let allowed = budget.allowed(self.gate.requests.load(Relaxed));
        let leave = place.retry(allowed);
        if leave.is_err() {
            self.gate.retries_refused.fetch_add(1, Relaxed);
        }
        leave
    }
}
