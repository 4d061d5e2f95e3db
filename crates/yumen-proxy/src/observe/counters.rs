//! Counters of a worker, by name and without labels. `all_counters` turns them into metric families.

mod stream;

use std::sync::Arc;

use yumen_base::{Counter, Gauge, Histogram};
use yumen_plugin::ExchangeOutcome;

use crate::fault::COUNTED;
use crate::observe::WorkerObservations;
pub(crate) use stream::StreamCounters;

/// Upper bounds of request durations, in microseconds.
pub(crate) static DURATION_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Counters of one worker, which is the only writer.
#[derive(Debug)]
pub struct WorkerCounters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused at the connection limit of the worker.
    pub refused: Counter,
    /// Failed accepts, for lack of file descriptors or memory.
    pub accept_failures: Counter,
    /// Open connections.
    pub connections: Gauge,
    /// Finished requests by status class: index 1 is 1xx, 0 is no response.
    pub requests: [Counter; 6],
    /// Bytes received from clients.
    pub received_bytes: Counter,
    /// Bytes sent to clients.
    pub sent_bytes: Counter,
    /// Connections opened to endpoints.
    pub connects: Counter,
    /// Requests sent on a reused upstream connection.
    pub reuses: Counter,
    /// Attempts after the first.
    pub retries: Counter,
    /// Completed TLS handshakes with clients.
    pub handshakes: Counter,
    /// Failed TLS handshakes with clients.
    pub handshake_failures: Counter,
    /// Connections whose first bytes are not HTTP of any version.
    pub strangers: Counter,
    /// Idle connections to endpoints at the last sweep.
    pub idle_upstream: Gauge,
    /// Body bytes buffered for slow peers at the last check.
    pub backlog_bytes: Gauge,
    /// Bound of the backlog, in bytes; 0 means no bound.
    pub backlog_bytes_max: Gauge,
    /// Exchanges and connections ended above the bound of the backlog.
    pub backlog_ended: Counter,
    /// Share of requests shed at the last check, in thousandths.
    pub shed_share: Gauge,
    /// Idle connections closed because their endpoint was removed.
    pub departed_upstream: Counter,
    /// Tunnels closed because their route or endpoint changed.
    pub tunnels_ended: Counter,
    /// Access log lines dropped because the writer was too slow.
    pub log_lines_dropped: Counter,
    /// Computations completed in other threads.
    pub offloaded: Counter,
    /// Computations refused because the queue was full.
    pub offload_refused: Counter,
    /// Rounds of periodic work; a blocked worker makes none.
    pub beats: Counter,
    /// Tasks of connections that panicked. The connection is lost, and the worker continues.
    pub panics: Counter,
    /// Downstream connections over HTTP/2.
    pub http2_connections: Counter,
    /// HTTP/2 downstream connections closed for a protocol error of the client.
    pub http2_faults: Counter,
    /// HTTP/2 downstream connections closed for a flood of frames.
    pub http2_floods: Counter,
    /// HTTP/2 upstream connections closed for a flood of frames.
    pub upstream_http2_floods: Counter,
    /// Downstream connections over HTTP/3.
    pub http3_connections: Counter,
    /// HTTP/3 downstream connections closed for a protocol error of the client.
    pub http3_faults: Counter,
    /// HTTP/3 downstream connections closed for too many canceled requests or an oversized frame.
    pub http3_floods: Counter,
    /// gRPC calls by status; the last index counts undefined or missing statuses.
    pub grpc: [Counter; 18],
    /// Mirrored requests: with a response, failed, dropped before they were sent.
    pub mirrored: [Counter; 3],
    /// Failed exchanges, in the order of [`COUNTED`].
    pub(crate) faults: [Counter; COUNTED.len()],
    /// Counters of TCP and UDP streams.
    pub(crate) streams: StreamCounters,
    /// Counters of the Redis clients of plugins.
    pub(crate) redis: Arc<yumen_redis::RedisCounters>,
    pub(crate) duration: Histogram,
    /// Results of sampled requests.
    pub(crate) observed: WorkerObservations,
}

impl Default for WorkerCounters {
    fn default() -> Self {
        WorkerCounters {
            accepted: Counter::default(),
            refused: Counter::default(),
            accept_failures: Counter::default(),
            beats: Counter::default(),
            connections: Gauge::default(),
            requests: Default::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            connects: Counter::default(),
            reuses: Counter::default(),
            retries: Counter::default(),
            handshakes: Counter::default(),
            handshake_failures: Counter::default(),
            strangers: Counter::default(),
            idle_upstream: Gauge::default(),
            backlog_bytes: Gauge::default(),
            backlog_bytes_max: Gauge::default(),
            backlog_ended: Counter::default(),
            shed_share: Gauge::default(),
            departed_upstream: Counter::default(),
            tunnels_ended: Counter::default(),
            log_lines_dropped: Counter::default(),
            offloaded: Counter::default(),
            offload_refused: Counter::default(),
            panics: Counter::default(),
            http2_connections: Counter::default(),
            http2_faults: Counter::default(),
            http2_floods: Counter::default(),
            upstream_http2_floods: Counter::default(),
            http3_connections: Counter::default(),
            http3_faults: Counter::default(),
            http3_floods: Counter::default(),
            grpc: Default::default(),
            mirrored: Default::default(),
            faults: Default::default(),
            streams: StreamCounters::default(),
            redis: Arc::default(),
            duration: Histogram::new(DURATION_BOUNDS_US),
            observed: WorkerObservations::default(),
        }
    }
}

impl WorkerCounters {
    /// Counts a finished exchange.
    pub(crate) fn finish(&self, outcome: &ExchangeOutcome<'_>) {
        let class = usize::from(outcome.status / 100).min(5);
        self.requests[class].add(1);
        self.received_bytes.add(outcome.received_bytes);
        self.sent_bytes.add(outcome.sent_bytes);
        self.duration.observe(outcome.duration_us);
        if !outcome.fault.is_empty() {
            self.failed(outcome.fault);
        }
    }

    /// Counts the task if its drop is due to a panic; returns whether it is.
    pub(crate) fn note_panic(&self) -> bool {
        let is_panic = std::thread::panicking();
        if is_panic {
            self.panics.add(1);
        }
        is_panic
    }

    #[cold]
    fn failed(&self, word: &str) {
        if let Some(at) = COUNTED.iter().position(|(_, known)| *known == word) {
            self.faults[at].add(1);
        }
    }
}
