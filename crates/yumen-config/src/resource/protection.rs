//! What keeps an upstream from being asked more than it can bear. All of it is beyond APISIX.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Bounds of what an upstream is asked at once, counted over all workers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = needs_a_bound)]
pub struct UpstreamLimitsSpec {
    /// The most requests under way to all endpoints together.
    #[schemars(range(min = 1))]
    pub max_requests: Option<u32>,
    /// The most connections open to all endpoints together, idle ones included; HTTP/1.1 only.
    #[schemars(range(min = 1))]
    pub max_connections: Option<u32>,
    /// The most requests that wait until there is room; more are answered 503 at once.
    #[serde(default)]
    #[schemars(range(max = 1000000))]
    pub max_pending: u32,
    /// How long a request waits for room at most, in seconds; then it is answered 503.
    #[serde(default = "UpstreamLimitsSpec::pending_timeout")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub pending_timeout: f64,
    /// The same bounds for each endpoint. One that is full is passed over.
    pub per_endpoint: Option<EndpointLimitsSpec>,
}

impl UpstreamLimitsSpec {
    fn pending_timeout() -> f64 {
        1.0
    }
}

/// Bounds of what one endpoint is asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointLimitsSpec {
    /// The most requests under way.
    #[schemars(range(min = 1))]
    pub max_requests: Option<u32>,
    /// The most connections open, idle ones included; HTTP/1.1 only.
    #[schemars(range(min = 1))]
    pub max_connections: Option<u32>,
}

/// When an endpoint that fails is left out for a while, as traffic shows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutlierDetectionSpec {
    /// So many answers of 500 to 599, or none at all, in a row; calls of gRPC that end with 2, 13 or 14 in their
    /// head count too. 0 does not look.
    pub consecutive_5xx: u32,
    /// So many gateway failures in a row: no connection, no answer, 502, 503, 504 or status 14 of a call; 0 does
    /// not look.
    pub consecutive_gateway_failures: u32,
    /// Endpoints that succeed far less often than the others; absent does not look.
    pub success_rate: Option<SuccessRateSpec>,
    /// How often success rates are compared and good conduct is noted, in seconds.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub interval: f64,
    /// How long an endpoint is left out for the first time, in seconds; each further time adds as much.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub base_ejection_time: f64,
    /// How long it is left out at most, in seconds.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_ejection_time: f64,
    /// How much of the endpoints may be left out at once. One may always be, but never the last.
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

/// How far an endpoint may fall behind the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRateSpec {
    /// Endpoints with fewer requests in an interval are not compared.
    #[schemars(range(min = 1))]
    pub min_requests: u32,
    /// With fewer endpoints to compare none is left out.
    #[schemars(range(min = 2))]
    pub min_endpoints: u32,
    /// How many standard deviations below the mean an endpoint is left out.
    #[schemars(range(min = 0))]
    pub deviations: f64,
}

impl Default for SuccessRateSpec {
    fn default() -> Self {
        SuccessRateSpec { min_requests: 100, min_endpoints: 5, deviations: 1.9 }
    }
}

/// How many requests may be asked again at once, so that retries do not multiply an outage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudgetSpec {
    /// Retries under way, as a share of the requests under way to the upstream.
    #[schemars(range(min = 0, max = 100))]
    pub percent: f64,
    /// So many are allowed however few requests there are.
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
