//! Compiled upstreams: settings, and the selection of an endpoint for an attempt.

mod admission;
mod selection;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use yumen_http::proxy_protocol::ProxyVersion;

use crate::balance::{Balancer, SlowStart};
use crate::protection::UpstreamProtection;

pub use crate::endpoint::{Endpoint, EndpointHealth, EndpointState, HealthCounts, TriedEndpoints};
pub use admission::AdmittedRequest;
pub use selection::InFlight;

/// The position of an upstream in a snapshot. Routes name an upstream by its slot, so a change of endpoints changes no
/// route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamSlotId(pub u32);

/// The effect of a configuration change on tunnels that depend on the changed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TunnelPolicy {
    /// Tunnels stay open.
    #[default]
    Keep,
    /// Tunnels close after this time, in milliseconds.
    EndAfter(u64),
}

impl TunnelPolicy {
    /// The time until tunnels close, in milliseconds; `None` if they stay open.
    pub fn grace_ms(self) -> Option<u64> {
        match self {
            TunnelPolicy::Keep => None,
            TunnelPolicy::EndAfter(ms) => Some(ms),
        }
    }
}

/// The protocol of connections to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum UpstreamScheme {
    #[default]
    Http,
    Https,
    Grpc,
    Grpcs,
    Tcp,
    Tls,
    Udp,
}

impl UpstreamScheme {
    /// Whether connections to endpoints use TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, UpstreamScheme::Https | UpstreamScheme::Grpcs | UpstreamScheme::Tls)
    }

    /// The value of `scheme` in an upstream.
    pub fn name(self) -> &'static str {
        match self {
            UpstreamScheme::Http => "http",
            UpstreamScheme::Https => "https",
            UpstreamScheme::Grpc => "grpc",
            UpstreamScheme::Grpcs => "grpcs",
            UpstreamScheme::Tcp => "tcp",
            UpstreamScheme::Tls => "tls",
            UpstreamScheme::Udp => "udp",
        }
    }
}

/// The `Host` of requests to endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostRewrite {
    /// The `Host` of the client's request.
    #[default]
    Pass,
    /// The host of the endpoint, as written in its node.
    Node,
    /// A fixed host.
    Rewrite(Box<str>),
}

/// Bounds of one attempt, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTimeouts {
    /// Establishment of a connection.
    pub connect_ms: u64,
    /// Time between two successful writes to the endpoint.
    pub send_ms: u64,
    /// Time between two successful reads from the endpoint.
    pub read_ms: u64,
    /// The whole exchange; 0 disables the bound.
    pub total_ms: u64,
    /// One attempt, up to the end of its response; 0 disables the bound.
    pub attempt_ms: u64,
}

/// Bounds of the idle connections of one worker to one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveLimits {
    /// The most idle connections.
    pub size: u32,
    /// The longest idle time of a connection, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The most requests over one connection.
    pub requests: u64,
}

/// TLS settings of connections to endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// Whether the endpoint's certificate must be valid for its name.
    pub verify: bool,
    /// Trust anchors, PEM; absent means those of the system.
    pub ca_pem: Option<Box<str>>,
    /// The gateway's certificate chain and key, PEM.
    pub client: Option<(Box<str>, Box<str>)>,
    /// The name in SNI, and in the endpoint's certificate if `names` is empty; absent means the host of the request or
    /// the endpoint.
    pub server_name: Option<Box<str>>,
    /// Names of which the endpoint's certificate must have one, instead of the name in SNI.
    pub names: Box<[EndpointName]>,
    /// The most certificates between the endpoint's and a trust anchor.
    pub depth_max: Option<u8>,
}

/// The server that requests reach through a forward proxy: by CONNECT over TLS, else by a target in absolute form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UpstreamTunnel {
    /// Host and port of the server.
    pub authority: Box<str>,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<Box<str>>,
}

impl std::fmt::Debug for UpstreamTunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The authorization must not appear in logs.
        f.debug_struct("UpstreamTunnel").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A subject alternative name that an endpoint's certificate may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndpointName {
    /// A DNS name in lower case; `*.example.com` stands for names with one more label.
    Dns(Box<str>),
    /// A URI.
    Uri(Box<str>),
}

/// The request of an active check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProbeKind {
    /// The check succeeds when the connection is established.
    Tcp,
    /// The check succeeds when the response to a request has a healthy status.
    Http { path: Box<str>, host: Option<Box<str>>, fields: Box<[(Box<str>, Box<str>)]> },
    /// The check calls the health service of gRPC for the service, or for the server if the name is empty. `SERVING`
    /// counts as status 200, any other result as 503. TLS is used if `verify` is set.
    Grpc { host: Option<Box<str>>, service: Box<str>, verify: Option<bool> },
    /// As `Http`, over TLS.
    Https { path: Box<str>, host: Option<Box<str>>, fields: Box<[(Box<str>, Box<str>)]>, verify: bool },
}

/// Method and body of HTTP probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeMessage {
    /// The method.
    pub method: &'static str,
    /// The body; empty means none.
    pub body: Box<str>,
}

impl Default for ProbeMessage {
    fn default() -> Self {
        ProbeMessage { method: "GET", body: Box::default() }
    }
}

/// Settings of active checks, which the gateway sends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveChecks {
    /// The request.
    pub probe: ProbeKind,
    /// Method and body of the request, if it is HTTP.
    pub message: ProbeMessage,
    /// The port of checks instead of the endpoint's.
    pub port: Option<u16>,
    /// The PROXY header of checks to the endpoint's own port, where streams begin with one.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Bound of one probe, in milliseconds.
    pub timeout_ms: u64,
    /// Pause between probes of a healthy endpoint, in milliseconds.
    pub healthy_interval_ms: u64,
    /// Statuses that count as success.
    pub healthy_statuses: Box<[u16]>,
    /// Successes in a row that make an endpoint healthy.
    pub successes: u32,
    /// Pause between probes of an unhealthy endpoint, in milliseconds.
    pub unhealthy_interval_ms: u64,
    /// Statuses that count as failure.
    pub unhealthy_statuses: Box<[u16]>,
    /// Failures in a row of each kind that make an endpoint unhealthy; 0 never does.
    pub http_failures: u32,
    /// See `http_failures`.
    pub tcp_failures: u32,
    /// See `http_failures`.
    pub timeouts: u32,
}

/// Settings of passive checks, which observe traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassiveChecks {
    /// Statuses that count as success.
    pub healthy_statuses: Box<[u16]>,
    /// Successes in a row that make an endpoint healthy; 0 never does.
    pub successes: u32,
    /// Statuses that count as failure.
    pub unhealthy_statuses: Box<[u16]>,
    /// Failures in a row of each kind that make an endpoint unhealthy; 0 never does.
    pub http_failures: u32,
    /// See `http_failures`.
    pub tcp_failures: u32,
    /// See `http_failures`.
    pub timeouts: u32,
}

/// The checks of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// Active checks.
    pub active: ActiveChecks,
    /// Passive checks. They only mark endpoints as down; active checks bring them back.
    pub passive: Option<PassiveChecks>,
}

/// The protocol of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamProtocol {
    /// The scheme.
    pub scheme: UpstreamScheme,
    /// Whether requests go over HTTP/2.
    pub http2: bool,
    /// The server behind the endpoints, which are proxies then.
    pub tunnel: Option<Arc<UpstreamTunnel>>,
}

/// Retries of an attempt at another endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most retries, that is, attempts after the first one.
    pub retries_max: u32,
    /// Time after which no retry starts, in milliseconds since the first attempt; 0 disables the bound.
    pub timeout_ms: u64,
    /// Statuses of gRPC calls that are retried.
    pub grpc_statuses: Box<[u8]>,
}

/// Settings of L4 streams to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpstreamStreamSettings {
    /// The longest silence of a stream, in milliseconds; absent means the node's setting.
    pub idle_ms: Option<u64>,
    /// The PROXY header at the beginning of a stream.
    pub proxy_protocol: Option<ProxyVersion>,
}

/// The selection of an endpoint for an attempt.
#[derive(Debug)]
pub struct EndpointSelection {
    /// The load balancing policy.
    pub balancer: Balancer,
    /// The slow start of new endpoints.
    pub slow_start: Option<Box<SlowStart>>,
}

/// TLS of connections to endpoints.
#[derive(Debug, Default)]
pub struct EndpointTls {
    /// The settings. Equal settings share one `Arc`.
    pub settings: Arc<UpstreamTls>,
    /// The client configuration that the proxy derives from the settings, built at the first connection.
    pub client: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// A compiled upstream.
#[derive(Debug)]
pub struct Upstream {
    /// The object with the upstream, such as `upstreams/1`, `routes/1` or `services/1`.
    pub origin: Arc<str>,
    /// The position in the snapshot.
    pub slot: UpstreamSlotId,
    /// The protocol.
    pub protocol: UpstreamProtocol,
    /// The resolved endpoints, in the order written.
    pub endpoints: Box<[Endpoint]>,
    /// Host names without addresses, and the service if no nodes of it are known.
    pub unresolved: Box<[Box<str>]>,
    /// The selection of an endpoint.
    pub selection: EndpointSelection,
    /// The `Host` of requests.
    pub pass_host: HostRewrite,
    /// Bounds of one attempt.
    pub timeouts: AttemptTimeouts,
    /// Retries.
    pub retry: RetryPolicy,
    /// Bounds of idle connections.
    pub keepalive: KeepaliveLimits,
    /// TLS.
    pub tls: EndpointTls,
    /// Settings of L4 streams.
    pub streams: UpstreamStreamSettings,
    /// Active and passive checks.
    pub checks: Option<Arc<HealthChecks>>,
    /// Limits, outlier detection and retry budget.
    pub protection: Option<Box<UpstreamProtection>>,
    /// The effect on tunnels when their endpoint is removed.
    pub on_change: TunnelPolicy,
}
