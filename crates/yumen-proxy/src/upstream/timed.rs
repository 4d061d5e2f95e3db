//! Attempts of streams, whose time is that to connect.

use yumen_snapshot::{InFlight, Upstream};

use crate::clock;

/// Counts a stream at its endpoint until it is dropped. The time that balancers learn is that until the endpoint was
/// connected, not the life of the stream.
pub(crate) struct StreamInFlight<'u> {
    in_flight: Option<InFlight<'u>>,
    index: usize,
    connected_us: Option<u64>,
}

impl<'u> StreamInFlight<'u> {
    pub(crate) fn begin(upstream: &'u Upstream, index: usize) -> StreamInFlight<'u> {
        let in_flight = Some(upstream.started(index, clock::now().mono_us));
        StreamInFlight { in_flight, index, connected_us: None }
    }

    /// The index of the endpoint.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The endpoint is connected, or has answered.
    pub(crate) fn connected(&mut self) {
        self.connected_us = self.in_flight.as_ref().map(|in_flight| in_flight.lasts_us(clock::now().mono_us));
    }
}

impl Drop for StreamInFlight<'_> {
    fn drop(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let now_us = clock::now().mono_us;
        let took_us = self.connected_us.unwrap_or(in_flight.lasts_us(now_us));
        in_flight.end(took_us, now_us);
    }
}
