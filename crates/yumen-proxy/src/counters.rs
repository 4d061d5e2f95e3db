//! What a worker counts, and the families it becomes.

mod stream;

use std::sync::Arc;

use yumen_base::metric::{Family, Gather, MetricKind, Sample, Value};
use yumen_base::{Counter, Gauge, Histogram};
use yumen_plugin::Outcome;

use crate::fault::COUNTED;
use crate::observe::Observed;
use stream::StreamCounters;

/// Upper bounds of request durations, in microseconds.
static DURATION_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The counters of one worker; it alone writes them.
#[derive(Debug)]
pub struct Counters {
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
    /// Idle connections to endpoints, as of the last sweep.
    pub idle_upstream: Gauge,
    /// The share of requests shed, in thousandths, as of the last look.
    pub shed_share: Gauge,
    /// Idle connections closed because their endpoint was taken out of the configuration.
    pub departed_upstream: Counter,
    /// Tunnels ended because their route or endpoint changed.
    pub tunnels_ended: Counter,
    /// Access log lines dropped because the writer was behind.
    pub log_lines_dropped: Counter,
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
    /// Client connections that spoke HTTP/3.
    pub http3_connections: Counter,
    /// Of those, the ones closed because the client broke its rules.
    pub http3_faults: Counter,
    /// Of those, the ones closed because the client took back too many requests.
    pub http3_floods: Counter,
    /// Calls of gRPC answered, by status; the last one is none of the protocol's.
    pub grpc: [Counter; 18],
    /// Copies of requests sent to mirrors: answered, failed, and dropped before they were sent.
    pub mirrored: [Counter; 3],
    /// Exchanges that failed, in the order of [`COUNTED`].
    faults: [Counter; COUNTED.len()],
    /// Streams.
    pub(crate) streams: StreamCounters,
    /// What plugins asked Redis.
    pub(crate) redis: Arc<yumen_redis::Counters>,
    duration: Histogram,
    /// What its samples of the traffic tell.
    pub(crate) observed: Observed,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
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
            idle_upstream: Gauge::default(),
            shed_share: Gauge::default(),
            departed_upstream: Counter::default(),
            tunnels_ended: Counter::default(),
            log_lines_dropped: Counter::default(),
            panics: Counter::default(),
            http2_connections: Counter::default(),
            http2_faults: Counter::default(),
            http2_floods: Counter::default(),
            http3_connections: Counter::default(),
            http3_faults: Counter::default(),
            http3_floods: Counter::default(),
            grpc: Default::default(),
            mirrored: Default::default(),
            faults: Default::default(),
            streams: StreamCounters::default(),
            redis: Arc::default(),
            duration: Histogram::new(DURATION_BOUNDS_US),
            observed: Observed::default(),
        }
    }
}

impl Counters {
    /// Counts one finished exchange.
    pub(crate) fn finish(&self, outcome: &Outcome<'_>) {
        let class = usize::from(outcome.status / 100).min(5);
        self.requests[class].add(1);
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

/// The counters of all workers, added up when asked.
pub struct AllCounters(pub Vec<Arc<Counters>>);

impl AllCounters {
    /// Counters with a series in every family, so that a reference can tell labels.
    pub fn example() -> AllCounters {
        crate::observe::example()
    }

    fn sum(&self, read: impl Fn(&Counters) -> f64) -> f64 {
        self.0.iter().map(|counters| read(counters)).sum()
    }

    fn requests(&self) -> Family {
        let classes = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let samples = classes.iter().enumerate().map(|(class, name)| Sample {
            labels: vec![("class", (*name).to_owned())],
            value: Value::Number(self.sum(|c| c.requests[class].get() as f64)),
        });
        Family {
            name: "yumen_requests_total".into(),
            help: "Requests finished, by class of status.".into(),
            kind: MetricKind::Counter,
            samples: samples.collect(),
        }
    }

    fn mirrored(&self) -> Family {
        let outcomes = ["answered", "failed", "dropped"];
        let samples = outcomes.iter().enumerate().map(|(at, outcome)| Sample {
            labels: vec![("outcome", (*outcome).to_owned())],
            value: Value::Number(self.sum(|c| c.mirrored[at].get() as f64)),
        });
        Family {
            name: "yumen_mirrored_requests_total".into(),
            help: "Copies of requests for mirrors, by what became of them.".into(),
            kind: MetricKind::Counter,
            samples: samples.collect(),
        }
    }

    fn grpc_calls(&self) -> Family {
        let samples = (0..18).map(|status| Sample {
            labels: vec![("status", if status < 17 { status.to_string() } else { "none".into() })],
            value: Value::Number(self.sum(|c| c.grpc[status].get() as f64)),
        });
        Family {
            name: "yumen_grpc_calls_total".into(),
            help: "gRPC calls finished, by status.".into(),
            kind: MetricKind::Counter,
            samples: samples.collect(),
        }
    }

    fn faults(&self) -> Family {
        let samples = COUNTED.iter().enumerate().map(|(at, (side, word))| Sample {
            labels: vec![("fault", (*word).to_owned()), ("side", (*side).to_owned())],
            value: Value::Number(self.sum(|c| c.faults[at].get() as f64)),
        });
        Family {
            name: "yumen_faults_total".into(),
            help: "Requests that failed, by whose fault it was and what went wrong.".into(),
            kind: MetricKind::Counter,
            samples: samples.collect(),
        }
    }

    fn redis_faults(&self) -> Family {
        let samples = yumen_redis::FAULTS.iter().enumerate().map(|(at, kind)| Sample {
            labels: vec![("kind", (*kind).to_owned())],
            value: Value::Number(self.sum(|c| c.redis.faults[at].get() as f64)),
        });
        Family {
            name: "yumen_redis_faults_total".into(),
            help: "Questions to Redis that got no answer, by what went wrong.".into(),
            kind: MetricKind::Counter,
            samples: samples.collect(),
        }
    }

    fn duration(&self) -> Value {
        let mut counts = vec![0u64; DURATION_BOUNDS_US.len() + 1];
        let mut sum_us = 0;
        for counters in &self.0 {
            for (total, count) in counts.iter_mut().zip(counters.duration.counts()) {
                *total += count;
            }
            sum_us += counters.duration.sum();
        }
        let mut cumulated = 0;
        let buckets = DURATION_BOUNDS_US.iter().zip(&counts).map(|(bound, count)| {
            cumulated += count;
            (*bound as f64 / 1e6, cumulated)
        });
        let buckets = buckets.collect();
        Value::Buckets { buckets, sum: sum_us as f64 / 1e6, count: counts.iter().sum() }
    }
}

fn single(name: &'static str, help: &'static str, kind: MetricKind, value: f64) -> Family {
    let samples = vec![Sample { labels: Vec::new(), value: Value::Number(value) }];
    Family { name: name.into(), help: help.into(), kind, samples }
}

type Read = fn(&Counters) -> f64;

/// The families with one series each.
const SINGLES: &[(&str, &str, MetricKind, Read)] = &[
    ("yumen_connections_accepted_total", "Client connections accepted.", MetricKind::Counter, |c| {
        c.accepted.get() as f64
    }),
    (
        "yumen_connections_refused_total",
        "Client connections closed at the limit.",
        MetricKind::Counter,
        |c| c.refused.get() as f64,
    ),
    (
        "yumen_accept_failures_total",
        "Times accepting failed for want of descriptors or memory.",
        MetricKind::Counter,
        |c| c.accept_failures.get() as f64,
    ),
    ("yumen_connections", "Client connections open.", MetricKind::Gauge, |c| c.connections.get() as f64),
    ("yumen_received_bytes_total", "Bytes received from clients.", MetricKind::Counter, |c| {
        c.received_bytes.get() as f64
    }),
    ("yumen_sent_bytes_total", "Bytes sent to clients.", MetricKind::Counter, |c| c.sent_bytes.get() as f64),
    ("yumen_upstream_connects_total", "Connections made to endpoints.", MetricKind::Counter, |c| {
        c.connects.get() as f64
    }),
    ("yumen_upstream_reuses_total", "Requests sent over kept-alive connections.", MetricKind::Counter, |c| {
        c.reuses.get() as f64
    }),
    ("yumen_upstream_retries_total", "Attempts after the first.", MetricKind::Counter, |c| {
        c.retries.get() as f64
    }),
    ("yumen_upstream_idle_connections", "Idle connections to endpoints.", MetricKind::Gauge, |c| {
        c.idle_upstream.get() as f64
    }),
    (
        "yumen_upstream_departed_connections_total",
        "Idle connections closed because their endpoint was taken out of the configuration.",
        MetricKind::Counter,
        |c| c.departed_upstream.get() as f64,
    ),
    (
        "yumen_tunnels_ended_total",
        "Tunnels ended by `on_change` because their route or endpoint changed.",
        MetricKind::Counter,
        |c| c.tunnels_ended.get() as f64,
    ),
    ("yumen_tls_handshakes_total", "TLS handshakes completed.", MetricKind::Counter, |c| {
        c.handshakes.get() as f64
    }),
    ("yumen_tls_handshake_failures_total", "TLS handshakes failed.", MetricKind::Counter, |c| {
        c.handshake_failures.get() as f64
    }),
    ("yumen_access_log_dropped_total", "Access log lines dropped.", MetricKind::Counter, |c| {
        c.log_lines_dropped.get() as f64
    }),
    ("yumen_connection_panics_total", "Connection tasks that panicked.", MetricKind::Counter, |c| {
        c.panics.get() as f64
    }),
    ("yumen_http2_connections_total", "Client connections that spoke HTTP/2.", MetricKind::Counter, |c| {
        c.http2_connections.get() as f64
    }),
    (
        "yumen_http2_faults_total",
        "HTTP/2 connections whose client broke its rules.",
        MetricKind::Counter,
        |c| c.http2_faults.get() as f64,
    ),
    (
        "yumen_http2_floods_total",
        "HTTP/2 connections closed for a flood of frames.",
        MetricKind::Counter,
        |c| c.http2_floods.get() as f64,
    ),
    ("yumen_http3_connections_total", "Client connections that spoke HTTP/3.", MetricKind::Counter, |c| {
        c.http3_connections.get() as f64
    }),
    (
        "yumen_http3_faults_total",
        "HTTP/3 connections whose client broke its rules.",
        MetricKind::Counter,
        |c| c.http3_faults.get() as f64,
    ),
    (
        "yumen_http3_floods_total",
        "HTTP/3 connections closed for requests taken back.",
        MetricKind::Counter,
        |c| c.http3_floods.get() as f64,
    ),
    ("yumen_redis_round_trips_total", "Commands that Redis answered.", MetricKind::Counter, |c| {
        c.redis.round_trips.get() as f64
    }),
    ("yumen_redis_connects_total", "Connections made to Redis.", MetricKind::Counter, |c| {
        c.redis.connects.get() as f64
    }),
    (
        "yumen_redis_degraded_total",
        "Requests let through because Redis could not tell their limit.",
        MetricKind::Counter,
        |c| c.redis.degraded.get() as f64,
    ),
];

impl Gather for AllCounters {
    fn gather(&self, out: &mut Vec<Family>) {
        for (name, help, kind, read) in SINGLES {
            out.push(single(name, help, *kind, self.sum(read)));
        }
        // Of the worker that sheds most: an average would hide it.
        let shed = self.0.iter().map(|counters| counters.shed_share.get()).max().unwrap_or(0);
        let help = "The share of requests shed because events wait too long, of the worker that sheds most.";
        out.push(single("yumen_shed_ratio", help, MetricKind::Gauge, shed as f64 / 1000.0));
        out.push(self.requests());
        out.push(self.grpc_calls());
        out.push(self.mirrored());
        out.push(self.faults());
        out.push(self.redis_faults());
        out.push(Family {
            name: "yumen_request_duration_seconds".into(),
            help: "From the first byte of a request to the last of its response.".into(),
            kind: MetricKind::Histogram,
            samples: vec![Sample { labels: Vec::new(), value: self.duration() }],
        });
        let streams: Vec<&StreamCounters> = self.0.iter().map(|counters| &counters.streams).collect();
        StreamCounters::gather(&streams, out);
        self.gather_plugins(out);
    }
}
