//! The outcome of an exchange, the only input of metrics and the access log.

use std::net::SocketAddr;

/// The origin of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseSource {
    /// A local response: of a plugin, or for a fault.
    #[default]
    Gateway,
    /// An endpoint.
    Upstream,
}

impl ResponseSource {
    /// The value of the metric label.
    pub fn name(self) -> &'static str {
        match self {
            ResponseSource::Gateway => "gateway",
            ResponseSource::Upstream => "upstream",
        }
    }
}

/// The outcome of an exchange.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExchangeOutcome<'a> {
    /// Status of the response; 499 if the client closed before one was sent.
    pub status: u16,
    /// The origin of the response.
    pub source: ResponseSource,
    /// Bytes received from the client, including the head.
    pub received_bytes: u64,
    /// Bytes sent to the client, including the head.
    pub sent_bytes: u64,
    /// Of these, the bytes of the response head.
    pub sent_head_bytes: u64,
    /// Time from the first byte of the request to the last byte of the response.
    pub duration_us: u64,
    /// Time from the choice of an endpoint to the last byte of its response; `None` without an attempt.
    pub upstream_us: Option<u64>,
    /// The endpoint of the last attempt.
    pub endpoint: Option<SocketAddr>,
    /// Status of its response, if there was one.
    pub upstream_status: Option<u16>,
    /// Number of attempts.
    pub attempts: u32,
    /// The fault as a word of the fault table; empty without a fault.
    pub fault: &'a str,
    /// Status for a fault of the endpoint: unreachable, timed out, or response incomplete. `None` for faults
    /// of the client and for deadlines.
    pub upstream_failure: Option<u16>,
}

impl ExchangeOutcome<'_> {
    /// Bytes of the response body that were sent.
    pub fn sent_body_bytes(&self) -> u64 {
        // A client that closed early may have received only a part of the head.
        self.sent_bytes.saturating_sub(self.sent_head_bytes)
    }
}
