//! Limits and timeouts of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::problem;

/// Limits on requests and connections of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// The longest request head, in bytes; a longer one gets 431.
    #[schemars(range(min = 1024, max = 65536))]
    pub head_bytes: u32,
    /// The longest request target, in bytes; a longer one gets 414.
    #[schemars(range(min = 64, max = 65536))]
    pub target_bytes: u32,
    /// The most fields of a request; more get 431. The same number, but at least 100, applies to an
    /// upstream's response; one with more becomes a 502.
    #[schemars(range(min = 1, max = 10000))]
    pub fields: u32,
    /// The longest request body, in bytes; a longer one gets 413. 0 means no limit.
    pub body_bytes: u64,
    /// The lowest rate of a request body, in bytes per second over `rate_window_ms`; a slower client gets
    /// 408. 0 means no limit. gRPC calls are exempt.
    pub body_bytes_per_s: u64,
    /// The lowest rate at which a client may receive its response, in bytes per second over `rate_window_ms`,
    /// while data is waiting; a slower client is cut off. 0 means no limit.
    pub answer_bytes_per_s: u64,
    /// The window over which these rates are measured, in milliseconds.
    #[schemars(range(min = 100, max = 3600000))]
    pub rate_window_ms: u64,
    /// The most client connections of one worker; further ones are closed at once. Shortly below the limit,
    /// the worker closes the connections that have been idle longest to make room.
    #[schemars(range(min = 1))]
    pub connections_per_worker: u32,
    /// The most bytes of bodies that one worker buffers for peers that do not receive them: responses for
    /// clients, uploads for endpoints, and both directions of tunnels. Above half of the limit the worker
    /// reads ahead less. Above the limit it resets the requests, then the connections, that have stalled
    /// longest and for at least 5 seconds. 0 means no limit.
    pub backlog_bytes_per_worker: u64,
    /// The most UDP sessions of one worker; datagrams that would begin another one are dropped.
    #[schemars(range(min = 1))]
    pub udp_sessions_per_worker: u32,
    /// The longest response head of an upstream, in bytes; a longer one becomes a 502.
    #[schemars(range(min = 1024, max = 65536))]
    pub response_head_bytes: u32,
    /// The most listeners of the configuration (resources of kind `listeners`); further ones are not opened. Each
    /// needs two file descriptors per worker.
    #[schemars(range(min = 1, max = 65535))]
    pub listeners: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            head_bytes: 65536,
            target_bytes: 8192,
            fields: 100,
            body_bytes: 0,
            body_bytes_per_s: 0,
            answer_bytes_per_s: 0,
            rate_window_ms: 10_000,
            connections_per_worker: 65536,
            backlog_bytes_per_worker: 64 * 1024 * 1024,
            udp_sessions_per_worker: 16384,
            response_head_bytes: 65536,
            listeners: 4096,
        }
    }
}

/// Load shedding: requests beyond these limits get 503 with `Retry-After` before route matching. The admin
/// and status listeners always respond.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadConfig {
    /// The most requests in flight per worker; 0 means no limit.
    pub exchanges_per_worker: u32,
    /// How long a worker may leave events waiting, in milliseconds. While all events wait longer, a growing
    /// share of requests is refused. 0 disables this check.
    #[schemars(range(max = 60000))]
    pub lag_ms: u64,
    /// Path prefixes that both limits exempt, such as the path of a load balancer's health checks;
    /// `memory_bytes` applies to them too.
    pub spared_paths: Vec<String>,
    /// While the process uses more than this number of bytes of memory, all requests are refused; 0 means no
    /// limit.
    pub memory_bytes: u64,
}

impl OverloadConfig {
    /// Checks the rules that the schema cannot express.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for (i, path) in self.spared_paths.iter().enumerate() {
            // A prefix without a slash would exempt no path or, if empty, all of them.
            if !path.starts_with('/') {
                let found = format!("\"{path}\" is not a path: it must start with /");
                problems
                    .push(problem(&format!("overload.spared_paths[{i}]"), found).hint("such as /healthz"));
            }
        }
    }
}

/// Derivation of the client address from a field that a proxy in front of this node sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealIpConfig {
    /// The trusted proxies: addresses and networks. Empty means none.
    pub from: Vec<String>,
    /// The variable with the address, such as `http_x_real_ip`; of the lists `http_x_forwarded_for` and
    /// `http_forwarded` the last address counts.
    #[schemars(length(min = 1))]
    pub source: String,
    /// Whether trusted addresses at the end of a list are skipped.
    pub recursive: bool,
}

impl Default for RealIpConfig {
    fn default() -> Self {
        RealIpConfig { from: Vec::new(), source: "http_x_real_ip".to_owned(), recursive: false }
    }
}

/// Timeouts, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutConfig {
    /// For a whole request head, from its first byte.
    #[schemars(range(min = 1))]
    pub head_ms: u64,
    /// Between two reads of a request body. gRPC calls, which may pause between messages, have the read
    /// timeout of their route or upstream instead.
    #[schemars(range(min = 1))]
    pub body_ms: u64,
    /// Between two requests of one connection.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// For an endpoint's next bytes after the client has closed its side of an HTTP/1 connection, as a client
    /// that aborts does too. 0 applies the usual timeouts.
    pub half_closed_ms: u64,
    /// For a client to receive sent data.
    #[schemars(range(min = 1))]
    pub send_ms: u64,
    /// Between two reads of a TCP stream in either direction, unless its upstream sets it.
    #[schemars(range(min = 1))]
    pub stream_idle_ms: u64,
    /// The maximum of the same once one side has ended a TCP stream, a WebSocket or another tunnel, since
    /// that peer may no longer exist. 0 sets no such maximum.
    pub stream_half_closed_ms: u64,
    /// Between two datagrams of a session, unless its upstream sets it.
    #[schemars(range(min = 1))]
    pub udp_idle_ms: u64,
    /// For exchanges in flight when the node stops.
    pub drain_ms: u64,
    /// To connect to an endpoint, unless the route or the upstream sets it.
    #[schemars(range(min = 1))]
    pub upstream_connect_ms: u64,
    /// Between two sends to an endpoint, unless the route or the upstream sets it.
    #[schemars(range(min = 1))]
    pub upstream_send_ms: u64,
    /// Between two reads from an endpoint, unless the route or the upstream sets it.
    #[schemars(range(min = 1))]
    pub upstream_read_ms: u64,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        TimeoutConfig {
            head_ms: 60_000,
            body_ms: 60_000,
            idle_ms: 60_000,
            half_closed_ms: 1000,
            send_ms: 60_000,
            stream_idle_ms: 600_000,
            stream_half_closed_ms: 60_000,
            udp_idle_ms: 60_000,
            drain_ms: 30_000,
            upstream_connect_ms: 60_000,
            upstream_send_ms: 60_000,
            upstream_read_ms: 60_000,
        }
    }
}

/// Idle connections of upstreams without `keepalive_pool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamKeepaliveConfig {
    /// The most idle connections per worker and upstream; 0 keeps none.
    pub size: u32,
    /// How long an idle connection is kept, in milliseconds.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// The most requests that one connection carries.
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl Default for UpstreamKeepaliveConfig {
    fn default() -> Self {
        UpstreamKeepaliveConfig { size: 320, idle_ms: 60_000, requests: 1000 }
    }
}

/// Limits of an HTTP/2 connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2Config {
    /// Whether clients may use HTTP/2: over TLS by ALPN, otherwise with prior knowledge.
    pub enabled: bool,
    /// The most streams that a client may have open at once; further ones are refused.
    #[schemars(range(min = 1, max = 100000))]
    pub streams: u32,
    /// Flow control window of a stream: bytes that a peer may send before any of them are forwarded.
    #[schemars(range(min = 65535, max = 16777216))]
    pub stream_window_bytes: u32,
    /// Flow control window of a client connection: bytes that a client may send on all streams before any of
    /// them are forwarded. Up to this number of bytes is buffered per connection for endpoints that do not
    /// receive bodies, and about half as much again if bodies arrive in small fragments. Below `streams`
    /// times `stream_window_bytes`, such bodies block all other bodies of their connection.
    #[schemars(range(min = 65535, max = 1073741824))]
    pub connection_window_bytes: u32,
    /// The same for an endpoint's connection, which carries the responses for many clients.
    #[schemars(range(min = 65535, max = 1073741824))]
    pub upstream_window_bytes: u32,
    /// Control frames that a peer may send at once without moving data, such as PING and SETTINGS; a frame
    /// that cancels a request counts as six. More close the connection. Requests, bodies and time restore the
    /// budget, and each message in either direction pays for three PING or WINDOW_UPDATE frames.
    #[schemars(range(min = 100, max = 1000000))]
    pub control_frames: u32,
}

impl Default for Http2Config {
    fn default() -> Self {
        Http2Config {
            enabled: true,
            streams: 128,
            stream_window_bytes: 65536,
            connection_window_bytes: 8_388_608,
            upstream_window_bytes: 8_388_608,
            control_frames: 2000,
        }
    }
}

/// Limits of an HTTP/3 connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http3Config {
    /// Whether a returning client may send requests in its first flight (0-RTT). Only safe requests, such as
    /// GET, are then served at once, with `Early-Data: 1` towards the endpoint; all others wait for the
    /// handshake. Until then the client's address is not verified. Needs `tls.session_entries`.
    pub early_data: bool,
    /// The most streams that a client may have open at once; the client waits before it opens more.
    #[schemars(range(min = 1, max = 100000))]
    pub streams: u32,
    /// Flow control window of a stream: bytes that a client may send before any of them are forwarded.
    #[schemars(range(min = 16384, max = 16777216))]
    pub stream_window_bytes: u32,
    /// Flow control window of a connection: bytes that a client may send on all streams before any of them
    /// are forwarded. Up to this number of bytes is buffered per connection for endpoints that do not receive
    /// bodies. Below `streams` times `stream_window_bytes`, such bodies block all other bodies of their
    /// connection.
    #[schemars(range(min = 16384, max = 1073741824))]
    pub connection_window_bytes: u32,
    /// How long clients may remember that this node serves HTTP/3, in seconds; 0 advertises nothing.
    #[schemars(range(max = 31536000))]
    pub alt_svc_max_age_s: u32,
    /// The UDP port in `Alt-Svc` if it is not the listener's, as behind a load balancer; 0 means the
    /// listener's.
    pub advertised_port: u16,
}

impl Default for Http3Config {
    fn default() -> Self {
        Http3Config {
            early_data: false,
            streams: 128,
            stream_window_bytes: 65536,
            connection_window_bytes: 8_388_608,
            alt_svc_max_age_s: 86400,
            advertised_port: 0,
        }
    }
}

/// Route matching.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouterConfig {
    /// Whether `:name` in a path matches any one segment.
    pub path_parameters: bool,
    /// The treatment of `.` and `..` segments in every spelling (`%2e`, `..;x`, and next to `%2F` or a
    /// backslash): `resolve` removes them before routing and forwarding, `refuse` responds with 400,
    /// `as_received` routes the resolved path and forwards the received one, so that the upstream may serve
    /// another path than the route guards.
    pub dot_segments: DotSegments,
    /// The treatment of `%2F`: `keep` matches it as part of its segment, `separate` as a slash, `refuse`
    /// responds with 400, also to `%5C`. It is forwarded as received. `auto` is `separate` on a node that serves
    /// Ingresses of Kubernetes, as ingress-nginx matches it, and `keep` on others.
    pub encoded_slashes: EncodedSlashes,
    /// Whether TRACE requests are routed. Otherwise the response is 405.
    pub trace_requests: bool,
    /// Whether the memory of large tables is collapsed into huge pages after each growth by a quarter, by a scan of
    /// `/proc/self/maps` on a thread of the lowest priority. Measured with 10 000 routes: 3 % less time per request.
    pub huge_pages: bool,
}

impl Default for RouterConfig {
    fn default() -> Self {
        RouterConfig {
            path_parameters: true,
            dot_segments: DotSegments::Resolve,
            encoded_slashes: EncodedSlashes::Auto,
            trace_requests: false,
            huge_pages: false,
        }
    }
}

/// The treatment of dot segments in request paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DotSegments {
    /// They are removed before routing and forwarding.
    Resolve,
    /// The response is 400.
    Refuse,
    /// The resolved path is routed, the received one forwarded.
    AsReceived,
}

/// The treatment of encoded slashes in request paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlashes {
    /// Separating where Ingresses of Kubernetes are served, kept elsewhere.
    Auto,
    /// They are part of their segment.
    Keep,
    /// They separate segments.
    Separate,
    /// The response is 400.
    Refuse,
}

/// Resolution of endpoints' host names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Resolvers, such as `10.0.0.2:53`; empty means those of the system.
    pub servers: Vec<String>,
    /// How long an answer is cached at least, in milliseconds, even if its time to live is shorter.
    pub ttl_min_ms: u64,
    /// How long an answer is cached at most, in milliseconds.
    pub ttl_max_ms: u64,
    /// Interval between queries for names without a time to live, as the system's resolver returns them, in
    /// milliseconds.
    #[schemars(range(min = 100))]
    pub refresh_ms: u64,
    /// Timeout of a query, in milliseconds.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
}

impl Default for DnsConfig {
    fn default() -> Self {
        DnsConfig {
            servers: Vec::new(),
            ttl_min_ms: 1000,
            ttl_max_ms: 300_000,
            refresh_ms: 10_000,
            timeout_ms: 5000,
        }
    }
}
