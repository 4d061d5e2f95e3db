//! Subrequests of plugins.
//!
//! Plugins own no sockets: the worker sends a subrequest through [`crate::PluginHost::send_subrequest`].

use yumen_http::{Fields, Method};

/// A subrequest.
#[derive(Debug, Clone)]
pub struct SubrequestSpec {
    /// Slot of the upstream.
    pub upstream: u32,
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
}

impl std::fmt::Display for SubrequestFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SubrequestFault::NoEndpoint => "no endpoint available",
            SubrequestFault::ConnectionLost => "no answer",
            SubrequestFault::Timeout => "no answer in time",
        })
    }
}
