//! Health checks of an upstream's endpoints.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::common;

/// Health checks; passive ones need active ones to bring endpoints back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules)]
pub struct HealthCheckSpec {
    /// Probes.
    pub active: ActiveCheck,
    /// Judged by the traffic itself.
    pub passive: Option<PassiveCheck>,
}

/// What a probe speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckType {
    /// A GET.
    #[default]
    Http,
    /// A GET over TLS.
    Https,
    /// A connection.
    Tcp,
    /// A call of gRPC's health service. Beyond APISIX.
    Grpc,
    /// The same over TLS. Beyond APISIX.
    Grpcs,
}

/// Probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActiveCheck {
    /// What a probe speaks.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// How long a probe may take, in seconds.
    pub timeout: f64,
    /// How many probes run at once.
    pub concurrency: u32,
    /// The host a probe names; absent means `upstream_host` where requests get that, else the node's.
    #[schemars(regex(pattern = r"^\*?[0-9a-zA-Z-._\[\]:]+$"))]
    pub host: Option<String>,
    /// The port probed; absent means the node's.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The target of the GET.
    pub http_path: String,
    /// Whether the certificate must be valid.
    pub https_verify_certificate: bool,
    /// The service that calls of gRPC's health service ask for; absent means the whole server. Beyond APISIX.
    #[schemars(length(min = 1, max = 256))]
    pub grpc_service: Option<String>,
    /// What makes an endpoint healthy.
    pub healthy: ActiveHealthy,
    /// What makes an endpoint unhealthy.
    pub unhealthy: ActiveUnhealthy,
    /// More fields of the probe, each `Name: value`.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub req_headers: Option<Vec<String>>,
}

impl Default for ActiveCheck {
    fn default() -> Self {
        ActiveCheck {
            kind: CheckType::Http,
            timeout: 1.0,
            concurrency: 10,
            host: None,
            port: None,
            http_path: "/".into(),
            https_verify_certificate: common::yes(),
            grpc_service: None,
            healthy: ActiveHealthy::default(),
            unhealthy: ActiveUnhealthy::default(),
            req_headers: None,
        }
    }
}

/// What makes a probed endpoint healthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActiveHealthy {
    /// Between probes of healthy endpoints, in seconds.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// The statuses that count as success.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// How many successes in a row it takes.
    #[schemars(range(min = 1, max = 254))]
    pub successes: u8,
}

impl Default for ActiveHealthy {
    fn default() -> Self {
        ActiveHealthy { interval: 1, http_statuses: vec![200, 302], successes: 2 }
    }
}

/// What makes a probed endpoint unhealthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActiveUnhealthy {
    /// Between probes of unhealthy endpoints, in seconds.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// The statuses that count as failure.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// How many bad statuses in a row it takes.
    #[schemars(range(min = 1, max = 254))]
    pub http_failures: u8,
    /// How many refused or broken connections in a row it takes.
    #[schemars(range(min = 1, max = 254))]
    pub tcp_failures: u8,
    /// How many timeouts in a row it takes.
    #[schemars(range(min = 1, max = 254))]
    pub timeouts: u8,
}

impl Default for ActiveUnhealthy {
    fn default() -> Self {
        ActiveUnhealthy {
            interval: 1,
            http_statuses: vec![429, 404, 500, 501, 502, 503, 504, 505],
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 3,
        }
    }
}

/// Judged by the traffic itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveCheck {
    /// What traffic is judged.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// What makes an endpoint healthy.
    pub healthy: PassiveHealthy,
    /// What makes an endpoint unhealthy.
    pub unhealthy: PassiveUnhealthy,
}

/// What traffic makes an endpoint healthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveHealthy {
    /// The statuses that count as success.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// How many successes in a row it takes; 0 never.
    #[schemars(range(max = 254))]
    pub successes: u8,
}

impl Default for PassiveHealthy {
    fn default() -> Self {
        let http_statuses = (200..=208).chain([226]).chain(300..=308).collect();
        PassiveHealthy { http_statuses, successes: 5 }
    }
}

/// What traffic makes an endpoint unhealthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveUnhealthy {
    /// The statuses that count as failure.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// How many bad statuses in a row it takes; 0 never.
    #[schemars(range(max = 254))]
    pub http_failures: u8,
    /// How many refused or broken connections in a row it takes; 0 never.
    #[schemars(range(max = 254))]
    pub tcp_failures: u8,
    /// How many timeouts in a row it takes; 0 never.
    #[schemars(range(max = 254))]
    pub timeouts: u8,
}

impl Default for PassiveUnhealthy {
    fn default() -> Self {
        PassiveUnhealthy {
            http_statuses: vec![429, 500, 503],
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 7,
        }
    }
}

fn rules(schema: &mut Schema) {
    schema.remove("required");
    schema.insert("anyOf".into(), json!([{ "required": ["active"] }, { "required": ["active", "passive"] }]));
}
