//! Upstreams: named groups of endpoints with their load balancing.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checks::HealthCheckSpec;
use super::common::{self, Labels, ResourceId, TimeoutSpec};
use super::nodes::UpstreamNodes;
use super::protection::{OutlierDetectionSpec, RetryBudgetSpec, UpstreamLimitsSpec};
use super::{Kind, resource_type};
use crate::schema::{self, InvalidSettings};

/// An upstream. Needs `nodes`, or `service_name` and `discovery_type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules)]
pub struct UpstreamSpec {
    /// Id of the upstream.
    pub id: Option<ResourceId>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// User-defined labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// Endpoints.
    pub nodes: Option<UpstreamNodes>,
    /// Name of the service in service discovery.
    #[schemars(length(min = 1, max = 256))]
    pub service_name: Option<String>,
    /// Type of service discovery.
    #[schemars(length(min = 1, max = 256))]
    pub discovery_type: Option<String>,
    /// Settings of that service discovery.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub discovery_args: Option<Value>,
    /// Balancer.
    #[serde(default, rename = "type")]
    pub balance: BalancerType,
    /// Source of the `chash` key.
    #[serde(default)]
    pub hash_on: HashOn,
    /// The variable, field or cookie that `chash` hashes.
    pub key: Option<String>,
    /// The number of further endpoints to try after a failure; absent means all others.
    #[schemars(range(min = 0))]
    pub retries: Option<u32>,
    /// Time from the first attempt after which no retry starts, in seconds; 0 means no bound.
    #[schemars(range(min = 0))]
    pub retry_timeout: Option<f64>,
    /// Timeouts of an attempt.
    pub timeout: Option<TimeoutSpec>,
    /// Protocol of the endpoints.
    #[serde(default)]
    pub scheme: SchemeSpec,
    /// HTTP version of `http` and `https` endpoints; `grpc` and `grpcs` always use 2. Beyond APISIX.
    pub http_version: Option<UpstreamHttpVersion>,
    /// gRPC statuses after which another endpoint is tried, such as 14, if the response carries nothing else;
    /// absent means none. The sent part of a call is buffered for this until the response, up to 64 KiB.
    /// Beyond APISIX.
    #[schemars(inner(range(min = 1, max = 16)))]
    pub grpc_retry_statuses: Option<Vec<u8>>,
    /// Host in requests to endpoints.
    #[serde(default)]
    pub pass_host: PassHostMode,
    /// The host of `pass_host: rewrite`.
    #[schemars(regex(pattern = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$"))]
    pub upstream_host: Option<String>,
    /// Idle connections to the endpoints.
    pub keepalive_pool: Option<KeepalivePool>,
    /// PROXY header with the client address that stream routes send as the first bytes of a connection; UDP
    /// endpoints get none. Beyond APISIX.
    pub proxy_protocol: Option<ProxyProtocolSpec>,
    /// TLS with the endpoints.
    pub tls: Option<UpstreamTlsSpec>,
    /// Slow start: the time in which new or recovered endpoints reach their full share of requests, in
    /// milliseconds; the share grows linearly from a tenth. Not for `chash`, which distributes by key. Beyond
    /// APISIX.
    #[schemars(range(min = 1, max = 3600000))]
    pub slow_start_ms: Option<u64>,
    /// Handling of tunnels and streams, such as WebSockets and UDP sessions, to a removed endpoint; a route
    /// may override it for its tunnels. Beyond APISIX.
    pub on_change: Option<OnChangeSpec>,
    /// Health checks.
    pub checks: Option<HealthCheckSpec>,
    /// Limits on concurrent use of the endpoints. Beyond APISIX.
    pub limits: Option<UpstreamLimitsSpec>,
    /// Ejection of endpoints that fail. Beyond APISIX.
    pub outlier_detection: Option<OutlierDetectionSpec>,
    /// Bound of concurrent retries. Beyond APISIX.
    pub retry_budget: Option<RetryBudgetSpec>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// Handling of a tunnel, such as a WebSocket, when its route or endpoint changes. Requests in flight always
/// complete.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnChangeSpec {
    /// The tunnel stays open.
    #[default]
    Keep,
    /// The tunnel is closed at once.
    Close,
    /// The tunnel is closed after this number of seconds.
    Drain(#[schemars(range(min = 0))] f64),
}

/// Rule that picks an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalancerType {
    /// Weighted round robin.
    #[default]
    Roundrobin,
    /// Consistent hash of a key.
    Chash,
    /// Fewest requests in flight in relation to the weight.
    LeastConn,
    /// Lowest recent latency (EWMA).
    Ewma,
}

/// Source of the `chash` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashOn {
    /// A variable.
    #[default]
    Vars,
    /// A request field.
    Header,
    /// A cookie.
    Cookie,
    /// The consumer's name.
    Consumer,
    /// A text with several `$variables`.
    VarsCombinations,
}

/// Protocol of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemeSpec {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 without TLS.
    Grpc,
    /// HTTP/2 over TLS.
    Grpcs,
    /// Bytes, for stream routes.
    Tcp,
    /// Bytes over TLS, for stream routes.
    Tls,
    /// Datagrams, for stream routes.
    Udp,
    /// Kafka, for publish and subscribe.
    Kafka,
}

impl SchemeSpec {
    /// Whether connections use TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, SchemeSpec::Https | SchemeSpec::Grpcs | SchemeSpec::Tls)
    }

    /// The port of nodes without one; `None` if the scheme has no default port.
    pub fn default_port(self) -> Option<u16> {
        match self {
            SchemeSpec::Http | SchemeSpec::Grpc => Some(80),
            SchemeSpec::Https | SchemeSpec::Grpcs => Some(443),
            SchemeSpec::Kafka => Some(9092),
            SchemeSpec::Tcp | SchemeSpec::Tls | SchemeSpec::Udp => None,
        }
    }
}

/// HTTP version of upstream connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum UpstreamHttpVersion {
    /// HTTP/1.1: one request at a time per connection.
    #[default]
    #[serde(rename = "1.1")]
    V1_1,
    /// HTTP/2: many requests per connection; without TLS with prior knowledge.
    #[serde(rename = "2")]
    V2,
}

/// The version of a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocolSpec {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// Host in requests to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PassHostMode {
    /// The host of the client's request.
    #[default]
    Pass,
    /// The host of the endpoint.
    Node,
    /// `upstream_host`.
    Rewrite,
}

/// Idle connections, per worker and endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeepalivePool {
    /// The most idle connections.
    #[serde(default = "KeepalivePool::size")]
    #[schemars(range(min = 1))]
    pub size: u32,
    /// How long a connection may be idle, in seconds; 0 means no bound.
    #[serde(default = "KeepalivePool::idle_timeout")]
    #[schemars(range(min = 0))]
    pub idle_timeout: f64,
    /// The most requests that one connection carries.
    #[serde(default = "KeepalivePool::requests")]
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl KeepalivePool {
    fn size() -> u32 {
        320
    }

    fn idle_timeout() -> f64 {
        60.0
    }

    fn requests() -> u32 {
        1000
    }
}

impl Default for KeepalivePool {
    fn default() -> Self {
        KeepalivePool { size: Self::size(), idle_timeout: Self::idle_timeout(), requests: Self::requests() }
    }
}

/// TLS with the endpoints.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tls_rules)]
pub struct UpstreamTlsSpec {
    /// Id of the `ssls` resource with the client certificate.
    pub client_cert_id: Option<ResourceId>,
    /// The client certificate, PEM.
    #[schemars(length(min = 128, max = 65536))]
    pub client_cert: Option<String>,
    /// The private key of the client certificate, PEM.
    // An Ed25519 key has 118 characters (RFC 8410 §7).
    #[schemars(length(min = 100, max = 65536))]
    pub client_key: Option<String>,
    /// Whether the endpoint's certificate must be valid for its name.
    #[serde(default)]
    pub verify: bool,
    /// Trust anchors in place of the system's, PEM; each is trusted only within its validity. Beyond APISIX.
    #[schemars(length(min = 128, max = 1048576))]
    pub ca: Option<String>,
    /// The name in SNI and in the endpoint's certificate, instead of the host of requests. Beyond APISIX.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[0-9a-zA-Z-._]+$"))]
    pub server_name: Option<String>,
    /// Names of which the endpoint's certificate must have one, instead of `server_name`. Beyond APISIX.
    #[schemars(length(min = 1, max = 16))]
    pub subject_alt_names: Option<Vec<SanSpec>>,
    /// The most certificates between the endpoint's and a trust anchor. Beyond APISIX.
    #[schemars(range(max = 16))]
    pub verify_depth: Option<u8>,
}

/// A subject alternative name of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SanSpec {
    /// A DNS name; `*.example.com` stands for names with one more label.
    Dns(#[schemars(length(min = 1, max = 253))] String),
    /// A URI, compared as a whole.
    Uri(#[schemars(length(min = 1, max = 2048))] String),
}

fn rules(schema: &mut Schema) {
    schema.insert(
        "oneOf".into(),
        json!([{ "required": ["nodes"] }, { "required": ["service_name", "discovery_type"] }]),
    );
}

fn tls_rules(schema: &mut Schema) {
    let not_by_id = json!({ "not": { "required": ["client_cert_id"] } });
    let mut with_key = not_by_id.clone();
    with_key["required"] = json!(["client_key"]);
    let mut with_cert = not_by_id;
    with_cert["required"] = json!(["client_cert"]);
    schema.insert("dependencies".into(), json!({ "client_cert": with_key, "client_key": with_cert }));
}

/// Applies the rules beyond the schema, and sets ports by scheme.
pub(super) fn settle(upstream: &mut UpstreamSpec) -> Result<(), InvalidSettings> {
    if upstream.pass_host == PassHostMode::Rewrite
        && upstream.upstream_host.as_deref().unwrap_or("").is_empty()
    {
        return Err(InvalidSettings::at(
            "upstream_host",
            "`upstream_host` can't be empty when `pass_host` is `rewrite`",
        ));
    }
    if upstream.balance == BalancerType::Chash {
        if upstream.slow_start_ms.is_some() {
            let message =
                "`slow_start_ms` cannot be used with `type` chash: a key always has the same endpoint";
            return Err(InvalidSettings::at("slow_start_ms", message));
        }
        check_hash_key(upstream)?;
    }
    check_limits(upstream)?;
    upstream.checks.as_ref().map_or(Ok(()), check_probes)?;
    if let Some(nodes) = &mut upstream.nodes {
        // Nodes without a port get the default port of the scheme.
        nodes.settle(upstream.scheme)?;
    }
    Ok(())
}

/// Refuses settings with which every probe would fail or lack a field.
fn check_probes(checks: &HealthCheckSpec) -> Result<(), InvalidSettings> {
    let active = &checks.active;
    if active.timeout <= 0.0 {
        return Err(InvalidSettings::at(
            "checks.active.timeout",
            "`timeout` of a probe must be more than 0 seconds",
        ));
    }
    let no_field = |line: &String| !line.contains(':');
    match active.req_headers.iter().flatten().position(no_field) {
        Some(at) => {
            let path = format!("checks.active.req_headers[{at}]");
            Err(InvalidSettings::at(path, "a header is written `Name: value`"))
        }
        None => Ok(()),
    }
}

/// Refuses `max_connections` with HTTP/2, where each worker needs a connection and one carries many requests,
/// and limits without any bound.
fn check_limits(upstream: &UpstreamSpec) -> Result<(), InvalidSettings> {
    let Some(limits) = &upstream.limits else { return Ok(()) };
    let per_endpoint = limits.per_endpoint.unwrap_or_default();
    let is_http2 = upstream.http_version == Some(UpstreamHttpVersion::V2)
        || matches!(upstream.scheme, SchemeSpec::Grpc | SchemeSpec::Grpcs);
    let refuse = |path: &str| {
        let message = "`max_connections` bounds connections of HTTP/1.1; use `max_requests` with HTTP/2";
        Err(InvalidSettings::at(path, message))
    };
    match (limits.max_connections, per_endpoint.max_connections) {
        (Some(_), _) if is_http2 => refuse("limits.max_connections"),
        (_, Some(_)) if is_http2 => refuse("limits.per_endpoint.max_connections"),
        (None, None) if limits.max_requests.is_none() && per_endpoint.max_requests.is_none() => {
            Err(InvalidSettings::at("limits.per_endpoint", "needs `max_requests` or `max_connections`"))
        }
        _ => Ok(()),
    }
}

fn check_hash_key(upstream: &UpstreamSpec) -> Result<(), InvalidSettings> {
    let pattern = match upstream.hash_on {
        HashOn::Consumer => return Ok(()),
        HashOn::VarsCombinations => None,
        // APISIX's pattern, in which `A-z` also admits a few punctuation marks.
        HashOn::Vars => Some(concat!(
            "^((uri|server_name|server_addr|request_uri|remote_port|remote_addr|query_string|host|hostname",
            "|mqtt_client_id)|arg_[0-9a-zA-z_-]+)$"
        )),
        HashOn::Header | HashOn::Cookie => Some("^[a-zA-Z0-9-_]+$"),
    };
    let Some(key) = &upstream.key else {
        return Err(InvalidSettings::at("key", "missing key"));
    };
    let Some(pattern) = pattern else { return Ok(()) };
    let mut key = Value::String(key.clone());
    schema::validate(&json!({ "type": "string", "pattern": pattern }), &mut key)
        .map_err(|invalid| InvalidSettings::at("key", invalid.message))
}

resource_type!(UpstreamSpec, Kind::Upstreams, settle = settle);
