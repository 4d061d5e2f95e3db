//! Running totals and flags of one exchange, for its outcome and its later phases.

use yumen_plugin::ResponseSource;

use crate::fault::Fault;

/// Running totals and flags of one exchange.
#[derive(Default)]
pub(crate) struct ExchangeStats {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Bytes of the response head, included in `sent_bytes`; counted when the head is queued.
    pub(crate) sent_head_bytes: u64,
    pub(crate) attempts: u32,
    /// Statuses of the attempts that did not give the response; those without a response have the status of their
    /// fault.
    pub(crate) failed_statuses: Vec<u16>,
    pub(crate) body: RequestBodyState,
    pub(crate) upstream_started_us: Option<u64>,
    pub(crate) upstream_us: Option<u64>,
    pub(crate) source: ResponseSource,
    pub(crate) fault: Option<Fault>,
    /// Whether the connection must not be reused.
    pub(crate) is_last: bool,
    /// Time limit of the route, in milliseconds; 0 means no limit.
    pub(crate) total_ms: u64,
    pub(crate) status: u16,
    /// Status of the call, if the request is one.
    pub(crate) grpc_status: Option<u8>,
}

impl ExchangeStats {
    /// Records the end of the upstream part, at `now_us` of the monotonic clock.
    pub(crate) fn note_upstream_end(&mut self, now_us: u64) {
        self.upstream_us = Some(now_us.saturating_sub(self.upstream_started_us.unwrap_or(now_us)));
    }

    /// Whether the connection must end after the exchange.
    pub(crate) fn ends_connection(&self) -> bool {
        let is_misread = self.fault.is_some_and(|fault| fault.kind.ends_connection());
        self.is_last || is_misread || self.body == RequestBodyState::Partial
    }
}

/// Part of the request body that failed attempts have consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestBodyState {
    /// Nothing was consumed.
    #[default]
    Whole,
    /// A part was consumed, so the start of the next request is unknown.
    Partial,
    /// The whole body was consumed.
    Read,
}
