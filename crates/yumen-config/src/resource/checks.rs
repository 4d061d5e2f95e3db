//! Health checks of an upstream's endpoints.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::common::{self, RouteMethod};

/// Health checks. Passive checks need active ones, which bring endpoints back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rules)]
pub struct HealthCheckSpec {
    /// Probes.
    pub active: ActiveCheck,
    /// Health concluded from the responses to traffic.
    pub passive: Option<PassiveCheck>,
}

/// Protocol of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckType {
    /// A request, by default GET.
    #[default]
    Http,
    /// The same over TLS.
    Https,
    /// A TCP connection.
    Tcp,
    /// A call of the gRPC health service. Beyond APISIX.
    Grpc,
    /// That call over TLS. Beyond APISIX.
    Grpcs,
}

/// Probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveCheck {
    /// Protocol of a probe.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// Timeout of a probe, in seconds.
    pub timeout: f64,
    /// The number of probes that run at once.
    pub concurrency: u32,
    /// The host in a probe; absent means `upstream_host` if requests carry it, else the node's.
    #[schemars(regex(pattern = r"^\*?[0-9a-zA-Z-._\[\]:]+$"))]
    pub host: Option<String>,
    /// The port of a probe; absent means the node's.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The method of the request.
    pub http_method: RouteMethod,
    /// The target of the request.
    pub http_path: String,
    /// The body of the request; empty means none.
    pub http_req_body: String,
    /// Whether the certificate must be valid.
    pub https_verify_certificate: bool,
    /// The service in calls of the gRPC health service; absent means the whole server. Beyond APISIX.
    #[schemars(length(min = 1, max = 256))]
    pub grpc_service: Option<String>,
    /// Conditions that make an endpoint healthy.
    pub healthy: ActiveHealthy,
    /// Conditions that make an endpoint unhealthy.
    pub unhealthy: ActiveUnhealthy,
    /// Additional fields of the probe, each `Name: value`.
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
            http_method: RouteMethod::Get,
            http_path: "/".into(),
            http_req_body: String::new(),
            https_verify_certificate: common::yes(),
            grpc_service: None,
            healthy: ActiveHealthy::default(),
            unhealthy: ActiveUnhealthy::default(),
            req_headers: None,
        }
    }
}

/// A line of `req_headers` that a probe leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFieldFlaw {
    /// Position in `req_headers`.
    pub at: usize,
    /// The reason.
    pub message: String,
    /// The remedy.
    pub remedy: &'static str,
}

impl ActiveCheck {
    /// The additional fields of a probe, without the flawed ones.
    pub fn probe_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.req_headers.iter().flatten().enumerate();
        let sound = lines.filter_map(|(at, line)| match self.flaw_of(at, line) {
            None => field_of(line),
            Some(_) => None,
        });
        // The probe adds the length of its body itself.
        sound
            .filter(|(name, _)| self.http_req_body.is_empty() || !name.eq_ignore_ascii_case("content-length"))
    }

    /// The lines that are no field, or that would frame the probe in a second way.
    pub fn probe_field_flaws(&self) -> impl Iterator<Item = ProbeFieldFlaw> {
        let lines = self.req_headers.iter().flatten().enumerate();
        lines.filter_map(|(at, line)| {
            let (message, remedy) = self.flaw_of(at, line)?;
            Some(ProbeFieldFlaw { at, message, remedy })
        })
    }

    fn flaw_of(&self, at: usize, line: &str) -> Option<(String, &'static str)> {
        let (name, value) = field_of(line)?;
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            // Without the text, which may be a secret.
            let message =
                "the text before the colon is no name of a header: the field is not sent".to_owned();
            return Some((message, "write `Name: value`"));
        }
        if value.chars().any(|character| character.is_control() && character != '\t') {
            let message = format!("the value of {name} has control characters: the field is not sent");
            return Some((message, "write each header as an item of its own"));
        }
        // Two framings of one request are an attack on the endpoint (RFC 9112 §6.3).
        let length = self.http_req_body.len().to_string();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            let message = format!("{name} has no effect: a probe sends its body with a Content-Length");
            return Some((message, "remove it"));
        }
        if name.eq_ignore_ascii_case("content-length") && value != length {
            let message = format!("{name} has no effect: the body of the probe has {length} bytes");
            return Some((message, "remove it"));
        }
        let is_same =
            |line: &String| field_of(line).is_some_and(|(other, _)| other.eq_ignore_ascii_case(name));
        let first = self.req_headers.iter().flatten().position(is_same);
        // A length beside a body is right here, and the probe sends its own in place of it.
        let is_single = name.eq_ignore_ascii_case("host")
            || name.eq_ignore_ascii_case("content-length") && self.http_req_body.is_empty();
        if is_single && first.is_some_and(|first| first < at) {
            let message = format!("{name} has no effect: a request has one (RFC 9112 §3.2, §6.3)");
            return Some((message, "remove it"));
        }
        None
    }
}

/// Name and value of a line.
fn field_of(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim(), value.trim()))
}

/// Bytes of names (RFC 9110 §5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Conditions that make a probed endpoint healthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveHealthy {
    /// Interval between probes of healthy endpoints, in seconds.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// The statuses that count as success.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Consecutive successes that make the endpoint healthy.
    #[schemars(range(min = 1, max = 254))]
    pub successes: u8,
}

impl Default for ActiveHealthy {
    fn default() -> Self {
        ActiveHealthy { interval: 1, http_statuses: vec![200, 302], successes: 2 }
    }
}

/// Conditions that make a probed endpoint unhealthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveUnhealthy {
    /// Interval between probes of unhealthy endpoints, in seconds.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// The statuses that count as failure.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Consecutive failure statuses that make the endpoint unhealthy.
    #[schemars(range(min = 1, max = 254))]
    pub http_failures: u8,
    /// Consecutive refused or broken connections that make the endpoint unhealthy.
    #[schemars(range(min = 1, max = 254))]
    pub tcp_failures: u8,
    /// Consecutive timeouts that make the endpoint unhealthy.
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

/// Health concluded from the responses to traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassiveCheck {
    /// Type of the observed traffic.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// Conditions that make an endpoint healthy.
    pub healthy: PassiveHealthy,
    /// Conditions that make an endpoint unhealthy.
    pub unhealthy: PassiveUnhealthy,
}

/// Conditions under which traffic makes an endpoint healthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassiveHealthy {
    /// The statuses that count as success.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Consecutive successes that make the endpoint healthy; 0 disables this.
    #[schemars(range(max = 254))]
    pub successes: u8,
}

impl Default for PassiveHealthy {
    fn default() -> Self {
        let http_statuses = (200..=208).chain([226]).chain(300..=308).collect();
        PassiveHealthy { http_statuses, successes: 5 }
    }
}

/// Conditions under which traffic makes an endpoint unhealthy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassiveUnhealthy {
    /// The statuses that count as failure.
    #[schemars(inner(range(min = 200, max = 599)), length(min = 1), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Consecutive failure statuses that make the endpoint unhealthy; 0 disables this.
    #[schemars(range(max = 254))]
    pub http_failures: u8,
    /// Consecutive refused or broken connections that make the endpoint unhealthy; 0 disables this.
    #[schemars(range(max = 254))]
    pub tcp_failures: u8,
    /// Consecutive timeouts that make the endpoint unhealthy; 0 disables this.
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
