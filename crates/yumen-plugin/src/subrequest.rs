//! A request that a plugin sends to an upstream.
//!
//! Plugins own no sockets: the worker sends it, through [`crate::PluginHost::ask`].

use yumen_http::{Fields, Method};

/// A subrequest.
#[derive(Debug, Clone)]
pub struct SubrequestSpec {
    /// The slot of the upstream.
    pub upstream: u32,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The host as the endpoint sees it.
    pub authority: String,
    /// Further fields; the sender adds those of the framing.
    pub fields: Fields,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection may be reused for the next subrequest.
    pub keeps: bool,
    /// Timeout of the whole subrequest, in milliseconds.
    pub timeout_ms: u64,
}

/// The response to a subrequest.
#[derive(Debug, Clone, Default)]
pub struct SubrequestResponse {
    /// The status.
    pub status: u16,
    /// The fields, including those of the connection.
    pub fields: Fields,
    /// The body; `None` if it exceeds the limit of a worker, was aborted, or timed out.
    pub body: Option<Vec<u8>>,
    /// The reason why the body is incomplete, unless it was too long. The caller decides whether the head
    /// suffices.
    pub fault: Option<SubrequestFault>,
}

/// The reason why a subrequest has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubrequestFault {
    /// No such upstream, or none of its names is resolved.
    NoEndpoint,
    /// No endpoint was reachable, or the response was aborted or malformed.
    ConnectionLost,
    /// The timeout has passed.
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
