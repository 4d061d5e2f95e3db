//! Counters of TCP and UDP streams of a worker.

use yumen_base::{Counter, Gauge};
use yumen_plugin::ExchangeOutcome;

use crate::fault::stream::StreamFault;
use crate::settings::StreamProtocol;

/// Stream counters of one worker, which is the only writer.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Streams accepted, by protocol in the order of [`StreamProtocol::ALL`].
    pub(crate) begun: [Counter; StreamProtocol::ALL.len()],
    pub(crate) open: [Gauge; StreamProtocol::ALL.len()],
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) faults: [Counter; StreamFault::ALL.len()],
    /// Bytes moved with splice.
    pub(crate) spliced_bytes: Counter,
    /// Datagrams dropped because a receiver was too slow.
    pub(crate) dropped_datagrams: Counter,
}

/// Counts a stream as open until it is dropped.
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

    /// Counts a connection without the required PROXY header.
    pub(crate) fn no_proxy_header(&self) {
        self.faults[StreamFault::ProxyHeader.index()].add(1);
    }

    /// Counts a UDP session that was refused at the limit.
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
