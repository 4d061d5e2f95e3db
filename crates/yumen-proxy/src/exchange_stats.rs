//! What is noted about an exchange while it runs, for its outcome and for whoever comes later in it.

use yumen_plugin::ResponseSource;

use crate::fault::Fault;

/// What is noted about an exchange while it runs.
#[derive(Default)]
pub(crate) struct ExchangeStats {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// How many of those are the head of the response, or will be once it has left.
    pub(crate) sent_head_bytes: u64,
    pub(crate) attempts: u32,
    pub(crate) body: RequestBodyState,
    pub(crate) upstream_started_us: Option<u64>,
    pub(crate) upstream_us: Option<u64>,
    pub(crate) source: ResponseSource,
    pub(crate) fault: Option<Fault>,
    /// No further request is to come on the connection.
    pub(crate) is_last: bool,
    /// How long the operator lets the request take, in milliseconds; 0 for ever.
    pub(crate) total_ms: u64,
    pub(crate) status: u16,
    /// The status of a call, where the request is one.
    pub(crate) grpc_status: Option<u8>,
}

impl ExchangeStats {
    /// Notes that an endpoint was done with the exchange at `now_us` of the monotonic clock.
    pub(crate) fn note_upstream_end(&mut self, now_us: u64) {
        self.upstream_us = Some(now_us.saturating_sub(self.upstream_started_us.unwrap_or(now_us)));
    }

    /// Whether nothing can follow on the connection, or nothing should.
    pub(crate) fn ends_connection(&self) -> bool {
        let is_misread = self.fault.is_some_and(|fault| fault.kind.ends_connection());
        self.is_last || is_misread || self.body == RequestBodyState::Partial
    }
}

/// How much of the request body was taken off the connection by attempts that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestBodyState {
    /// Nothing: all of it is still to be read.
    #[default]
    Whole,
    /// A part: where it ends is no longer known.
    Partial,
    /// All of it.
    Read,
}
