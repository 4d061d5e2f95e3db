//! Picks an endpoint for an attempt, and counts the attempts in flight.

use std::net::{IpAddr, SocketAddr};

use yumen_plugin::{Exchange, StickyEndpoint};

use super::Upstream;
use crate::balance::EndpointCandidates;
use crate::endpoint::{Endpoint, TriedEndpoints};

impl Upstream {
    /// Picks the endpoint for an attempt, by index. `None` if no untried endpoint is left.
    ///
    /// Healthy endpoints of the highest priority come first. If all are down, those whose last probe succeeded are used,
    /// or all if no probe succeeded.
    #[inline]
    pub fn pick(&self, ex: &Exchange<'_>, tried: &TriedEndpoints) -> Option<usize> {
        if let Some(sticky) = &ex.upstream.sticky
            && let Some(index) = self.sticky_endpoint(sticky, tried)
        {
            return Some(index);
        }
        if let [only] = &*self.endpoints {
            // A single endpoint is used even if it is down: an attempt can only improve on a certain 503.
            return (only.weight > 0 && !tried.has(0)).then_some(0);
        }
        let balancer = &self.selection.balancer;
        if tried.is_empty()
            // The fast path of plain round robin: no endpoint is looked at.
            && let Some(index) = balancer.pick_unchecked(ex.host.worker())
        {
            return Some(index);
        }
        if let Some(slow_start) = &self.selection.slow_start {
            // Before the candidates, whose shares depend on the time recorded here.
            slow_start.note(&self.endpoints, ex.now.mono_us);
        }
        let candidates = self.candidates(tried, ex.now.mono_us)?;
        balancer.pick(&candidates, ex)
    }

    /// Whether the endpoint of a session can serve it.
    pub fn serves_session(&self, sticky: &StickyEndpoint) -> bool {
        self.sticky_endpoint(sticky, &TriedEndpoints::default()).is_some()
    }

    /// The endpoint of a session, if it is up and untried. An endpoint of weight 0 keeps its sessions: it gets no new
    /// ones.
    #[cold]
    fn sticky_endpoint(&self, sticky: &StickyEndpoint, tried: &TriedEndpoints) -> Option<usize> {
        let is_it = |endpoint: &Endpoint| endpoint.addr == sticky.address && endpoint.is_up();
        self.endpoints.iter().position(is_it).filter(|index| !tried.has(*index))
    }

    /// Whether an endpoint is up that new requests may use.
    pub fn can_serve(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.weight > 0 && endpoint.is_up())
    }

    /// The address of the endpoint that a key selects by rendezvous hashing: a change of the endpoints moves only the keys
    /// of those that came or went. Endpoints that are down are used only if all are.
    pub fn hashed(&self, key: u64) -> Option<SocketAddr> {
        let serving = self.endpoints.iter().filter(|endpoint| endpoint.weight > 0);
        let ranked = |endpoint: &Endpoint| (endpoint.is_up(), rendezvous(key, endpoint));
        let best = serving.max_by(|a, b| {
            let ((a_up, a_rank), (b_up, b_rank)) = (ranked(a), ranked(b));
            a_up.cmp(&b_up).then(a_rank.total_cmp(&b_rank))
        });
        best.map(|endpoint| endpoint.addr)
    }

    /// Whether an endpoint is left for [`Upstream::pick`].
    pub fn has_untried(&self, tried: &TriedEndpoints) -> bool {
        match &*self.endpoints {
            [only] => only.weight > 0 && !tried.has(0),
            // Shares do not matter, so any time will do.
            _ => self.candidates(tried, 0).is_some(),
        }
    }

    /// The endpoint that [`Upstream::pick`] would return next, without a change of state.
    pub fn peek(&self, ex: &Exchange<'_>) -> Option<usize> {
        let tried = TriedEndpoints::default();
        let balancer = &self.selection.balancer;
        if !balancer.takes_turns() {
            return self.pick(ex, &tried);
        }
        let candidates = self.candidates(&tried, ex.now.mono_us)?;
        balancer.peek(&candidates, ex)
    }

    /// For each endpoint, whether a first attempt may pick it.
    pub fn in_rotation(&self) -> Vec<bool> {
        let tried = TriedEndpoints::default();
        // Shares do not matter to membership, so any time will do.
        let candidates = self.candidates(&tried, 0);
        (0..self.endpoints.len()).map(|index| candidates.is_some_and(|all| all.has(index))).collect()
    }

    fn candidates<'u>(&'u self, tried: &'u TriedEndpoints, now_us: u64) -> Option<EndpointCandidates<'u>> {
        EndpointCandidates::of(&self.endpoints, self.selection.slow_start.as_deref(), tried, now_us)
    }

    /// Counts an attempt at an endpoint as in flight, from `began_us` of the monotonic clock on.
    #[inline]
    pub fn started(&self, index: usize, began_us: u64) -> InFlight<'_> {
        self.selection.balancer.started(&self.endpoints, index);
        InFlight { upstream: self, index, began_us }
    }
}

/// The rank of an endpoint for a key, in proportion to its weight.
fn rendezvous(key: u64, endpoint: &Endpoint) -> f64 {
    let address = match endpoint.addr.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ (ip.to_bits() as u64).rotate_left(32),
    };
    let mixed = scrambled(scrambled(key ^ scrambled(address)) ^ u64::from(endpoint.addr.port()));
    // 53 bits give a share between 0 and 1 with neither bound.
    let share = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    f64::from(endpoint.weight) / -share.ln()
}

/// A permutation of 64 bits (the finalizer of SplitMix64).
fn scrambled(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The in-flight guard of an attempt: the endpoint counts the attempt until the guard is dropped.
#[derive(Debug)]
#[must_use = "the attempt counts as ended when the guard is dropped"]
pub struct InFlight<'u> {
    upstream: &'u Upstream,
    index: usize,
    began_us: u64,
}

impl InFlight<'_> {
    /// The index of the endpoint.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The duration of the attempt until `now_us`.
    pub fn lasts_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.began_us)
    }

    /// Ends the attempt at `now_us` of the monotonic clock.
    pub fn end_now(self, now_us: u64) {
        let lasted_us = self.lasts_us(now_us);
        self.end(lasted_us, now_us);
    }

    /// Ends the attempt after `duration_us`, at `now_us` of the monotonic clock. A guard that is merely dropped records
    /// no response time.
    #[inline]
    pub fn end(self, duration_us: u64, now_us: u64) {
        let Upstream { selection, endpoints, .. } = self.upstream;
        // `ended` follows from the drop of the guard.
        selection.balancer.answered(endpoints, self.index, duration_us, now_us);
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        // In `drop`, so that an aborted exchange cannot leave the count behind.
        self.upstream.selection.balancer.ended(&self.upstream.endpoints, self.index);
    }
}
