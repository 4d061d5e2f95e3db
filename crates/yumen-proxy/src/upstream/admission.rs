//! Admission to upstreams that limit requests or connections. The counts are in `yumen-snapshot`.

use yumen_plugin::Exchange;
use yumen_snapshot::protection::{EndpointPermit, LimiterFull, RequestPermit};
use yumen_snapshot::{TriedEndpoints, Upstream};

use crate::runtime::clock;
use crate::upstream::UpstreamClient;
use crate::upstream::pool::PoolKey;

/// An endpoint that a request may go to.
pub(crate) struct AdmittedEndpoint {
    pub(crate) index: usize,
    /// The right to open a connection, where connections are limited and none idles.
    pub(crate) endpoint_permit: Option<EndpointPermit>,
}

impl AdmittedEndpoint {
    /// An endpoint without limits.
    pub(crate) fn without_limits(index: usize) -> AdmittedEndpoint {
        AdmittedEndpoint { index, endpoint_permit: None }
    }
}

impl UpstreamClient {
    /// Picks an endpoint with room and counts the request there, in `request_permit`; `Ok(None)` if there is
    /// no endpoint to pick. `pool_key` gives the key of connections to an endpoint.
    pub(crate) fn admit(
        &self,
        upstream: &Upstream,
        ex: &Exchange<'_>,
        tried: &TriedEndpoints,
        request_permit: &mut Option<RequestPermit>,
        pool_key: impl Fn(usize) -> PoolKey,
    ) -> Result<Option<AdmittedEndpoint>, LimiterFull> {
        let Some(protection) = &upstream.protection else {
            return Ok(upstream.pick(ex, tried).map(AdmittedEndpoint::without_limits));
        };
        // No background task ends ejections: the next request that selects an endpoint does (decision 33).
        protection.end_ejections(clock::now().mono_ms());
        let limiter = protection.counts_connections();
        let has_idle =
            |index: usize| self.pool.borrow_mut().has(pool_key(index), limiter, clock::now().mono_ms());
        let mut admitted = upstream.admit(protection, ex, tried, request_permit, has_idle);
        if admitted == Err(LimiterFull) && protection.is_out_of_connections() {
            // A connection for a waiting request takes precedence over an idle one at another endpoint.
            let made_room = self.pool.borrow_mut().drop_one(&protection.gate);
            if made_room {
                admitted = upstream.admit(protection, ex, tried, request_permit, has_idle);
            }
        }
        let endpoint = admitted?;
        Ok(endpoint
            .map(|admission| AdmittedEndpoint { index: admission.index, endpoint_permit: admission.permit }))
    }
}
