//! The record of one finished exchange: metrics and access log are made from it and nothing else.

use std::net::SocketAddr;

/// Who made the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseSource {
    /// The gateway itself: a plugin, a refusal, a fault.
    #[default]
    Gateway,
    /// An endpoint.
    Upstream,
}

impl ResponseSource {
    /// The word metrics use.
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
    /// Status sent to the client; 499 where it left before one was sent.
    pub status: u16,
    /// Who made the answer.
    pub source: ResponseSource,
    /// Bytes received from the client, head included.
    pub received_bytes: u64,
    /// Bytes sent to the client, head included.
    pub sent_bytes: u64,
    /// How many of those were the head of the response.
    pub sent_head_bytes: u64,
    /// From the first byte of the request to the last of the response.
    pub duration_us: u64,
    /// From the choice of an endpoint to the last byte of its response; `None` where none was asked.
    pub upstream_us: Option<u64>,
    /// The endpoint that answered, or was tried last.
    pub endpoint: Option<SocketAddr>,
    /// Its status, where it answered.
    pub upstream_status: Option<u16>,
    /// How many endpoints were tried.
    pub attempts: u32,
    /// What went wrong, in one word of the fault table; empty where nothing did.
    pub fault: &'a str,
    /// The status that stands for it where it is the endpoint's: that one could not be reached, was silent for
    /// too long or broke its answer off. What clients do, and how long they are willing to wait, is not.
    pub upstream_failure: Option<u16>,
}

impl ExchangeOutcome<'_> {
    /// Bytes of the response sent behind its head.
    pub fn sent_body_bytes(&self) -> u64 {
        // A client that left may have got a part of the head only.
        self.sent_bytes.saturating_sub(self.sent_head_bytes)
    }
}
