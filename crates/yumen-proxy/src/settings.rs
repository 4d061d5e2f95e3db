//! Settings of the data plane, compiled from the node settings into the form that workers use.

use std::net::SocketAddr;
use std::sync::Arc;

pub use yumen_actions::{SESSION_KEY_BYTES, SessionKeys};
use yumen_base::IpSet;
pub use yumen_http::HeadLimits;
pub use yumen_http::fields::write_line;
pub use yumen_http::uri::{DotSegmentPolicy, EncodedSlashPolicy, PathPolicy};
use yumen_plugin::DirectoryAccess;
pub use yumen_plugin::real_ip::RealIpFinder;

use crate::debug::DebugKey;
use crate::runtime::minimum_rate::MinimumRate;
use crate::runtime::overload::OverloadSettings;

/// Maximum size of a message head, in bytes: a head must fit into one read buffer.
pub const HEAD_BYTES_MAX: usize = crate::runtime::buffer::BUFFER_BYTES;

/// Number of exchanges whose allocations a worker retains for reuse: futures, heads, edits.
pub(crate) const EXCHANGES_KEPT: usize = 256;

/// Settings of all workers. They are constant for the life of the process.
#[derive(Debug, Clone, Default)]
pub struct WorkerSettings {
    /// Limits of sizes, counts and rates.
    pub limits: WorkerLimits,
    /// Timeouts of downstream connections.
    pub timeouts: DownstreamTimeouts,
    /// Limits of TCP streams and UDP sessions.
    pub streams: StreamSettings,
    /// Fields and methods that the gateway handles itself.
    pub forwarding: ForwardingSettings,
    /// Sampling and debug tokens.
    pub observation: ObservationSettings,
    /// Limits of HTTP/2 connections.
    pub http2: Http2Settings,
    /// Limits of HTTP/3 connections.
    pub http3: Http3Settings,
    /// Limits for load shedding.
    pub overload: OverloadSettings,
    /// The keys of sessions, which all workers share. Without a key, requests of a session are not kept together.
    pub session_keys: Arc<SessionKeys>,
    /// Directories of plugins.
    pub directories: DirectoryAccess,
}

/// Limits of sizes, counts and rates of HTTP traffic.
#[derive(Debug, Clone)]
pub struct WorkerLimits {
    /// Limits of request heads.
    pub request_head: HeadLimits,
    /// Limits of response heads.
    pub response_head: HeadLimits,
    /// Maximum size of a request body in bytes; 0 is no limit.
    pub body_bytes_max: u64,
    /// Body bytes that one worker buffers for slow peers; 0 is no limit.
    pub backlog_bytes_max: usize,
    /// Maximum number of connections per worker; further ones are closed at once.
    pub connections_max: usize,
    /// The minimum rate at which a client must send a request body.
    pub body_rate: MinimumRate,
    /// The minimum rate at which a client must receive its response.
    pub response_rate: MinimumRate,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        WorkerLimits {
            request_head: HeadLimits::default(),
            response_head: HeadLimits::default(),
            body_bytes_max: 0,
            backlog_bytes_max: 64 * 1024 * 1024,
            connections_max: 65_536,
            body_rate: MinimumRate::default(),
            response_rate: MinimumRate::default(),
        }
    }
}

/// Timeouts of downstream connections, in milliseconds.
#[derive(Debug, Clone)]
pub struct DownstreamTimeouts {
    /// Of a TLS handshake, from the accept to its end.
    pub handshake_ms: u64,
    /// Of a request head, from its first byte to its last.
    pub head_ms: u64,
    /// Between two reads of a request body.
    pub body_ms: u64,
    /// Idle timeout between requests.
    pub idle_ms: u64,
    /// For a client that has sent FIN; 0 applies the timeouts of other clients.
    pub half_closed_ms: u64,
    /// Between two writes to a client.
    pub send_ms: u64,
}

impl Default for DownstreamTimeouts {
    fn default() -> Self {
        DownstreamTimeouts {
            handshake_ms: 10_000,
            head_ms: 60_000,
            body_ms: 60_000,
            idle_ms: 60_000,
            half_closed_ms: 1000,
            send_ms: 60_000,
        }
    }
}

/// Limits of TCP streams and UDP sessions.
#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// Idle timeout of TCP streams whose upstream sets none, in milliseconds.
    pub idle_ms: u64,
    /// Idle timeout of a stream or tunnel after one side has ended, in milliseconds; 0 keeps the other
    /// timeout.
    pub half_closed_ms: u64,
    /// Idle timeout of UDP sessions whose upstream sets none, in milliseconds.
    pub udp_idle_ms: u64,
    /// Maximum number of UDP sessions per worker; datagrams of further ones are dropped.
    pub udp_sessions_max: usize,
}

impl Default for StreamSettings {
    fn default() -> Self {
        StreamSettings {
            idle_ms: 600_000,
            half_closed_ms: 60_000,
            udp_idle_ms: 60_000,
            udp_sessions_max: 16_384,
        }
    }
}

/// Fields that the gateway adds, trusts or removes.
#[derive(Debug, Clone)]
pub struct ForwardingSettings {
    /// The `Server` field line of every response, with its CRLF; empty forwards the upstream's.
    pub server_line: Vec<u8>,
    /// Peers whose forwarding fields are trusted.
    pub trusted: IpSet,
    /// Source of the client address, if configured.
    pub real_ip: Option<RealIpFinder>,
    /// Whether endpoints also receive the `Forwarded` field (RFC 7239).
    pub forwarded_field: bool,
    /// Whether TRACE requests are routed; otherwise the gateway refuses them.
    pub trace_requests: bool,
}

impl Default for ForwardingSettings {
    fn default() -> Self {
        ForwardingSettings {
            server_line: b"Server: yumen\r\n".to_vec(),
            trusted: IpSet::default(),
            real_ip: None,
            forwarded_field: false,
            trace_requests: false,
        }
    }
}

/// Settings of sampled requests and of explanations.
#[derive(Debug, Clone)]
pub struct ObservationSettings {
    /// Approximate maximum of sampled requests per second; 0 disables sampling.
    pub samples_per_second: u32,
    /// Maximum number of recent requests per worker; 0 stores none.
    pub recent_requests: usize,
    /// The key that signs `X-Yumen-Debug` tokens; `None` ignores the field.
    pub debug_key: Option<DebugKey>,
}

impl Default for ObservationSettings {
    fn default() -> Self {
        ObservationSettings { samples_per_second: 500, recent_requests: 2048, debug_key: None }
    }
}

/// Limits of one HTTP/2 connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2Settings {
    /// Whether listeners offer HTTP/2.
    pub enabled: bool,
    /// Maximum number of concurrent streams per client connection.
    pub streams_max: u32,
    /// Flow-control window of one stream, in bytes (RFC 9113 §5.2).
    pub stream_window_bytes: u32,
    /// Flow-control window of a client connection, in bytes.
    pub connection_window_bytes: u32,
    /// Flow-control window of an upstream connection, in bytes.
    pub upstream_window_bytes: u32,
    /// Number of control frames without data that a peer may send in a burst.
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

/// Limits of one HTTP/3 connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http3Settings {
    /// Whether safe requests are served from early data, before the handshake has completed (RFC 8470).
    pub early_data: bool,
    /// Maximum number of concurrent streams per client connection.
    pub streams_max: u32,
    /// Flow-control window of one stream, in bytes (RFC 9000 §4.1).
    pub stream_window_bytes: u32,
    /// Flow-control window of a client connection, in bytes.
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

/// Makes [`StreamProtocol`] from one table, so that neither the list nor the names can lack a protocol.
macro_rules! stream_protocols {
    ($(#[doc = $doc:literal] $protocol:ident => $name:literal,)+) => {
        /// The protocol of a stream listener.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StreamProtocol {
            $(#[doc = $doc] $protocol,)+
        }

        impl StreamProtocol {
            /// All protocols, in the order of their discriminants.
            pub const ALL: [StreamProtocol; [$($name),+].len()] = [$(StreamProtocol::$protocol),+];

            /// Returns the name in configuration, logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(StreamProtocol::$protocol => $name,)+
                }
            }
        }
    };
}

stream_protocols! {
    /// TCP.
    Tcp => "tcp",
    /// TLS, terminated by the gateway.
    Tls => "tls",
    /// TLS, forwarded by its server name without termination.
    TlsPassthrough => "tls_passthrough",
    /// UDP.
    Udp => "udp",
}

/// The protocol that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS, which the listener terminates.
    Https {
        /// Whether HTTP/3 is served on the UDP port of the same number.
        http3: bool,
    },
    /// TCP streams or UDP sessions.
    Stream(StreamProtocol),
}

impl ListenerProtocol {
    /// The protocol of the streams, or `None` for HTTP.
    pub fn stream(self) -> Option<StreamProtocol> {
        match self {
            ListenerProtocol::Stream(protocol) => Some(protocol),
            ListenerProtocol::Http | ListenerProtocol::Https { .. } => None,
        }
    }

    /// Whether the listener terminates TLS.
    pub fn terminates_tls(self) -> bool {
        matches!(self, ListenerProtocol::Https { .. } | ListenerProtocol::Stream(StreamProtocol::Tls))
    }

    /// Whether HTTP/3 is served on the UDP port of the same number.
    pub fn serves_http3(self) -> bool {
        self == ListenerProtocol::Https { http3: true }
    }
}

/// Settings of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The address to bind.
    pub address: SocketAddr,
    /// The protocol of its connections.
    pub protocol: ListenerProtocol,
    /// Peers whose connections begin with a PROXY header.
    pub proxy_from: IpSet,
    /// Options of the listening sockets.
    pub socket: ListenSocketOptions,
}

/// Options of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSocketOptions {
    /// Length of the accept queue; the kernel limits it further.
    pub backlog: i32,
    /// Whether each worker has its own socket; otherwise all workers accept from one.
    pub reuse_port: bool,
    /// Whether the kernel reports a connection only with its first bytes. Silent clients then cost no memory
    /// here.
    pub defer_accept: bool,
}

impl ListenerSettings {
    /// Returns the settings of a plaintext HTTP listener, with common defaults.
    pub fn plain(address: SocketAddr) -> ListenerSettings {
        ListenerSettings {
            address,
            protocol: ListenerProtocol::Http,
            proxy_from: IpSet::default(),
            socket: ListenSocketOptions { backlog: 1024, reuse_port: true, defer_accept: false },
        }
    }
}
