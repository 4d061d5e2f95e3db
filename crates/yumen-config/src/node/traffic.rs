//! Limits and timeouts of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::problem;

/// How much one client may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// The longest request head, in bytes; a longer one is answered 431.
    #[schemars(range(min = 1024, max = 65536))]
    pub head_bytes: u32,
    /// The longest request target, in bytes; a longer one is answered 414.
    #[schemars(range(min = 64, max = 65536))]
    pub target_bytes: u32,
    /// The most fields of a request; more are answered 431. An upstream's answer may have as many and 100 in any
    /// case; one with more becomes a 502.
    #[schemars(range(min = 1, max = 10000))]
    pub fields: u32,
    /// The longest request body, in bytes; a longer one is answered 413. 0 means no limit.
    pub body_bytes: u64,
    /// The slowest a client may send a request body, in bytes a second over `rate_window_ms`; a slower one is
    /// answered 408. 0 means no limit. Calls of gRPC are let off.
    pub body_bytes_per_s: u64,
    /// The slowest a client may take its answer, in bytes a second over `rate_window_ms`, while there is
    /// something to take; a slower one is cut off. 0 means no limit.
    pub answer_bytes_per_s: u64,
    /// Over what time these rates are measured, in milliseconds.
    #[schemars(range(min = 100, max = 3600000))]
    pub rate_window_ms: u64,
    /// The most client connections of one worker; more are closed at once. Shortly before, those that have waited
    /// longest for their next request are closed, so that there is room for new ones.
    #[schemars(range(min = 1))]
    pub connections_per_worker: u32,
    /// The most bytes of bodies that one worker holds for peers that do not take them: answers that clients do not read,
    /// uploads that endpoints do not take, and both ways of tunnels. Above half of it the worker reads ahead less. Above
    /// it the worker resets the requests, then the connections, that have stalled longest, 5 seconds at least. 0 means no
    /// limit.
    pub backlog_bytes_per_worker: u64,
    /// The most sessions of datagrams of one worker; datagrams that would begin more are dropped.
    #[schemars(range(min = 1))]
    pub udp_sessions_per_worker: u32,
    /// The longest response head an upstream may send, in bytes; a longer one is answered 502.
    #[schemars(range(min = 1024, max = 65536))]
    pub response_head_bytes: u32,
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
        }
    }
}

/// When the node takes no more: requests beyond are answered 503 with `Retry-After`, before any route is looked
/// for. The admin and status listeners always answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadConfig {
    /// The most requests of one worker under way; 0 means no limit.
    pub exchanges_per_worker: u32,
    /// How long a worker may keep events waiting, in milliseconds. While all wait longer than that, a growing
    /// share of requests is refused. 0 does not look.
    #[schemars(range(max = 60000))]
    pub lag_ms: u64,
    /// Paths that begin with one of these are served in spite of both, such as those a load balancer asks for
    /// health; but not beyond `memory_bytes`.
    pub spared_paths: Vec<String>,
    /// While the process holds more memory than so many bytes, all requests are refused; 0 means no limit.
    pub memory_bytes: u64,
}

impl OverloadConfig {
    /// What a schema cannot say.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for (i, path) in self.spared_paths.iter().enumerate() {
            // The beginning of every path would be spared, or of none.
            if !path.starts_with('/') {
                let found = format!("\"{path}\" is not a path: it must start with /");
                problems
                    .push(problem(&format!("overload.spared_paths[{i}]"), found).hint("such as /healthz"));
            }
        }
    }
}

/// Where a proxy before this node tells the client's address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RealIpConfig {
    /// The proxies that are believed: addresses and networks. None means nobody is.
    pub from: Vec<String>,
    /// The variable that holds the address, such as `http_x_real_ip`; of the lists `http_x_forwarded_for` and
    /// `http_forwarded` the last address counts.
    #[schemars(length(min = 1))]
    pub source: String,
    /// Whether believed addresses at the end of a list are stepped over.
    pub recursive: bool,
}

impl Default for RealIpConfig {
    fn default() -> Self {
        RealIpConfig { from: Vec::new(), source: "http_x_real_ip".to_owned(), recursive: false }
    }
}

/// How long to wait, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutConfig {
    /// For a whole request head, from its first byte.
    #[schemars(range(min = 1))]
    pub head_ms: u64,
    /// Between two pieces of a request body. For calls of gRPC, which may pause between messages, the read time-out
    /// of their route or upstream holds instead.
    #[schemars(range(min = 1))]
    pub body_ms: u64,
    /// Between two requests of one connection.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// For an endpoint's next bytes, where the client has closed its side of an HTTP/1 connection: whoever leaves does
    /// that, too. 0 waits as for any other client.
    pub half_closed_ms: u64,
    /// For a client to take what was sent.
    #[schemars(range(min = 1))]
    pub send_ms: u64,
    /// Between two pieces of a TCP stream in either direction, where its upstream does not say.
    #[schemars(range(min = 1))]
    pub stream_idle_ms: u64,
    /// The same once one side has ended a TCP stream, a WebSocket or another tunnel, at most: it may be gone for good. 0
    /// is as long as before.
    pub stream_half_closed_ms: u64,
    /// Between two datagrams of a session, where its upstream does not say.
    #[schemars(range(min = 1))]
    pub udp_idle_ms: u64,
    /// For running exchanges when the node stops.
    pub drain_ms: u64,
    /// To connect to an endpoint, where neither route nor upstream says.
    #[schemars(range(min = 1))]
    pub upstream_connect_ms: u64,
    /// Between two sends to an endpoint, where neither route nor upstream says.
    #[schemars(range(min = 1))]
    pub upstream_send_ms: u64,
    /// Between two reads from an endpoint, where neither route nor upstream says.
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

/// Idle connections to upstreams that set no `keepalive_pool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamKeepaliveConfig {
    /// The most kept per worker and upstream; 0 keeps none.
    pub size: u32,
    /// How long one is kept, in milliseconds.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// How many requests one carries at most.
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl Default for UpstreamKeepaliveConfig {
    fn default() -> Self {
        UpstreamKeepaliveConfig { size: 320, idle_ms: 60_000, requests: 1000 }
    }
}

/// What one connection of HTTP/2 may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2Config {
    /// Whether clients may speak it: over TLS as they settle it, else if they begin with it.
    pub enabled: bool,
    /// The most streams a client has open at once; more are refused.
    #[schemars(range(min = 1, max = 100000))]
    pub streams: u32,
    /// How much a peer sends on one stream before any of it was passed on, in bytes.
    #[schemars(range(min = 65535, max = 16777216))]
    pub stream_window_bytes: u32,
    /// How much a client sends on all streams of a connection before any of it was passed on, in bytes. Bodies that
    /// endpoints do not take are kept up to here for each connection: about half as much again where they come in
    /// crumbs. Below `streams` times `stream_window_bytes`, such bodies hold up all others of their connection.
    #[schemars(range(min = 65535, max = 1073741824))]
    pub connection_window_bytes: u32,
    /// The same for an endpoint, whose connection carries the answers to many clients.
    #[schemars(range(min = 65535, max = 1073741824))]
    pub upstream_window_bytes: u32,
    /// How many control frames a peer sends at once that move no data, such as pings and settings; one that
    /// takes a request back counts as six. More end the connection. Requests, bodies and time give some back, and
    /// each message, either way, pays for three pings or window updates.
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

/// What one connection of HTTP/3 may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http3Config {
    /// Whether a client that comes back may ask in its first flight (0-RTT). Only what changes nothing, such as
    /// GET, is then served at once, with `Early-Data: 1` towards the endpoint; all else waits for the handshake.
    /// Until then nothing proves that the client is where its address says. Needs `tls.session_entries`.
    pub early_data: bool,
    /// The most streams a client has open at once; it waits with more.
    #[schemars(range(min = 1, max = 100000))]
    pub streams: u32,
    /// How much a client sends on one stream before any of it was passed on, in bytes.
    #[schemars(range(min = 16384, max = 16777216))]
    pub stream_window_bytes: u32,
    /// How much a client sends on all streams of a connection before any of it was passed on, in bytes. Bodies that
    /// endpoints do not take are kept up to here for each connection. Below `streams` times `stream_window_bytes`,
    /// such bodies hold up all others of their connection.
    #[schemars(range(min = 16384, max = 1073741824))]
    pub connection_window_bytes: u32,
    /// How long a client may remember that HTTP/3 is spoken here, in seconds; 0 tells it nothing.
    #[schemars(range(max = 31536000))]
    pub alt_svc_max_age_s: u32,
    /// The UDP port clients are told, where it is not the listener's, as behind a load balancer; 0 is the
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

/// How routes are matched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouterConfig {
    /// Whether `:name` in a path matches any one segment.
    pub path_parameters: bool,
    /// The treatment of `.` and `..` segments in every spelling (`%2e`, `..;x`, and next to `%2F` or a backslash):
    /// `resolve` removes them before routing and forwarding, `refuse` answers 400, `as_received` routes the resolved
    /// path and forwards the received one, so that the upstream may serve another path than the route guards.
    pub dot_segments: DotSegments,
    /// The treatment of `%2F`: `keep` matches it as part of its segment, `separate` as a slash, `refuse` answers 400,
    /// also to `%5C`. It is forwarded as received.
    pub encoded_slashes: EncodedSlashes,
    /// Whether TRACE requests are routed. Otherwise they are answered 405.
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
            encoded_slashes: EncodedSlashes::Keep,
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
    /// The request is answered 400.
    Refuse,
    /// The resolved path is routed, the received one forwarded.
    AsReceived,
}

/// The treatment of encoded slashes in request paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlashes {
    /// They are part of their segment.
    Keep,
    /// They separate segments.
    Separate,
    /// The request is answered 400.
    Refuse,
}

/// Names of endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// The resolvers to ask, such as `10.0.0.2:53`; none means the system's.
    pub servers: Vec<String>,
    /// How long an answer is kept at least, in milliseconds, whatever its own time to live.
    pub ttl_min_ms: u64,
    /// How long an answer is kept at most, in milliseconds.
    pub ttl_max_ms: u64,
    /// Names without a time to live, as the system's resolver gives them, are asked again after so many
    /// milliseconds.
    #[schemars(range(min = 100))]
    pub refresh_ms: u64,
    /// How long to wait for an answer, in milliseconds.
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
