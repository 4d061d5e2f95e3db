//! Subrequests of plugins.
//!
//! Plugins own no sockets: the worker sends a subrequest through [`crate::PluginHost::send_subrequest`].

use yumen_http::{Fields, Method};

/// A subrequest.
#[derive(Debug, Clone)]
pub struct SubrequestSpec {
    /// Slot of the upstream.
    pub upstream: u32,
    /// Name of the caller in metrics.
    pub plugin: &'static str,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The `Host` or `:authority`.
    pub authority: String,
    /// Further fields, without those of the body framing, which the sender adds.
    pub fields: Fields,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection may be reused.
    pub keeps: bool,
    /// Time limit of the whole subrequest in milliseconds.
    pub timeout_ms: u64,
    /// Whether the subrequest may be sent again after its connection closed without a response. False for
    /// grants: a code or a rotating refresh token that is sent twice ends the session at the provider. Such a
    /// subrequest has a connection of its own.
    pub may_repeat: bool,
    /// Maximum size of the response body in bytes; a longer body is reported as missing.
    pub response_bytes_max: usize,
    /// Maximum number of subrequests of a worker to the upstream that are in flight.
    pub in_flight_max: u32,
}

impl SubrequestSpec {
    /// Response body limit of callers without one of their own: 1 MiB.
    pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
    /// In-flight limit of callers without one of their own.
    pub const IN_FLIGHT_MAX: u32 = 1024;
}

/// A forward proxy for outbound connections: CONNECT for https, the absolute form for http.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboundProxy {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

impl std::fmt::Debug for OutboundProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The authorization must not appear in logs.
        f.debug_struct("OutboundProxy")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// The response to a subrequest.
#[derive(Debug, Clone, Default)]
pub struct SubrequestResponse {
    /// The status.
    pub status: u16,
    /// All fields, including those of the connection.
    pub fields: Fields,
    /// The body; `None` if it is longer than the worker buffers, incomplete, or late.
    pub body: Option<Vec<u8>>,
    /// The lines of the trailers.
    pub trailers: Vec<u8>,
    /// The reason of an incomplete body. The caller decides whether the head counts.
    pub fault: Option<SubrequestFault>,
}

/// The reason of a missing response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubrequestFault {
    /// No such upstream, or none of its names is resolved.
    NoEndpoint,
    /// No endpoint was reachable, or the response was incomplete or malformed.
    ConnectionLost,
    /// The time limit passed.
    Timeout,
    /// Nothing was sent: too many subrequests are in flight, or the upstream has just failed.
    Busy,
}

impl std::fmt::Display for SubrequestFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SubrequestFault::NoEndpoint => "no endpoint available",
            SubrequestFault::ConnectionLost => "no answer",
            SubrequestFault::Timeout => "no answer in time",
            SubrequestFault::Busy => "too many requests in flight",
        })
    }
}
