//! Bounds, outlier detection and retry budgets as users write them, with what is counted for them.

use std::sync::Arc;

use yumen_config::resource as config;

use super::Compiler;
use super::upstream::millis;
use crate::protection::{
    Bounds, Gate, Limits, OutlierRules, Protection, RetryBudget, SuccessRate, Tally, UNBOUNDED,
};
use crate::upstream::{Endpoint, Upstream};

impl Compiler {
    /// The protection of an upstream, and what is counted of its endpoints in them; `None` where it has none.
    pub(super) fn protection(
        &self,
        written: &config::Upstream,
        origin: &str,
        endpoints: &mut [Endpoint],
    ) -> Option<Box<Protection>> {
        let limits = written.limits.as_ref().map(limits);
        let outliers = written.outlier_detection.as_ref().map(outliers);
        let budget = written
            .retry_budget
            .map(|budget| RetryBudget { share: budget.percent / 100.0, min: budget.min_concurrency });
        if limits.is_none() && outliers.is_none() && budget.is_none() {
            return None;
        }
        let gate = self.carry.keep_portable(&gate_name(origin), Gate::default);
        let tally = |endpoint: &Endpoint| {
            let name = format!("tally {origin} {} {}", endpoint.addr, endpoint.host);
            self.carry.keep_portable(&name, || Tally::at(&gate))
        };
        let tallies: Box<[Arc<Tally>]> = endpoints.iter().map(tally).collect();
        if outliers.is_some() {
            for (endpoint, tally) in endpoints.iter_mut().zip(&tallies) {
                endpoint.outlier = Some(tally.clone());
            }
        }
        Some(Box::new(Protection { limits, outliers, budget, gate, endpoints: tallies }))
    }

    /// Puts the bounds of an upstream in force, whose endpoints may be others than before. Who waits for it is called
    /// once the snapshot is published: any sooner the endpoints would be those of before.
    pub(super) fn put_bounds_in_force(&mut self, built: &Upstream) {
        let (gate, limits) = match &built.protection {
            Some(protection) => (Some(protection.gate.clone()), protection.limits),
            // Whoever waits there still need not.
            None => (self.carry.held::<Gate>(&gate_name(&built.origin)), None),
        };
        let Some(gate) = gate else { return };
        gate.set_limits(limits.as_ref());
        self.recalled.push(Arc::downgrade(&gate));
    }
}

fn gate_name(origin: &str) -> String {
    format!("gate {origin}")
}

fn limits(written: &config::UpstreamLimits) -> Limits {
    let bounds = |requests: Option<u32>, connections: Option<u32>| Bounds {
        requests: requests.unwrap_or(UNBOUNDED),
        connections: connections.unwrap_or(UNBOUNDED),
    };
    let each = written.per_endpoint.unwrap_or_default();
    Limits {
        all: bounds(written.max_requests, written.max_connections),
        each: bounds(each.max_requests, each.max_connections),
        pending_max: written.max_pending,
        pending_timeout_ms: millis(written.pending_timeout).max(1),
    }
}

fn outliers(written: &config::OutlierDetection) -> OutlierRules {
    OutlierRules {
        consecutive_5xx: written.consecutive_5xx,
        consecutive_gateway_failures: written.consecutive_gateway_failures,
        success_rate: written.success_rate.map(|rate| SuccessRate {
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
