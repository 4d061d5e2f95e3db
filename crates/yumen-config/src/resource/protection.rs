//! Overload protection of an upstream. All settings are beyond APISIX.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Limits on concurrent use of an upstream, counted over all workers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = needs_a_bound)]
pub struct UpstreamLimitsSpec {
    /// The most requests in flight to all endpoints together.
    #[schemars(range(min = 1))]
    pub max_requests: Option<u32>,
    /// The most open connections to all endpoints together, including idle ones; HTTP/1.1 only.
    #[schemars(range(min = 1))]
    pub max_connections: Option<u32>,
    /// The most requests in the pending queue; further ones get 503 at once.
    #[serde(default)]
    #[schemars(range(max = 1000000))]
    pub max_pending: u32,
    /// The longest time in the pending queue, in seconds; after that a request gets 503.
    #[serde(default = "UpstreamLimitsSpec::pending_timeout")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub pending_timeout: f64,
    /// The same limits for each endpoint. A full endpoint is skipped.
    pub per_endpoint: Option<EndpointLimitsSpec>,
}

impl UpstreamLimitsSpec {
    fn pending_timeout() -> f64 {
        1.0
    }
}

/// Limits on concurrent use of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointLimitsSpec {
    /// The most requests in flight.
    #[schemars(range(min = 1))]
    pub max_requests: Option<u32>,
    /// The most open connections, including idle ones; HTTP/1.1 only.
    #[schemars(range(min = 1))]
    pub max_connections: Option<u32>,
}

/// Outlier detection: ejection of endpoints that fail, as observed in traffic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutlierDetectionSpec {
    /// Consecutive failures that eject an endpoint: responses of 500 to 599, no response, or gRPC calls that
    /// end with status 2, 13 or 14 in their head. 0 disables this.
    pub consecutive_5xx: u32,
    /// Consecutive gateway failures that eject an endpoint: no connection, no response, 502, 503, 504, or
    /// gRPC status 14. 0 disables this.
    pub consecutive_gateway_failures: u32,
    /// Ejection of endpoints that succeed far less often than the others; absent disables this.
    pub success_rate: Option<SuccessRateSpec>,
    /// Interval at which success rates are compared and the next ejection of each endpoint in use becomes
    /// one step shorter, in seconds.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub interval: f64,
    /// Duration of the first ejection, in seconds; each further ejection adds the same time.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub base_ejection_time: f64,
    /// The longest ejection, in seconds.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_ejection_time: f64,
    /// Share of endpoints that may be ejected at once. One always may be, but never the last.
    #[schemars(range(max = 100))]
    pub max_ejected_percent: u32,
}

impl Default for OutlierDetectionSpec {
    fn default() -> Self {
        OutlierDetectionSpec {
            consecutive_5xx: 5,
            consecutive_gateway_failures: 5,
            success_rate: None,
            interval: 10.0,
            base_ejection_time: 30.0,
            max_ejection_time: 300.0,
            max_ejected_percent: 50,
        }
    }
}

/// Bounds of the comparison of success rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRateSpec {
    /// Endpoints with fewer requests in an interval are not compared.
    #[schemars(range(min = 1))]
    pub min_requests: u32,
    /// With fewer endpoints to compare none is ejected.
    #[schemars(range(min = 2))]
    pub min_endpoints: u32,
    /// The number of standard deviations below the mean at which an endpoint is ejected.
    #[schemars(range(min = 0))]
    pub deviations: f64,
}

impl Default for SuccessRateSpec {
    fn default() -> Self {
        SuccessRateSpec { min_requests: 100, min_endpoints: 5, deviations: 1.9 }
    }
}

/// Bound of concurrent retries, so that retries do not multiply an outage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudgetSpec {
    /// Retries in flight, in percent of the requests in flight to the upstream.
    #[schemars(range(min = 0, max = 100))]
    pub percent: f64,
    /// Retries that are allowed regardless of the number of requests.
    pub min_concurrency: u32,
}

impl Default for RetryBudgetSpec {
    fn default() -> Self {
        RetryBudgetSpec { percent: 20.0, min_concurrency: 3 }
    }
}

fn needs_a_bound(schema: &mut Schema) {
    schema.insert(
        "anyOf".into(),
        json!([
            { "required": ["max_requests"] },
            { "required": ["max_connections"] },
            { "required": ["per_endpoint"] },
        ]),
    );
}
