//! Export of the series: sums over all workers, with the names and labels of APISIX.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_base::Histogram;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};

use super::series::{PrometheusMetrics, STREAM, WorkerSeries};

/// Labels to leave empty, by metric. Unknown metrics are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct DisabledLabels {
    /// Labels of `apisix_http_status`.
    #[serde(default)]
    http_status: BTreeSet<String>,
    /// Labels of `apisix_http_latency`.
    #[serde(default)]
    http_latency: BTreeSet<String>,
    /// Labels of `apisix_bandwidth`.
    #[serde(default)]
    bandwidth: BTreeSet<String>,
}

type Row = Vec<(&'static str, String)>;

/// Labels for AI traffic at the end of every row. Yumen has no such traffic; dashboards expect the labels.
fn tail() -> [(&'static str, String); 3] {
    [
        ("request_type", "traditional_http".to_owned()),
        ("request_llm_model", String::new()),
        ("llm_model", String::new()),
    ]
}

fn node(series: &WorkerSeries) -> String {
    series.node.map_or_else(String::new, |ip| ip.to_string())
}

fn status_row(series: &WorkerSeries) -> Row {
    let mut row = vec![
        ("code", series.status.to_string()),
        ("route", series.route.to_string()),
        ("matched_uri", series.matched_uri.to_string()),
        ("matched_host", series.matched_host.to_string()),
        ("service", series.service.to_string()),
        ("consumer", series.consumer.to_string()),
        ("node", node(series)),
    ];
    row.extend(tail());
    row.push(("response_source", series.source.to_owned()));
    row
}

fn typed_row(kind: &str, series: &WorkerSeries) -> Row {
    let mut row = vec![
        ("type", kind.to_owned()),
        ("route", series.route.to_string()),
        ("service", series.service.to_string()),
        ("consumer", series.consumer.to_string()),
        ("node", node(series)),
    ];
    row.extend(tail());
    row
}

fn blank(mut row: Row, disabled: &BTreeSet<String>) -> Row {
    row.iter_mut().filter(|(name, _)| disabled.contains(*name)).for_each(|(_, value)| value.clear());
    row
}

/// The sum of the histograms of several workers.
#[derive(Default)]
struct HistogramSum {
    counts: Vec<u64>,
    total_us: u64,
    bounds_us: &'static [u64],
}

impl HistogramSum {
    fn add(&mut self, histogram: &Histogram) {
        self.bounds_us = histogram.bounds();
        // The last count is that of the values above all bounds.
        self.counts.resize(self.bounds_us.len() + 1, 0);
        self.counts.iter_mut().zip(histogram.counts()).for_each(|(sum, count)| *sum += count);
        self.total_us += histogram.sum();
    }

    fn value(&self) -> MetricValue {
        // Buckets are cumulative in Prometheus.
        let mut below = 0;
        let mut cumulated = |count: &u64| {
            below += count;
            below
        };
        let bound_ms = |bound_us: &u64| *bound_us as f64 / 1000.0;
        let buckets = self
            .bounds_us
            .iter()
            .zip(&self.counts)
            .map(|(b, count)| (bound_ms(b), cumulated(count)))
            .collect();
        let count = self.counts.iter().sum();
        MetricValue::Buckets { buckets, sum: self.total_us as f64 / 1000.0, count }
    }
}

fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<MetricSeries>,
) -> MetricFamily {
    MetricFamily { name: name.into(), help: help.into(), kind, samples }
}

fn numbers(sums: BTreeMap<Row, u64>) -> Vec<MetricSeries> {
    sums.into_iter()
        .map(|(labels, sum)| MetricSeries { labels, value: MetricValue::Number(sum as f64) })
        .collect()
}

impl MetricSource for PrometheusMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let disabled = self.disabled();
        let mut status: BTreeMap<Row, u64> = BTreeMap::new();
        let mut bandwidth: BTreeMap<Row, u64> = BTreeMap::new();
        let mut latency: BTreeMap<Row, HistogramSum> = BTreeMap::new();
        let (streams, series): (Vec<_>, Vec<_>) =
            self.all().into_iter().partition(|series| series.source == STREAM);
        for series in series {
            let row = blank(status_row(&series), &disabled.http_status);
            *status.entry(row).or_default() += series.requests.get();
            for (kind, bytes) in [("ingress", &series.received_bytes), ("egress", &series.sent_bytes)] {
                let row = blank(typed_row(kind, &series), &disabled.bandwidth);
                *bandwidth.entry(row).or_default() += bytes.get();
            }
            for (kind, histogram) in ["request", "upstream", "apisix"].iter().zip(&series.latency_us) {
                // Without an attempt there is no upstream latency, and APISIX exports no row for it.
                if histogram.counts().any(|count| count > 0) {
                    let row = blank(typed_row(kind, &series), &disabled.http_latency);
                    latency.entry(row).or_default().add(histogram);
                }
            }
        }
        let latency =
            latency.into_iter().map(|(labels, sum)| MetricSeries { labels, value: sum.value() }).collect();
        let help = "Responses by status code and by route, service, consumer and node.";
        out.push(family("apisix_http_status", help, MetricKind::Counter, numbers(status)));
        let help = "Milliseconds of requests: as a whole, at the upstream, in the gateway.";
        out.push(family("apisix_http_latency", help, MetricKind::Histogram, latency));
        let help = "Bytes received from clients and sent to them.";
        out.push(family("apisix_bandwidth", help, MetricKind::Counter, numbers(bandwidth)));
        gather_streams(&streams, out);
    }
}

fn gather_streams(streams: &[Arc<WorkerSeries>], out: &mut Vec<MetricFamily>) {
    let mut connections: BTreeMap<Row, u64> = BTreeMap::new();
    let mut bandwidth: BTreeMap<Row, u64> = BTreeMap::new();
    for series in streams {
        let route = ("route", series.route.to_string());
        *connections.entry(vec![route.clone()]).or_default() += series.requests.get();
        for (kind, bytes) in [("ingress", &series.received_bytes), ("egress", &series.sent_bytes)] {
            let row = vec![("type", kind.to_owned()), route.clone()];
            *bandwidth.entry(row).or_default() += bytes.get();
        }
    }
    let help = "Connections and sessions of streams that have ended.";
    out.push(family("apisix_stream_connection_total", help, MetricKind::Counter, numbers(connections)));
    let help = "Bytes of streams received from clients and sent to them.";
    out.push(family("apisix_stream_bandwidth", help, MetricKind::Counter, numbers(bandwidth)));
}
