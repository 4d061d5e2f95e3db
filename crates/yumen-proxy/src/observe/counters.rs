//! Counters of a worker, by name and without labels. `all_counters` turns them into metric families.

mod stream;

use std::sync::Arc;

use yumen_base::{Counter, Gauge, Histogram};
use yumen_plugin::ExchangeOutcome;

use crate::fault::COUNTED;
use crate::observe::WorkerObservations;
use crate::observe::call_counters::CallCounters;
use crate::observe::exemplars::ExemplarTable;
pub(crate) use stream::StreamCounters;

/// Upper bounds of request durations, in microseconds.
pub(crate) static DURATION_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Counters of one worker, which is the only writer.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// Downstream connections.
    pub connections: ConnectionCounters,
    /// Downstream connections over HTTP/2.
    pub http2: MultiplexedCounters,
    /// Downstream connections over HTTP/3.
    pub http3: MultiplexedCounters,
    /// Finished exchanges.
    pub(crate) requests: RequestCounters,
    /// Connections and attempts to endpoints.
    pub upstream: UpstreamCounters,
    /// The body backlog.
    pub backlog: BacklogCounters,
    /// The worker itself.
    pub runtime: RuntimeCounters,
    /// Counters of TCP and UDP streams.
    pub(crate) streams: StreamCounters,
    /// Counters of the Redis clients of plugins.
    pub(crate) redis: Arc<yumen_redis::RedisCounters>,
    /// Calls of plugins to services.
    pub(crate) calls: CallCounters,
    /// Results of sampled requests.
    pub(crate) observed: WorkerObservations,
}

/// Counters of downstream connections of all protocols.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused at the connection limit of the worker.
    pub refused: Counter,
    /// Failed accepts, for lack of file descriptors or memory.
    pub accept_failures: Counter,
    /// Open connections.
    pub open: Gauge,
    /// Completed TLS handshakes.
    pub handshakes: Counter,
    /// Failed TLS handshakes.
    pub handshake_failures: Counter,
    /// Connections whose first bytes are not HTTP of any version.
    pub unknown_protocols: Counter,
    /// Tunnels closed because their route or endpoint changed.
    pub tunnels_ended: Counter,
}

/// Counters of downstream connections of a protocol with concurrent streams.
#[derive(Debug, Default)]
pub struct MultiplexedCounters {
    /// Connections of the protocol.
    pub connections: Counter,
    /// Connections closed for a protocol error of the client.
    pub faults: Counter,
    /// Connections closed for a flood of frames, for too many canceled requests or for an oversized frame.
    pub floods: Counter,
}

/// Counters of finished exchanges.
#[derive(Debug)]
pub(crate) struct RequestCounters {
    /// Requests by status class: index 1 is 1xx, 0 is no response.
    pub(crate) by_class: [Counter; 6],
    /// Bytes received from clients.
    pub(crate) received_bytes: Counter,
    /// Bytes sent to clients.
    pub(crate) sent_bytes: Counter,
    /// Durations, in microseconds.
    pub(crate) duration: Histogram,
    /// Traced durations.
    pub(crate) exemplars: ExemplarTable,
    /// gRPC calls by status; the last index counts undefined or missing statuses.
    pub(crate) grpc: [Counter; 18],
    /// Mirrored requests: with a response, failed, dropped before they were sent.
    pub(crate) mirrored: [Counter; 3],
    /// Failed exchanges, in the order of [`COUNTED`].
    pub(crate) faults: [Counter; COUNTED.len()],
}

impl Default for RequestCounters {
    fn default() -> Self {
        RequestCounters {
            by_class: Default::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            duration: Histogram::new(DURATION_BOUNDS_US),
            exemplars: ExemplarTable::default(),
            grpc: Default::default(),
            mirrored: Default::default(),
            faults: Default::default(),
        }
    }
}

/// Counters of connections and attempts to endpoints.
#[derive(Debug, Default)]
pub struct UpstreamCounters {
    /// Connections opened.
    pub connects: Counter,
    /// Requests sent on a reused connection.
    pub reuses: Counter,
    /// Attempts after the first.
    pub retries: Counter,
    /// Idle connections at the last sweep.
    pub idle: Gauge,
    /// Idle connections closed because their endpoint was removed.
    pub departed: Counter,
    /// HTTP/2 connections closed for a flood of frames.
    pub http2_floods: Counter,
}

/// Counters of body bytes buffered for slow peers.
#[derive(Debug, Default)]
pub struct BacklogCounters {
    /// Bytes at the last check.
    pub bytes: Gauge,
    /// Bound in bytes; 0 means no bound.
    pub bytes_max: Gauge,
    /// Exchanges and connections ended above the bound.
    pub ended: Counter,
}

/// Counters of the worker itself.
#[derive(Debug, Default)]
pub struct RuntimeCounters {
    /// Rounds of periodic work; a blocked worker makes none.
    pub beats: Counter,
    /// Tasks of connections that panicked. The connection is lost, and the worker continues.
    pub panics: Counter,
    /// Share of requests shed at the last check, in thousandths.
    pub shed_share: Gauge,
    /// Access log lines dropped because the writer was too slow.
    pub log_lines_dropped: Counter,
    /// Computations completed in other threads.
    pub offloaded: Counter,
    /// Computations refused because the queue was full.
    pub offload_refused: Counter,
}

impl RequestCounters {
    /// Counts a finished exchange.
    pub(crate) fn finish(&self, outcome: &ExchangeOutcome<'_>) {
        // An invalid status counts as 5xx (RFC 9110 §15).
        let class = usize::from(outcome.status / 100).min(5);
        self.by_class[class].add(1);
        self.received_bytes.add(outcome.received_bytes);
        self.sent_bytes.add(outcome.sent_bytes);
        self.duration.observe(outcome.duration_us);
        if !outcome.fault.is_empty() {
            self.failed(outcome.fault);
        }
    }

    #[cold]
    fn failed(&self, word: &str) {
        if let Some(at) = COUNTED.iter().position(|(_, known)| *known == word) {
            self.faults[at].add(1);
        }
    }
}

impl WorkerCounters {
    /// Counts the task if its drop is due to a panic; returns whether it is.
    pub(crate) fn note_panic(&self) -> bool {
        let is_panic = std::thread::panicking();
        if is_panic {
            self.runtime.panics.add(1);
        }
        is_panic
    }
}
