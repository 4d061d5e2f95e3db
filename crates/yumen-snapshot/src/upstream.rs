//! Upstreams, their endpoints and what is remembered of both across snapshots.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use yumen_http::proxy_protocol::ProxyVersion;

use crate::balance::{Balancer, SlowStart};
use crate::protection::{EndpointCounts, UpstreamProtection};
use crate::snapshot::{TunnelPolicy, UpstreamSlotId};

mod tried;

pub use tried::TriedEndpoints;

/// The protocol spoken to endpoints.
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
    /// Whether endpoints are spoken to in TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, UpstreamScheme::Https | UpstreamScheme::Grpcs | UpstreamScheme::Tls)
    }

    /// Its name, as `scheme` of an upstream says it.
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

/// Which `Host` endpoints see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostRewrite {
    /// The client's.
    #[default]
    Pass,
    /// The endpoint's own, as written in its node.
    Node,
    /// This one.
    Rewrite(Box<str>),
}

/// Bounds of one attempt, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTimeouts {
    /// To establish a connection.
    pub connect_ms: u64,
    /// Between two successful writes to the endpoint.
    pub send_ms: u64,
    /// Between two successful reads from the endpoint.
    pub read_ms: u64,
    /// For the exchange as a whole; 0 is none.
    pub total_ms: u64,
}

/// Bounds of the connections kept open to one endpoint by one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveLimits {
    /// How many may idle.
    pub size: u32,
    /// How long one may idle, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How many requests one may carry.
    pub requests: u64,
}

/// How TLS to the endpoints is done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// Whether the endpoint's certificate must be valid for its name.
    pub verify: bool,
    /// Trusted roots in PEM instead of the system's.
    pub ca_pem: Option<Box<str>>,
    /// Certificate chain and key in PEM to show to the endpoint.
    pub client: Option<(Box<str>, Box<str>)>,
}

/// Whether an endpoint answers, as its checker and passive observation see it. One per endpoint and
/// check settings, kept across snapshots.
#[derive(Debug)]
pub struct EndpointHealth {
    up: AtomicBool,
    /// What its checker saw.
    pub active: HealthCounts,
    /// What traffic saw. Apart from the checker's, so that traffic that succeeds does not hide an
    /// endpoint that asks to be left alone, nor a good health page one that fails its requests.
    pub passive: HealthCounts,
}

/// Observations in a row since the last change of state.
#[derive(Debug, Default)]
pub struct HealthCounts {
    /// Answers with a healthy status.
    pub successes: AtomicU32,
    /// Answers with an unhealthy status.
    pub http_failures: AtomicU32,
    /// Connections that failed.
    pub tcp_failures: AtomicU32,
    /// Attempts that took too long.
    pub timeouts: AtomicU32,
}

impl Default for EndpointHealth {
    fn default() -> Self {
        EndpointHealth::new(true)
    }
}

impl EndpointHealth {
    /// What is known of an endpoint before any observation.
    pub fn new(is_up: bool) -> EndpointHealth {
        EndpointHealth {
            up: AtomicBool::new(is_up),
            active: HealthCounts::default(),
            passive: HealthCounts::default(),
        }
    }

    /// Whether requests should go there.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Notes what a checker or an observation concluded; says whether that is news.
    pub fn set(&self, up: bool) -> bool {
        self.up.swap(up, Relaxed) != up
    }
}

/// What is remembered of one endpoint across snapshots, shared by all workers.
#[derive(Debug)]
pub struct EndpointState {
    /// Unique in this process and never used again: pools are found by it.
    pub id: u64,
    /// Exchanges under way, kept for balancers that ask.
    pub active: AtomicU32,
    /// Peak-sensitive moving average of response time, in microseconds.
    pub ewma_us: AtomicU64,
    /// When the average was last touched, in microseconds of the monotonic clock.
    pub ewma_at_us: AtomicU64,
    /// How many upstreams of the newest configuration name it.
    named_by: AtomicU32,
    has_departed: AtomicBool,
}

impl EndpointState {
    /// The state of an endpoint nobody has asked yet.
    pub fn new() -> EndpointState {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        EndpointState {
            id: NEXT.fetch_add(1, Relaxed),
            active: AtomicU32::new(0),
            ewma_us: AtomicU64::new(0),
            ewma_at_us: AtomicU64::new(0),
            named_by: AtomicU32::new(0),
            has_departed: AtomicBool::new(false),
        }
    }

    /// Whether the newest configuration knows it no more: its idle connections are of no use.
    pub fn has_departed(&self) -> bool {
        self.has_departed.load(Relaxed)
    }

    /// Notes that an upstream in force names it; each is followed by one [`EndpointState::released`].
    pub(crate) fn named(&self) {
        self.named_by.fetch_add(1, Relaxed);
        self.has_departed.store(false, Relaxed);
    }

    /// Notes that an upstream names it no more.
    pub(crate) fn released(&self) {
        if self.named_by.fetch_sub(1, Relaxed) == 1 {
            self.has_departed.store(true, Relaxed);
        }
    }
}

impl Default for EndpointState {
    fn default() -> Self {
        EndpointState::new()
    }
}

/// One address of an upstream.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where it is.
    pub addr: SocketAddr,
    /// Host and, unless it is the scheme's own, port as its node writes them.
    pub authority: Box<str>,
    /// The host as its node writes it, for TLS.
    pub host: Box<str>,
    /// Share of the requests; 0 gets none.
    pub weight: u32,
    /// Higher groups are used first.
    pub priority: i32,
    /// What is remembered of it.
    pub state: Arc<EndpointState>,
    /// Its health, where the upstream has checks.
    pub health: Option<Arc<EndpointHealth>>,
    /// What is counted of it, where the upstream leaves out those that fail.
    pub outlier: Option<Arc<EndpointCounts>>,
}

/// How active checks ask an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProbeKind {
    /// A connection that can be established is enough.
    Tcp,
    /// A GET is answered with a healthy status.
    Http { path: Box<str>, host: Option<Box<str>>, fields: Box<[(Box<str>, Box<str>)]> },
    /// gRPC's health service says that the service, or the whole server, serves. Over TLS where `verify` says
    /// how: serving counts as status 200, anything else as 503.
    Grpc { host: Option<Box<str>>, service: Box<str>, verify: Option<bool> },
    /// The same over TLS.
    Https { path: Box<str>, host: Option<Box<str>>, fields: Box<[(Box<str>, Box<str>)]>, verify: bool },
}

/// Active checks: asked by the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveChecks {
    /// How.
    pub probe: ProbeKind,
    /// Port to ask instead of the endpoint's.
    pub port: Option<u16>,
    /// With which PROXY header a probe of the endpoint's own port begins, as all its connections do.
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

/// Passive checks: conclusions from traffic.
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
    /// Passive checks, which need active ones to bring an endpoint back.
    pub passive: Option<PassiveChecks>,
}

/// A compiled upstream.
#[derive(Debug)]
pub struct Upstream {
    /// Where it is written, as `upstreams/1`, `routes/1` or `services/1`.
    pub origin: Arc<str>,
    /// Where the snapshots have it.
    pub slot: UpstreamSlotId,
    /// The protocol spoken to endpoints.
    pub scheme: UpstreamScheme,
    /// Whether that is over HTTP/2.
    pub http2: bool,
    /// Statuses of gRPC calls after which another endpoint is tried.
    pub grpc_retry_statuses: Box<[u8]>,
    /// Its endpoints, in the order written, resolved.
    pub endpoints: Box<[Endpoint]>,
    /// Host names among its nodes that have no address yet, and its service where nothing is known of it.
    pub unresolved: Box<[Box<str>]>,
    /// Which `Host` they see.
    pub pass_host: HostRewrite,
    /// How many more endpoints may be tried after the first.
    pub retries: u32,
    /// Bound of all attempts together, in milliseconds; 0 is none.
    pub retry_timeout_ms: u64,
    /// Bounds of one attempt.
    pub timeouts: AttemptTimeouts,
    /// How long a stream may be silent, in milliseconds; `None` leaves it to the node.
    pub stream_idle_ms: Option<u64>,
    /// What streams tell endpoints of the client before anything else.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Bounds of idle connections.
    pub keepalive: KeepaliveLimits,
    /// How TLS is done; kept as the same `Arc` while its settings are.
    pub tls: Arc<UpstreamTls>,
    /// Active and passive checks.
    pub checks: Option<Arc<HealthChecks>>,
    /// What keeps it from being asked too much.
    pub protection: Option<Box<UpstreamProtection>>,
    /// How requests are spread.
    pub balancer: Balancer,
    /// What becomes of tunnels whose endpoint is taken out.
    pub on_change: TunnelPolicy,
    /// How new endpoints come into use, where they shall do so slowly.
    pub slow_start: Option<Box<SlowStart>>,
    /// A place for the proxy to keep what it derives from `tls` once.
    pub tls_cache: std::sync::OnceLock<Arc<dyn Any + Send + Sync>>,
}
