//! The summary of an ended exchange, from which metrics and the access log are written.

use std::net::SocketAddr;

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseSource {
    /// The gateway itself: a plugin, a refusal, a fault.
    #[default]
    Gateway,
    /// An endpoint.
    Upstream,
}

impl ResponseSource {
    /// Returns the label value of metrics.
    pub fn name(self) -> &'static str {
        match self {
            ResponseSource::Gateway => "gateway",
            ResponseSource::Upstream => "upstream",
        }
    }
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExchangeOutcome<'a> {
    /// Status sent to the client; 499 if the client disconnected before one was sent.
    pub status: u16,
    /// The source of the response.
    pub source: ResponseSource,
    /// Bytes received from the client, head included.
    pub received_bytes: u64,
    /// Bytes sent to the client, head included.
    pub sent_bytes: u64,
    /// Of `sent_bytes`, the bytes of the response head.
    pub sent_head_bytes: u64,
    /// Time from the first byte of the request to the last of the response.
    pub duration_us: u64,
    /// Time from the choice of an endpoint to the last byte of its response; `None` without an attempt.
    pub upstream_us: Option<u64>,
    /// The endpoint of the last attempt.
    pub endpoint: Option<SocketAddr>,
    /// The status that the endpoint sent.
    pub upstream_status: Option<u16>,
    /// Number of attempts.
    pub attempts: u32,
    /// The word of the fault; empty without one.
    pub fault: &'a str,
    /// The status of a fault of the endpoint: unreachable, timed out, or aborted its response. `None` for
    /// faults of the client and for deadlines that the client has set.
    pub upstream_failure: Option<u16>,
}

impl ExchangeOutcome<'_> {
    /// Bytes of the response after its head.
    pub fn sent_body_bytes(&self) -> u64 {
        // A client that disconnected may have received only a part of the head.
        self.sent_bytes.saturating_sub(self.sent_head_bytes)
    }
}
