//! Builds the protection of an upstream: limits, outlier detection, retry budget.

use std::sync::Arc;

use yumen_config::resource as config;

use super::Compiler;
use super::upstream::{UpstreamBuilder, millis};
use crate::endpoint::Endpoint;
use crate::protection::{
    ConcurrencyBounds, EndpointCounts, OutlierRules, ProtectionLimits, RetryBudget, SuccessRateRules,
    UNBOUNDED, UpstreamLimiter, UpstreamProtection,
};
use crate::upstream::Upstream;

impl UpstreamBuilder<'_> {
    /// The protection of an upstream. Outlier detection adds its counts to the endpoints.
    pub(super) fn protection(
        &self,
        written: &config::UpstreamSpec,
        origin: &str,
        endpoints: &mut [Endpoint],
    ) -> Option<Box<UpstreamProtection>> {
        let limits = written.limits.as_ref().map(limits);
        let outliers = written.outlier_detection.as_ref().map(outliers);
        let budget = written
            .retry_budget
            .map(|budget| RetryBudget { share: budget.percent / 100.0, min: budget.min_concurrency });
        if limits.is_none() && outliers.is_none() && budget.is_none() {
            return None;
        }
        let gate = self.context.carry.get_or_create_portable(&limiter_name(origin), UpstreamLimiter::default);
        let tally = |endpoint: &Endpoint| {
            let name = format!("tally {origin} {} {}", endpoint.addr, endpoint.host);
            self.context.carry.get_or_create_portable(&name, || EndpointCounts::at(&gate))
        };
        let tallies: Box<[Arc<EndpointCounts>]> = endpoints.iter().map(tally).collect();
        if outliers.is_some() {
            for (endpoint, tally) in endpoints.iter_mut().zip(&tallies) {
                endpoint.outlier = Some(tally.clone());
            }
        }
        Some(Box::new(UpstreamProtection { limits, outliers, budget, gate, endpoints: tallies }))
    }
}

impl Compiler {
    /// Puts the limits of an upstream in force. Queued requests are woken when the snapshot is published: until then
    /// they would see the previous endpoints.
    pub(super) fn apply_bounds(&mut self, built: &Upstream) {
        let (gate, limits) = match &built.protection {
            Some(protection) => (Some(protection.gate.clone()), protection.limits),
            // The upstream lost its limits. Requests may still be queued under the previous ones.
            None => (self.context.carry.get_shared::<UpstreamLimiter>(&limiter_name(&built.origin)), None),
        };
        let Some(gate) = gate else { return };
        gate.set_limits(limits.as_ref());
        self.upstreams.recall(&gate);
    }
}

fn limiter_name(origin: &str) -> String {
    format!("gate {origin}")
}

fn limits(written: &config::UpstreamLimitsSpec) -> ProtectionLimits {
    let bounds = |requests: Option<u32>, connections: Option<u32>| ConcurrencyBounds {
        requests: requests.unwrap_or(UNBOUNDED),
        connections: connections.unwrap_or(UNBOUNDED),
    };
    let each = written.per_endpoint.unwrap_or_default();
    ProtectionLimits {
        all: bounds(written.max_requests, written.max_connections),
        each: bounds(each.max_requests, each.max_connections),
        pending_max: written.max_pending,
        pending_timeout_ms: millis(written.pending_timeout).max(1),
    }
}

fn outliers(written: &config::OutlierDetectionSpec) -> OutlierRules {
    OutlierRules {
        consecutive_5xx: written.consecutive_5xx,
        consecutive_gateway_failures: written.consecutive_gateway_failures,
        success_rate: written.success_rate.map(|rate| SuccessRateRules {
            requests_min: rate.min_requests,
            endpoints_min: rate.min_endpoints,
            deviations: rate.deviations,
        }),
        interval_ms: millis(written.interval).max(1),
        base_ejection_ms: millis(written.base_ejection_time).max(1),
        max_ejection_ms: millis(written.max_ejection_time).max(1),
        max_ejected_percent: written.max_ejected_percent,
    }
}
