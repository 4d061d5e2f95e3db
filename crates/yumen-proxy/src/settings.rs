//! What the node's configuration says to the data plane, in the form workers use.

use std::net::SocketAddr;

use yumen_base::IpSet;
pub use yumen_http::HeadLimits;
pub use yumen_http::fields::write_line;
pub use yumen_http::uri::{DotSegmentPolicy, EncodedSlashPolicy, PathPolicy};
pub use yumen_plugin::real_ip::RealIpFinder;

use crate::debug::DebugKey;
use crate::minimum_rate::MinimumRate;
use crate::overload::OverloadSettings;

/// No head may be larger than the buffer it is read into.
pub const HEAD_BYTES_MAX: usize = crate::buffer::BUFFER_BYTES;

/// Exchanges whose memory a worker keeps for the next ones: futures, heads, edits.
pub(crate) const EXCHANGES_KEPT: usize = 256;

/// Settings every worker follows. They do not change while the process runs.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Bounds of request heads.
    pub request_head: HeadLimits,
    /// Whether TRACE requests are routed; otherwise they are refused.
    pub trace_requests: bool,
    /// Bounds of response heads.
    pub response_head: HeadLimits,
    /// Largest request body in bytes; 0 is no bound.
    pub body_bytes_max: u64,
    /// Bytes of bodies that one worker holds for peers that do not take them; 0 is no bound.
    pub backlog_bytes_max: usize,
    /// Connections one worker holds; more are closed at once.
    pub connections_max: usize,
    /// From the acceptance of a TLS connection to the end of its handshake, in milliseconds.
    pub handshake_timeout_ms: u64,
    /// From the first byte of a head to its last, in milliseconds.
    pub head_timeout_ms: u64,
    /// Between two reads of a request body, in milliseconds.
    pub body_timeout_ms: u64,
    /// The slowest a client may send a request body.
    pub body_rate: MinimumRate,
    /// The slowest a client may take its answer.
    pub answer_rate: MinimumRate,
    /// A kept-alive connection without a request, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How long a client that has sent its end is still waited for, in milliseconds; 0 is as long as any other.
    pub half_closed_ms: u64,
    /// Between two writes to a client, in milliseconds.
    pub send_timeout_ms: u64,
    /// Between two pieces of a stream, where its upstream does not say, in milliseconds.
    pub stream_idle_ms: u64,
    /// The same once one side of a stream or a tunnel has ended, in milliseconds; 0 is as long as before.
    pub stream_half_closed_ms: u64,
    /// Between two datagrams of a session, where its upstream does not say, in milliseconds.
    pub udp_idle_ms: u64,
    /// Sessions of datagrams one worker holds; those beyond are not begun.
    pub udp_sessions_max: usize,
    /// The `Server` line of every response, its end included; empty passes the upstream's.
    pub server_line: Vec<u8>,
    /// Peers whose forwarding fields are believed.
    pub trusted: IpSet,
    /// Where clients' own addresses are told, if they are.
    pub real_ip: Option<RealIpFinder>,
    /// Whether endpoints are told who asked in `Forwarded` too.
    pub forwarded: bool,
    /// Requests a second that are looked at closely, at most; 0 for none.
    pub samples_per_second: u32,
    /// How many requests a worker remembers for `recent`; 0 is none.
    pub recent_requests: usize,
    /// Bounds of HTTP/2.
    pub http2: Http2Settings,
    /// Bounds of HTTP/3.
    pub http3: Http3Settings,
    /// When no more is taken on.
    pub overload: OverloadSettings,
    /// What signs the tokens of `X-Yumen-Debug`; without it nobody looks for the field.
    pub debug_key: Option<DebugKey>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            request_head: HeadLimits::default(),
            trace_requests: false,
            response_head: HeadLimits::default(),
            body_bytes_max: 0,
            backlog_bytes_max: 64 * 1024 * 1024,
            connections_max: 65_536,
            handshake_timeout_ms: 10_000,
            head_timeout_ms: 60_000,
            body_timeout_ms: 60_000,
            body_rate: MinimumRate::default(),
            answer_rate: MinimumRate::default(),
            idle_timeout_ms: 60_000,
            half_closed_ms: 1000,
            send_timeout_ms: 60_000,
            stream_idle_ms: 600_000,
            stream_half_closed_ms: 60_000,
            udp_idle_ms: 60_000,
            udp_sessions_max: 16_384,
            server_line: b"Server: yumen\r\n".to_vec(),
            trusted: IpSet::default(),
            real_ip: None,
            forwarded: false,
            samples_per_second: 500,
            recent_requests: 2048,
            http2: Http2Settings::default(),
            http3: Http3Settings::default(),
            overload: OverloadSettings::default(),
            debug_key: None,
        }
    }
}

/// What one connection of HTTP/2 may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2Settings {
    /// Whether clients may speak it.
    pub enabled: bool,
    /// Streams a client may have open at once.
    pub streams_max: u32,
    /// Bytes a peer may send on one stream before they were taken.
    pub stream_window_bytes: u32,
    /// Bytes a client may send on all its streams before they were taken.
    pub connection_window_bytes: u32,
    /// The same for an endpoint.
    pub upstream_window_bytes: u32,
    /// Control frames a peer may send at once that move no data.
    pub patience: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Http2Settings {
            enabled: true,
            streams_max: 128,
            stream_window_bytes: 64 * 1024,
            connection_window_bytes: 8 * 1024 * 1024,
            upstream_window_bytes: 8 * 1024 * 1024,
            patience: 2000,
        }
    }
}

/// What one connection of HTTP/3 may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http3Settings {
    /// Whether requests that change nothing are served before the handshake is over.
    pub early_data: bool,
    /// Streams a client may have open at once.
    pub streams_max: u32,
    /// Bytes a client may send on one stream before they were taken.
    pub stream_window_bytes: u32,
    /// Bytes a client may send on all its streams before they were taken.
    pub connection_window_bytes: u32,
}

impl Default for Http3Settings {
    fn default() -> Self {
        Http3Settings {
            early_data: false,
            streams_max: 128,
            stream_window_bytes: 64 * 1024,
            connection_window_bytes: 8 * 1024 * 1024,
        }
    }
}

/// What a socket for streams carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamProtocol {
    /// Bytes.
    Tcp,
    /// Bytes inside TLS, which ends here.
    Tls,
    /// TLS that goes on as it came.
    TlsPassthrough,
    /// Datagrams.
    Udp,
}

impl StreamProtocol {
    /// All of them, in the order of their values.
    pub const ALL: [StreamProtocol; 4] =
        [StreamProtocol::Tcp, StreamProtocol::Tls, StreamProtocol::TlsPassthrough, StreamProtocol::Udp];

    /// Its name in configuration, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            StreamProtocol::Tcp => "tcp",
            StreamProtocol::Tls => "tls",
            StreamProtocol::TlsPassthrough => "tls_passthrough",
            StreamProtocol::Udp => "udp",
        }
    }
}

/// A socket to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Where.
    pub address: SocketAddr,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// Connections the kernel queues; it clamps to its own bound.
    pub backlog: i32,
    /// Whether each worker has a socket of its own; otherwise all accept from one.
    pub reuse_port: bool,
    /// Hear of a connection only when its first bytes are there. Silent clients stay with the kernel.
    pub defer_accept: bool,
    /// Peers whose connections begin with a PROXY header.
    pub proxy_from: IpSet,
    /// What it carries, where that is not requests.
    pub streams: Option<StreamProtocol>,
    /// Whether HTTP/3 is spoken on the same port.
    pub http3: bool,
}

impl ListenerSettings {
    /// For requests without TLS, with what is usual elsewhere.
    pub fn plain(address: SocketAddr) -> ListenerSettings {
        ListenerSettings {
            address,
            tls: false,
            backlog: 1024,
            reuse_port: true,
            defer_accept: false,
            proxy_from: IpSet::default(),
            streams: None,
            http3: false,
        }
    }
}
