//! Attempts of streams, which carry bytes or datagrams instead of requests.
//!
//! Their connections belong to one client and are never pooled. Balancers receive the time until the endpoint
//! was connected, not the life of the stream.

use yumen_snapshot::{InFlight, Upstream};

use crate::fault::FaultKind;
use crate::runtime::clock;
use crate::transport::stream::TransportStream;
use crate::upstream::UpstreamClient;
use crate::upstream::health;
use crate::upstream::target::EndpointTarget;
use crate::upstream::wait::AttemptWait;

/// An attempt of a stream on an endpoint, counted there until it is dropped.
#[must_use = "a dropped attempt is over"]
pub(crate) struct StreamAttempt<'u> {
    upstream: &'u Upstream,
    /// `None` only while it is dropped.
    in_flight: Option<InFlight<'u>>,
    index: usize,
    connected_us: Option<u64>,
}

/// The connection of a stream to its endpoint. It closes before the attempt ends.
pub(crate) struct EndpointStream<'u> {
    pub(crate) stream: TransportStream,
    _attempt: StreamAttempt<'u>,
}

impl<'u> StreamAttempt<'u> {
    pub(crate) fn begin(upstream: &'u Upstream, index: usize) -> StreamAttempt<'u> {
        let in_flight = Some(upstream.started(index, clock::now().mono_us));
        StreamAttempt { upstream, in_flight, index, connected_us: None }
    }

    /// The index of the endpoint.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Connects to the endpoint and sends `opening` before any TLS.
    pub(crate) async fn connect(
        mut self,
        client: &UpstreamClient,
        target: &EndpointTarget<'_>,
        opening: Vec<u8>,
        wait: &mut impl AttemptWait,
    ) -> Result<EndpointStream<'u>, FaultKind> {
        client.counters.upstream.connects.add(1);
        let stream = target.dial(opening)?.connect_within(wait).await?;
        self.note_connected();
        Ok(EndpointStream { stream, _attempt: self })
    }

    /// Notes that the endpoint is connected, or has sent its first datagram.
    pub(crate) fn note_connected(&mut self) {
        let lasts_us = |in_flight: &InFlight<'_>| in_flight.lasts_us(clock::now().mono_us);
        self.connected_us = self.in_flight.as_ref().map(lasts_us);
        health::observe_connected(self.upstream, self.index);
    }
}

impl Drop for StreamAttempt<'_> {
    fn drop(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let now_us = clock::now().mono_us;
        let took_us = self.connected_us.unwrap_or(in_flight.lasts_us(now_us));
        in_flight.end(took_us, now_us);
    }
}
