//! What a worker counts.

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

/// The counters of one worker; it alone writes them.
#[derive(Debug)]
pub struct WorkerCounters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused because the worker holds as many as it may.
    pub refused: Counter,
    /// Times no connection could be accepted, for want of descriptors or memory.
    pub accept_failures: Counter,
    /// Connections open.
    pub connections: Gauge,
    /// Requests finished, by status class: index 1 is 1xx; 0 is none sent.
    pub requests: [Counter; 6],
    /// Bytes received from clients.
    pub received_bytes: Counter,
    /// Bytes sent to clients.
    pub sent_bytes: Counter,
    /// Connections made to endpoints.
    pub connects: Counter,
    /// Requests sent over a connection that had carried one before.
    pub reuses: Counter,
    /// Attempts after the first.
    pub retries: Counter,
    /// TLS handshakes completed with clients.
    pub handshakes: Counter,
    /// TLS handshakes that failed.
    pub handshake_failures: Counter,
    /// Connections whose first bytes were no request of any version.
    pub strangers: Counter,
    /// Idle connections to endpoints, as of the last sweep.
    pub idle_upstream: Gauge,
    /// Bytes of bodies held for peers that do not take them, as of the last look.
    pub backlog_bytes: Gauge,
    /// How many there may be; 0 is no bound.
    pub backlog_bytes_max: Gauge,
    /// Exchanges and connections ended because there were more.
    pub backlog_ended: Counter,
    /// The share of requests shed, in thousandths, as of the last look.
    pub shed_share: Gauge,
    /// Idle connections closed because their endpoint was taken out of the configuration.
    pub departed_upstream: Counter,
    /// Tunnels ended because their route or endpoint changed.
    pub tunnels_ended: Counter,
    /// Access log lines dropped because the writer was behind.
    pub log_lines_dropped: Counter,
    /// Computations that ran beside the worker.
    pub offloaded: Counter,
    /// Computations refused because too many waited.
    pub offload_refused: Counter,
    /// Times the worker did its chores: one that stands still does none.
    pub beats: Counter,
    /// Connections whose task panicked; the connection is lost, the worker is not.
    pub panics: Counter,
    /// Client connections that spoke HTTP/2.
    pub http2_connections: Counter,
    /// Of those, the ones closed because the client broke its rules.
    pub http2_faults: Counter,
    /// Of those, the ones closed for a flood of frames.
    pub http2_floods: Counter,
    /// Connections of HTTP/2 to endpoints closed for a flood of frames.
    pub upstream_http2_floods: Counter,
    /// Client connections that spoke HTTP/3.
    pub http3_connections: Counter,
    /// Of those, the ones closed because the client broke its rules.
    pub http3_faults: Counter,
    /// Of those, the ones closed because the client took back too many requests or sent a frame that is too long.
    pub http3_floods: Counter,
    /// Calls of gRPC answered, by status; the last one is none of the protocol's.
    pub grpc: [Counter; 18],
    /// Copies of requests sent to mirrors: answered, failed, and dropped before they were sent.
    pub mirrored: [Counter; 3],
    /// Exchanges that failed, in the order of [`COUNTED`].
    pub(crate) faults: [Counter; COUNTED.len()],
    /// Streams.
    pub(crate) streams: StreamCounters,
    /// What plugins asked Redis.
    pub(crate) redis: Arc<yumen_redis::RedisCounters>,
    pub(crate) duration: Histogram,
    /// What its samples of the traffic tell.
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
    /// Counts one finished exchange.
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

    /// Counts the panic that drops its caller; says whether it is one.
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
