//! Sums of the counters of all workers, and their metric families.

mod apisix;
mod observed;
mod streams;

use std::sync::Arc;

use yumen_base::metric::{MetricExemplar, MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};

use crate::fault::COUNTED;
use crate::observe::counters::{DURATION_BOUNDS_US, StreamCounters, WorkerCounters};
use crate::observe::exemplars::ExemplarTable;

/// The counters of all workers, added up on read.
pub struct AllCounters(pub Vec<Arc<WorkerCounters>>);

impl AllCounters {
    /// Counters with a series in every family, from which the metrics reference takes the labels.
    pub fn example() -> AllCounters {
        observed::example()
    }

    fn sum(&self, read: impl Fn(&WorkerCounters) -> f64) -> f64 {
        self.0.iter().map(|counters| read(counters)).sum()
    }

    /// A family with one series per label; `read` receives the index of the label.
    fn by<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: impl IntoIterator<Item = [(&'static str, String); N]>,
        read: impl Fn(&WorkerCounters, usize) -> u64,
    ) -> MetricFamily {
        let sample = |(at, labels): (usize, [(&'static str, String); N])| MetricSeries {
            labels: labels.into(),
            value: MetricValue::Number(self.sum(|counters| read(counters, at) as f64)),
        };
        let samples = labels.into_iter().enumerate().map(sample).collect();
        MetricFamily { name: name.into(), help: help.into(), kind: MetricKind::Counter, samples }
    }

    fn requests(&self) -> MetricFamily {
        let classes = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
        self.by(
            "yumen_requests_total",
            "Requests finished, by class of status.",
            classes.map(|class| [("class", class.to_owned())]),
            |c, at| c.requests.by_class[at].get(),
        )
    }

    fn mirrored(&self) -> MetricFamily {
        let outcomes = ["answered", "failed", "dropped"];
        self.by(
            "yumen_mirrored_requests_total",
            "Mirrored requests, by outcome.",
            outcomes.map(|outcome| [("outcome", outcome.to_owned())]),
            |c, at| c.requests.mirrored[at].get(),
        )
    }

    fn grpc_calls(&self) -> MetricFamily {
        let status = |status: usize| if status < 17 { status.to_string() } else { "none".into() };
        self.by(
            "yumen_grpc_calls_total",
            "gRPC calls finished, by status.",
            (0..18).map(|at| [("status", status(at))]),
            |c, at| c.requests.grpc[at].get(),
        )
    }

    fn faults(&self) -> MetricFamily {
        let labels = COUNTED.map(|(side, word)| [("fault", word.to_owned()), ("side", side.to_owned())]);
        self.by("yumen_faults_total", "Failed requests, by side and fault.", labels, |c, at| {
            c.requests.faults[at].get()
        })
    }

    fn redis_faults(&self) -> MetricFamily {
        let labels = yumen_redis::FAULTS.iter().map(|kind| [("kind", (*kind).to_owned())]);
        self.by("yumen_redis_faults_total", "Failed Redis requests, by fault.", labels, |c, at| {
            c.redis.faults[at].get()
        })
    }

    fn duration(&self) -> MetricValue {
        let mut counts = vec![0u64; DURATION_BOUNDS_US.len() + 1];
        let mut sum_us = 0;
        for counters in &self.0 {
            for (total, count) in counts.iter_mut().zip(counters.requests.duration.counts()) {
                *total += count;
            }
            sum_us += counters.requests.duration.sum();
        }
        let mut cumulated = 0;
        let buckets = DURATION_BOUNDS_US.iter().zip(&counts).map(|(bound, count)| {
            cumulated += count;
            (*bound as f64 / 1e6, cumulated)
        });
        let buckets = buckets.collect();
        MetricValue::Buckets { buckets, sum: sum_us as f64 / 1e6, count: counts.iter().sum() }
    }
}

fn single(name: &'static str, help: &'static str, kind: MetricKind, value: f64) -> MetricFamily {
    let samples = vec![MetricSeries { labels: Vec::new(), value: MetricValue::Number(value) }];
    MetricFamily { name: name.into(), help: help.into(), kind, samples }
}

type Read = fn(&WorkerCounters) -> f64;

/// Families with one series each.
const SINGLES: &[(&str, &str, MetricKind, Read)] = &[
    ("yumen_connections_accepted_total", "Client connections accepted.", MetricKind::Counter, |c| {
        c.connections.accepted.get() as f64
    }),
    (
        "yumen_connections_refused_total",
        "Client connections closed at the limit.",
        MetricKind::Counter,
        |c| c.connections.refused.get() as f64,
    ),
    (
        "yumen_accept_failures_total",
        "Failed accept calls (no descriptors or memory).",
        MetricKind::Counter,
        |c| c.connections.accept_failures.get() as f64,
    ),
    ("yumen_connections", "Client connections open.", MetricKind::Gauge, |c| c.connections.open.get() as f64),
    (
        "yumen_body_backlog_bytes",
        "Bytes of bodies held for peers that do not take them, of all workers.",
        MetricKind::Gauge,
        |c| c.backlog.bytes.get() as f64,
    ),
    (
        "yumen_body_backlog_limit_bytes",
        "The bound of `yumen_body_backlog_bytes`: `limits.backlog_bytes_per_worker` for each worker. 0 is no bound.",
        MetricKind::Gauge,
        |c| c.backlog.bytes_max.get() as f64,
    ),
    (
        "yumen_body_backlog_resets_total",
        "Exchanges and connections reset because the body backlog was full and they had stalled longest.",
        MetricKind::Counter,
        |c| c.backlog.ended.get() as f64,
    ),
    ("yumen_received_bytes_total", "Bytes received from clients.", MetricKind::Counter, |c| {
        c.requests.received_bytes.get() as f64
    }),
    ("yumen_sent_bytes_total", "Bytes sent to clients.", MetricKind::Counter, |c| {
        c.requests.sent_bytes.get() as f64
    }),
    ("yumen_upstream_connects_total", "Connections made to endpoints.", MetricKind::Counter, |c| {
        c.upstream.connects.get() as f64
    }),
    ("yumen_upstream_reuses_total", "Requests sent over kept-alive connections.", MetricKind::Counter, |c| {
        c.upstream.reuses.get() as f64
    }),
    ("yumen_upstream_retries_total", "Attempts after the first.", MetricKind::Counter, |c| {
        c.upstream.retries.get() as f64
    }),
    ("yumen_upstream_idle_connections", "Idle connections to endpoints.", MetricKind::Gauge, |c| {
        c.upstream.idle.get() as f64
    }),
    (
        "yumen_upstream_departed_connections_total",
        "Idle upstream connections closed because their endpoint was removed.",
        MetricKind::Counter,
        |c| c.upstream.departed.get() as f64,
    ),
    (
        "yumen_upstream_http2_floods_total",
        "HTTP/2 upstream connections closed for a control frame flood.",
        MetricKind::Counter,
        |c| c.upstream.http2_floods.get() as f64,
    ),
    (
        "yumen_tunnels_ended_total",
        "Tunnels ended by `on_change` because their route or endpoint changed.",
        MetricKind::Counter,
        |c| c.connections.tunnels_ended.get() as f64,
    ),
    ("yumen_tls_handshakes_total", "TLS handshakes completed.", MetricKind::Counter, |c| {
        c.connections.handshakes.get() as f64
    }),
    ("yumen_tls_handshake_failures_total", "TLS handshakes failed.", MetricKind::Counter, |c| {
        c.connections.handshake_failures.get() as f64
    }),
    (
        "yumen_connections_not_http_total",
        "Connections closed because their first bytes were not HTTP.",
        MetricKind::Counter,
        |c| c.connections.unknown_protocols.get() as f64,
    ),
    ("yumen_access_log_dropped_total", "Access log lines dropped.", MetricKind::Counter, |c| {
        c.runtime.log_lines_dropped.get() as f64
    }),
    (
        "yumen_offloaded_jobs_total",
        "Computations of plugins that ran beside their worker: bodies that are parsed, decoded or translated whole.",
        MetricKind::Counter,
        |c| c.runtime.offloaded.get() as f64,
    ),
    (
        "yumen_offloaded_jobs_refused_total",
        "Computations of plugins refused because too many waited; their requests are answered 503.",
        MetricKind::Counter,
        |c| c.runtime.offload_refused.get() as f64,
    ),
    ("yumen_connection_panics_total", "Connection tasks that panicked.", MetricKind::Counter, |c| {
        c.runtime.panics.get() as f64
    }),
    ("yumen_http2_connections_total", "HTTP/2 client connections.", MetricKind::Counter, |c| {
        c.http2.connections.get() as f64
    }),
    (
        "yumen_http2_faults_total",
        "HTTP/2 client connections closed for a protocol error.",
        MetricKind::Counter,
        |c| c.http2.faults.get() as f64,
    ),
    (
        "yumen_http2_floods_total",
        "HTTP/2 client connections closed for a control frame flood.",
        MetricKind::Counter,
        |c| c.http2.floods.get() as f64,
    ),
    ("yumen_http3_connections_total", "HTTP/3 client connections.", MetricKind::Counter, |c| {
        c.http3.connections.get() as f64
    }),
    (
        "yumen_http3_faults_total",
        "HTTP/3 client connections closed for a protocol error.",
        MetricKind::Counter,
        |c| c.http3.faults.get() as f64,
    ),
    (
        "yumen_http3_floods_total",
        "HTTP/3 client connections closed for excessive resets or an oversized frame.",
        MetricKind::Counter,
        |c| c.http3.floods.get() as f64,
    ),
    ("yumen_redis_round_trips_total", "Commands that Redis answered.", MetricKind::Counter, |c| {
        c.redis.round_trips.get() as f64
    }),
    ("yumen_redis_connects_total", "Connections made to Redis.", MetricKind::Counter, |c| {
        c.redis.connects.get() as f64
    }),
    (
        "yumen_redis_degraded_total",
        "Requests admitted because Redis was unavailable.",
        MetricKind::Counter,
        |c| c.redis.degraded.get() as f64,
    ),
];

impl MetricSource for AllCounters {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        for (name, help, kind, read) in SINGLES {
            out.push(single(name, help, *kind, self.sum(read)));
        }
        // The highest share of a worker: an average would hide it.
        let shed = self.0.iter().map(|counters| counters.runtime.shed_share.get()).max().unwrap_or(0);
        let help = "Share of requests shed for event delay, of the worker with the highest share.";
        out.push(single("yumen_shed_ratio", help, MetricKind::Gauge, shed as f64 / 1000.0));
        out.push(self.requests());
        self.gather_as_apisix(out);
        out.push(self.grpc_calls());
        out.push(self.mirrored());
        out.push(self.faults());
        out.push(self.redis_faults());
        out.push(MetricFamily {
            name: "yumen_request_duration_seconds".into(),
            help: "From the first byte of a request to the last of its response.".into(),
            kind: MetricKind::Histogram,
            samples: vec![MetricSeries { labels: Vec::new(), value: self.duration() }],
        });
        let counted: Vec<&StreamCounters> = self.0.iter().map(|counters| &counters.streams).collect();
        streams::gather(&counted, out);
        self.gather_plugins(out);
    }

    fn exemplars(&self, out: &mut Vec<MetricExemplar>) {
        let tables = self.0.iter().map(|counters| &counters.requests.exemplars);
        out.extend(ExemplarTable::newest(tables).map(|exemplar| MetricExemplar {
            family: "yumen_request_duration_seconds",
            trace_id: exemplar.trace_id(),
            value: exemplar.duration_us as f64 / 1e6,
            unix_ms: exemplar.unix_ms,
        }));
    }
}
