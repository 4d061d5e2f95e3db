//! Admits a request to an upstream with limits: a permit of the upstream, then an endpoint with capacity.

use yumen_plugin::Exchange;

use super::Upstream;
use crate::endpoint::TriedEndpoints;
use crate::protection::{EndpointPermit, LimiterFull, RequestPermit, UpstreamProtection};

/// A request with an endpoint.
#[derive(Debug, PartialEq)]
pub struct AdmittedRequest {
    /// The index of the endpoint.
    pub index: usize,
    /// The permit for a new connection, if connections are bounded and none is idle.
    pub permit: Option<EndpointPermit>,
}

impl Upstream {
    /// Picks an endpoint with capacity and takes a permit there. `Ok(None)`: no untried endpoint is left.
    ///
    /// The permit of a retried request stays at its previous endpoint until another one has capacity. `has_idle` returns
    /// whether a connection to an endpoint is idle.
    pub fn admit(
        &self,
        protection: &UpstreamProtection,
        ex: &Exchange<'_>,
        tried: &TriedEndpoints,
        permit: &mut Option<RequestPermit>,
        has_idle: impl Fn(usize) -> bool,
    ) -> Result<Option<AdmittedRequest>, LimiterFull> {
        let is_new = permit.is_none();
        if is_new && protection.counts_requests() {
            // The upstream's permit first: it is one count, while endpoints may take several attempts.
            *permit = Some(protection.enter(ex.host.worker())?);
        }
        let admitted = self.admit_at_endpoint(protection, ex, tried, permit, has_idle);
        if is_new && !matches!(admitted, Ok(Some(_))) {
            // A queued request would find no endpoint with capacity either, so none is woken.
            permit.take().into_iter().for_each(RequestPermit::release_without_wake);
        }
        admitted
    }

    fn admit_at_endpoint(
        &self,
        protection: &UpstreamProtection,
        ex: &Exchange<'_>,
        tried: &TriedEndpoints,
        permit: &mut Option<RequestPermit>,
        has_idle: impl Fn(usize) -> bool,
    ) -> Result<Option<AdmittedRequest>, LimiterFull> {
        // A copy: endpoints without capacity are passed over now, but not excluded from later attempts.
        let mut passed = tried.clone();
        // Each pass excludes one endpoint, so the loop ends even if the balancer repeats itself.
        for _ in 0..self.endpoints.len() {
            let Some(index) = self.pick(ex, &passed) else { break };
            let (Some(_), Some(permit)) = (protection.limits, permit.as_mut()) else {
                return Ok(Some(AdmittedRequest { index, permit: None }));
            };
            passed.push(index);
            // The slot of the new endpoint is taken before the old one is released: a request never has none.
            let Some(slot) = protection.enter_endpoint(index) else { continue };
            // An idle connection has its permit already.
            let connection = if has_idle(index) { Ok(None) } else { protection.connect(index) };
            if let Ok(connection) = connection {
                permit.move_to(slot);
                return Ok(Some(AdmittedRequest { index, permit: connection }));
            }
        }
        // Full and not absent: the caller may queue the request.
        if passed.count() > tried.count() { Err(LimiterFull) } else { Ok(None) }
    }

    /// Ends the ejections whose time has passed. Callers do this before they pick or show an endpoint.
    pub fn end_ejections(&self, now_ms: u64) {
        if let Some(protection) = &self.protection {
            protection.end_ejections(now_ms);
        }
    }
}
