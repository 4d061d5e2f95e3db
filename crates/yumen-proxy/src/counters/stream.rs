//! What a worker counts of streams.

use yumen_base::{Counter, Gauge};
use yumen_plugin::ExchangeOutcome;

use crate::fault::stream::StreamFault;
use crate::settings::StreamProtocol;

/// The counters of one worker's streams; it alone writes them.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Streams begun, by protocol in the order of [`StreamProtocol::ALL`].
    pub(crate) begun: [Counter; 4],
    pub(crate) open: [Gauge; 4],
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) faults: [Counter; StreamFault::ALL.len()],
    /// Bytes that passed without being copied through this process.
    pub(crate) spliced_bytes: Counter,
    /// Datagrams dropped because somebody was behind.
    pub(crate) dropped_datagrams: Counter,
}

/// A stream that is counted as open until it ends, however that comes.
pub(crate) struct OpenStreamGauge<'c>(&'c Gauge);

impl Drop for OpenStreamGauge<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl StreamCounters {
    pub(crate) fn open(&self, protocol: StreamProtocol) -> OpenStreamGauge<'_> {
        self.begun[protocol as usize].add(1);
        self.open[protocol as usize].add(1);
        OpenStreamGauge(&self.open[protocol as usize])
    }

    /// Counts a connection that was to begin with a PROXY header and did not.
    pub(crate) fn no_proxy_header(&self) {
        self.faults[StreamFault::ProxyHeader.index()].add(1);
    }

    /// Counts a session of datagrams that was not begun.
    pub(crate) fn too_many_sessions(&self) {
        self.faults[StreamFault::TooManySessions.index()].add(1);
    }

    pub(crate) fn finish(&self, fault: Option<StreamFault>, outcome: &ExchangeOutcome<'_>) {
        self.received_bytes.add(outcome.received_bytes);
        self.sent_bytes.add(outcome.sent_bytes);
        if let Some(fault) = fault {
            self.faults[fault.index()].add(1);
        }
    }
}
