//! Sums of the samples of all workers: the document of `yumen top`, metric families, recent requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricValue as Number};
use yumen_plugin::ExchangeOutcome;

use super::AllCounters;
use crate::observe::call_counters::CallResult;
use crate::observe::counters::WorkerCounters;
use crate::observe::{RecentRequest, SampledExchange, UsageRow, UsageTable, UsageTables, UsageTotals};

impl AllCounters {
    /// Document of `yumen top`, cumulative since the start; a reader takes differences. Numbers outside
    /// `exact` are estimates from samples.
    pub fn top(&self) -> Value {
        let all = self.observed();
        let by_class: [u64; 6] =
            std::array::from_fn(|class| self.0.iter().map(|one| one.requests.by_class[class].get()).sum());
        let connections: i64 = self.0.iter().map(|one| one.connections.open.get()).sum();
        json!({
            "workers": self.0.len(),
            "exact": {
                "requests": by_class.iter().sum::<u64>(),
                "errors": by_class[5],
                "by_class": by_class,
                "received_bytes": self.0.iter().map(|one| one.requests.received_bytes.get()).sum::<u64>(),
                "sent_bytes": self.0.iter().map(|one| one.requests.sent_bytes.get()).sum::<u64>(),
                "connections": connections,
            },
            "total": usage(&all.total),
            "routes": rows(&all.routes),
            "upstreams": rows(&all.upstreams),
            "plugins": rows(&all.plugins),
            "consumers": rows(&all.consumers),
        })
    }

    /// Recent requests of all workers, the latest first.
    pub fn recent(&self) -> Vec<RecentRequest> {
        let of_worker = |one: &Arc<WorkerCounters>| {
            one.observed.read(|tables| tables.recent.iter().cloned().collect::<Vec<_>>())
        };
        let mut all: Vec<RecentRequest> = self.0.iter().flat_map(of_worker).collect();
        all.sort_by_key(|request| std::cmp::Reverse(request.at_unix_ms));
        all
    }

    fn observed(&self) -> UsageTables {
        let mut all = UsageTables::default();
        for counters in &self.0 {
            counters.observed.read(|tables| all.merge(tables));
        }
        all
    }

    /// Metric families of plugin costs.
    pub(super) fn gather_plugins(&self, out: &mut Vec<MetricFamily>) {
        type Read = fn(&UsageTotals) -> f64;
        let families: [(&'static str, &'static str, Read); 4] = [
            ("yumen_plugin_run_seconds_total", "Time spent in plugins, estimated from samples.", |usage| {
                usage.busy_ns as f64 / 1e9
            }),
            ("yumen_plugin_wait_seconds_total", "Time plugins waited, estimated from samples.", |usage| {
                usage.wait_ns as f64 / 1e9
            }),
            ("yumen_plugin_runs_total", "Plugin runs, estimated from samples.", |usage| {
                usage.requests as f64
            }),
            (
                "yumen_plugin_answers_total",
                "Requests answered by a plugin, estimated from samples.",
                |usage| usage.answers as f64,
            ),
        ];
        self.gather_calls(out);
        let mut plugins = UsageTable::default();
        for counters in &self.0 {
            counters.observed.read(|tables| plugins.merge(&tables.plugins));
        }
        for (name, help, read) in families {
            let sample = |(plugin, row): (&str, &UsageRow)| MetricSeries {
                labels: vec![("plugin", plugin.to_owned())],
                value: Number::Number(read(&row.usage)),
            };
            let samples = plugins.rows.iter().map(|(id, row)| (&**id, row)).map(sample).collect();
            out.push(MetricFamily {
                name: name.into(),
                help: help.into(),
                kind: MetricKind::Counter,
                samples,
            });
        }
    }
}

impl AllCounters {
    /// Calls of plugins without a response, by plugin: those that timed out, and those that were not sent because others
    /// wait.
    pub fn unanswered_calls(&self) -> BTreeMap<&'static str, u64> {
        let mut unanswered = BTreeMap::new();
        for (plugin, calls) in self.0.iter().flat_map(|counters| counters.calls.list()) {
            let count = |result: CallResult| calls.results[result as usize].get();
            *unanswered.entry(plugin).or_default() += count(CallResult::TimedOut) + count(CallResult::Busy);
        }
        unanswered
    }

    /// Metric families of calls to services.
    fn gather_calls(&self, out: &mut Vec<MetricFamily>) {
        let mut results: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut in_flight: BTreeMap<&str, i64> = BTreeMap::new();
        for (plugin, calls) in self.0.iter().flat_map(|counters| counters.calls.list()) {
            for (result, counter) in CallResult::NAMES.iter().zip(&calls.results) {
                *results.entry((plugin, result)).or_default() += counter.get();
            }
            *in_flight.entry(plugin).or_default() += calls.in_flight.get();
        }
        let total = |((plugin, result), count): ((&str, &str), u64)| MetricSeries {
            labels: vec![("plugin", plugin.to_owned()), ("result", result.to_owned())],
            value: Number::Number(count as f64),
        };
        let gauge = |(plugin, count): (&str, i64)| MetricSeries {
            labels: vec![("plugin", plugin.to_owned())],
            value: Number::Number(count as f64),
        };
        out.push(MetricFamily {
            name: "yumen_plugin_calls_total".into(),
            help: "Calls of plugins to services, by result.".into(),
            kind: MetricKind::Counter,
            samples: results.into_iter().map(total).collect(),
        });
        out.push(MetricFamily {
            name: "yumen_plugin_calls_in_flight".into(),
            help: "Calls of plugins to services that wait for a response.".into(),
            kind: MetricKind::Gauge,
            samples: in_flight.into_iter().map(gauge).collect(),
        });
    }
}

/// Rows by number of requests, highest first; requests of evicted rows have an id of their own.
fn rows(table: &UsageTable) -> Vec<Value> {
    let mut rows: Vec<(&str, &str, &UsageTotals)> =
        table.rows.iter().map(|(id, row)| (&**id, &*row.name, &row.usage)).collect();
    rows.sort_by(|a, b| b.2.requests.cmp(&a.2.requests).then_with(|| a.0.cmp(b.0)));
    if table.rest.requests > 0 {
        rows.push(("*", "no longer listed", &table.rest));
    }
    let describe = |(id, name, used): (&str, &str, &UsageTotals)| {
        let mut row = json!({ "id": id, "name": name });
        if let (Value::Object(row), Value::Object(numbers)) = (&mut row, usage(used)) {
            row.extend(numbers);
        }
        row
    };
    rows.into_iter().map(describe).collect()
}

fn usage(usage: &UsageTotals) -> Value {
    let buckets: Vec<(u64, u64)> = usage.durations.buckets().collect();
    json!({
        "requests": usage.requests,
        "errors": usage.errors,
        "answers": usage.answers,
        "busy_ns": usage.busy_ns,
        "wait_ns": usage.wait_ns,
        "received_bytes": usage.received_bytes,
        "sent_bytes": usage.sent_bytes,
        "duration_ns": usage.durations.sum_ns,
        "durations_us": buckets,
    })
}

/// Counters with one request in every family, from which the metrics reference takes the labels.
pub(super) fn example() -> AllCounters {
    let counters = WorkerCounters::default();
    counters.calls.of("opa").count(CallResult::Answered);
    let ran = yumen_plugin::PluginTiming {
        name: "key-auth",
        phase: yumen_plugin::Phase::Rewrite,
        origin: None,
        started_ns: 0,
        run_ns: 1_000,
        wait_ns: 0,
        answered: false,
    };
    counters.observed.note(SampledExchange {
        weight: 1,
        total_ns: 50_000,
        busy_ns: 10_000,
        upstream_ns: None,
        outcome: &ExchangeOutcome { status: 200, ..ExchangeOutcome::default() },
        route: Some(("1", "")),
        upstream: None,
        consumer: None,
        plugins: &[ran],
        recent: RecentRequest {
            at_unix_ms: 0,
            weight: 1,
            method: "GET".into(),
            scheme: "http",
            host: "example.com".into(),
            path: "/".into(),
            client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            sni: None,
            listener: None,
            is_cut: false,
            consumer: None,
            route_id: Some("1".into()),
            status: 200,
        },
        recent_max: 1,
    });
    AllCounters(vec![Arc::new(counters)])
}
