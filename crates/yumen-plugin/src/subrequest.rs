//! A request of a plugin's own: what it asks an upstream, and what can come of it.
//!
//! Plugins own no sockets: the worker that runs them asks, through [`crate::PluginHost::ask`].

use yumen_http::{Fields, Method};

/// What is asked.
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
    /// Further fields; those that say where the body ends are written by whoever sends it.
    pub fields: Fields,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection may be kept for the next question.
    pub keeps: bool,
    /// How long all of it may take, in milliseconds.
    pub timeout_ms: u64,
}

/// What was answered.
#[derive(Debug, Clone, Default)]
pub struct SubrequestResponse {
    /// The status.
    pub status: u16,
    /// The fields, those about the connection included.
    pub fields: Fields,
    /// The body; `None` where it is longer than a worker keeps one, broke off, or did not come in time.
    pub body: Option<Vec<u8>>,
    /// Why the body ended before its end, where it is not its length: it is for who asked whether the head counts.
    pub fault: Option<SubrequestFault>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubrequestFault {
    /// There is nobody to ask: no such upstream, or none of its names is resolved.
    NoEndpoint,
    /// Nobody could be reached, or the answer broke off or could not be read.
    ConnectionLost,
    /// It took too long.
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
