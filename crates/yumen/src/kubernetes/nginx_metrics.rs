//! Metrics of ingress-nginx: the series that its dashboards and alerts read, from the metrics of this node.
//!
//! Computed when the status listener is read. Workers count by the plugin `prometheus` on the routes of Ingresses, which
//! the translation adds while the series are on.

mod route_labels;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::Kind;
use yumen_store::{Store, StoreState};

use route_labels::RouteLabels;

type LabelRow = Vec<(&'static str, String)>;

/// The labels of the controller on every series.
#[derive(Debug, Clone)]
pub(crate) struct ControllerLabels {
    /// The controller of the class.
    pub(crate) class: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
}

impl ControllerLabels {
    fn row(&self) -> LabelRow {
        vec![
            ("controller_class", self.class.clone()),
            ("controller_namespace", self.namespace.clone()),
            ("controller_pod", self.pod.clone()),
        ]
    }
}

/// The use of the machine by a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessUse {
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: f64,
}

/// The series of ingress-nginx.
pub(crate) struct NginxMetrics {
    pub(crate) controller: ControllerLabels,
    /// The metrics that the series are computed from.
    pub(crate) sources: Vec<Arc<dyn MetricSource>>,
    /// The translated resources.
    pub(crate) store: Arc<dyn Store>,
    /// The use of the machine by this process.
    pub(crate) process: fn() -> ProcessUse,
}

impl MetricSource for NginxMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let mut families = Vec::new();
        self.sources.iter().for_each(|source| source.gather(&mut families));
        let state = self.store.state();
        let routes = RouteLabels::of(&state);
        let read = SourceMetrics { families: &families, routes: &routes, controller: &self.controller };
        read.gather_requests(out);
        read.gather_controller(out);
        read.gather_certificates(&state, out);
        read.gather_process((self.process)(), out);
        read.gather_orphans(out);
    }
}

/// The metrics of this node, as the source of those of ingress-nginx.
struct SourceMetrics<'m> {
    families: &'m [MetricFamily],
    routes: &'m RouteLabels,
    controller: &'m ControllerLabels,
}

/// Buckets that are added up.
#[derive(Default)]
struct BucketSum {
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

impl BucketSum {
    fn value(self) -> MetricValue {
        MetricValue::Buckets { buckets: self.buckets, sum: self.sum, count: self.count }
    }
}

impl SourceMetrics<'_> {
    fn series(&self, name: &str) -> impl Iterator<Item = &MetricSeries> {
        self.families.iter().filter(move |family| family.name == name).flat_map(|family| &family.samples)
    }

    /// The sum of all series of a metric.
    fn total(&self, name: &str) -> f64 {
        self.series(name).map(|series| number(&series.value)).sum()
    }

    fn gather_requests(&self, out: &mut Vec<MetricFamily>) {
        let mut requests: BTreeMap<LabelRow, f64> = BTreeMap::new();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for series in self.series("apisix_http_status") {
            let route = label(series, "route");
            let Some(mut row) = self.route_row(route) else { continue };
            row.push(("status", label(series, "code").to_owned()));
            let value = number(&series.value);
            *requests.entry(row).or_default() += value;
            *counts.entry(route).or_default() += value as u64;
        }
        let samples = requests.into_iter().map(|(labels, value)| plain(labels, value)).collect();
        let help = "Requests of Ingresses, by status.";
        out.push(family("requests", help, MetricKind::Counter, samples));
        self.gather_durations("request", "request_duration_seconds", "Seconds of requests.", out);
        let help = "Seconds that services took for their responses.";
        self.gather_durations("upstream", "response_duration_seconds", help, out);
        self.gather_sizes("ingress", "request_size", "Bytes of requests.", &counts, out);
        self.gather_sizes("egress", "response_size", "Bytes of responses.", &counts, out);
    }

    fn gather_durations(&self, kind: &str, name: &str, help: &'static str, out: &mut Vec<MetricFamily>) {
        let mut sums: BTreeMap<LabelRow, BucketSum> = BTreeMap::new();
        for series in self.series("apisix_http_latency").filter(|one| label(one, "type") == kind) {
            let Some(row) = self.route_row(label(series, "route")) else { continue };
            let MetricValue::Buckets { buckets, sum, count } = &series.value else { continue };
            let into = sums.entry(row).or_default();
            into.sum += sum / 1000.0;
            into.count += count;
            if into.buckets.is_empty() {
                into.buckets = buckets.iter().map(|(bound_ms, _)| (bound_ms / 1000.0, 0)).collect();
            }
            for (known, (_, below)) in into.buckets.iter_mut().zip(buckets) {
                known.1 += below;
            }
        }
        let samples = sums.into_iter().map(|(labels, sum)| MetricSeries { labels, value: sum.value() });
        out.push(family(name, help, MetricKind::Histogram, samples.collect()));
    }

    /// Sums and counts of bytes; the node has no buckets of sizes.
    fn gather_sizes(
        &self,
        kind: &str,
        name: &str,
        help: &'static str,
        counts: &BTreeMap<&str, u64>,
        out: &mut Vec<MetricFamily>,
    ) {
        let mut sums: BTreeMap<&str, BucketSum> = BTreeMap::new();
        for series in self.series("apisix_bandwidth").filter(|one| label(one, "type") == kind) {
            sums.entry(label(series, "route")).or_default().sum += number(&series.value);
        }
        let with_labels = sums.into_iter().filter_map(|(route, mut sum)| {
            sum.count = counts.get(route).copied().unwrap_or_default();
            Some(MetricSeries { labels: self.route_row(route)?, value: sum.value() })
        });
        out.push(family(name, help, MetricKind::Histogram, with_labels.collect()));
    }

    /// The labels of a route of an Ingress; `None` for other routes.
    fn route_row(&self, route: &str) -> Option<LabelRow> {
        let known = self.routes.get(route)?;
        let mut row = self.controller.row();
        row.extend([
            ("namespace", known.namespace.clone()),
            ("ingress", known.ingress.clone()),
            ("service", known.service.clone()),
            ("host", known.host.clone()),
            ("path", known.path.clone()),
            // The node counts neither of them; queries that name the labels still find them.
            ("method", String::new()),
            ("canary", String::new()),
        ]);
        Some(row)
    }

    fn gather_controller(&self, out: &mut Vec<MetricFamily>) {
        let is_settled = self.total("yumen_kubernetes_settled");
        let mut single = |name: &str, help: &'static str, kind: MetricKind, value: f64| {
            out.push(family(name, help, kind, vec![plain(self.controller.row(), value)]));
        };
        let help =
            "Whether the newest configuration is in force: every change is, or its object is quarantined.";
        single("config_last_reload_successful", help, MetricKind::Gauge, is_settled);
        let help = "Batches of changed objects that were translated.";
        single("success", help, MetricKind::Counter, self.total("yumen_kubernetes_translations"));
        let help =
            "Failed changes of the configuration: always 0, since a broken object is quarantined alone.";
        single("errors", help, MetricKind::Counter, 0.0);
        let mut labels = self.controller.row();
        labels.extend([
            ("release", env!("CARGO_PKG_VERSION").to_owned()),
            ("repository", "yumen".to_owned()),
            ("build", String::new()),
        ]);
        let help = "Always 1; the labels describe the program.";
        out.push(family("build_info", help, MetricKind::Gauge, vec![plain(labels, 1.0)]));
        let mut labels = self.controller.row();
        labels.push(("name", "yumen-controller".to_owned()));
        let value = self.total("yumen_kubernetes_leader");
        let help = "Whether this replica writes statuses.";
        out.push(family("leader_election_status", help, MetricKind::Gauge, vec![plain(labels, value)]));
    }

    fn gather_certificates(&self, state: &StoreState, out: &mut Vec<MetricFamily>) {
        let sample = |series: &MetricSeries| {
            let id = label(series, "ssl");
            let origin = state.get(Kind::Ssls, id).map(|entry| route_labels::origin(&entry.json));
            let namespace = origin.as_deref().and_then(namespace_of).unwrap_or_default();
            let mut labels = self.controller.row();
            labels.extend([
                ("host", label(series, "sni").to_owned()),
                ("namespace", namespace.to_owned()),
                // Certificates are known by their Ingress.
                ("secret_name", String::new()),
            ]);
            plain(labels, number(&series.value))
        };
        let samples = self.series("yumen_tls_certificate_expiry_seconds").map(sample).collect();
        let help = "Expiry of a certificate, in seconds since the Unix epoch; the 100 earliest.";
        out.push(family("ssl_expire_time_seconds", help, MetricKind::Gauge, samples));
    }

    fn gather_process(&self, used: ProcessUse, out: &mut Vec<MetricFamily>) {
        let mut process = |name: &str, help: &'static str, kind: MetricKind, values: &[(&str, f64)]| {
            let sample = |(state, value): &(&str, f64)| {
                let mut labels = self.controller.row();
                labels.extend(Some(("state", (*state).to_owned())).filter(|(_, state)| !state.is_empty()));
                plain(labels, *value)
            };
            let samples = values.iter().map(sample).collect();
            let name = format!("nginx_ingress_controller_nginx_process_{name}");
            out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
        };
        let help = "Client connections open.";
        process("connections", help, MetricKind::Gauge, &[("active", self.total("yumen_connections"))]);
        let accepted = self.total("yumen_connections_accepted_total");
        let handled = accepted - self.total("yumen_connections_refused_total");
        let help = "Client connections accepted, and those that were not closed at the limit.";
        let values = [("accepted", accepted), ("handled", handled)];
        process("connections_total", help, MetricKind::Counter, &values);
        let total = self.total("yumen_requests_total");
        process("requests_total", "Requests finished.", MetricKind::Counter, &[("", total)]);
        process("cpu_seconds_total", "CPU seconds.", MetricKind::Counter, &[("", used.cpu_s)]);
        process("resident_memory_bytes", "Resident bytes.", MetricKind::Gauge, &[("", used.resident_bytes)]);
        process("num_procs", "Processes.", MetricKind::Gauge, &[("", 1.0)]);
    }

    /// Ingresses with a backend that cannot answer.
    fn gather_orphans(&self, out: &mut Vec<MetricFamily>) {
        let sample = |(namespace, ingress, kind): &(String, String, &'static str)| {
            let mut labels = self.controller.row();
            labels.extend([
                ("namespace", namespace.clone()),
                ("ingress", ingress.clone()),
                ("type", (*kind).to_owned()),
            ]);
            plain(labels, 1.0)
        };
        let samples = self.routes.orphans().iter().map(sample).collect();
        let help =
            "1 for an Ingress whose Service does not exist (no-service) or has no endpoint (no-endpoint).";
        out.push(family("orphan_ingress", help, MetricKind::Gauge, samples));
    }
}

fn family(name: &str, help: &'static str, kind: MetricKind, samples: Vec<MetricSeries>) -> MetricFamily {
    let name = format!("nginx_ingress_controller_{name}");
    MetricFamily { name: name.into(), help: help.into(), kind, samples }
}

fn plain(labels: LabelRow, value: f64) -> MetricSeries {
    MetricSeries { labels, value: MetricValue::Number(value) }
}

fn number(value: &MetricValue) -> f64 {
    match value {
        MetricValue::Number(number) => *number,
        MetricValue::Buckets { sum, .. } => *sum,
    }
}

fn label<'s>(series: &'s MetricSeries, name: &str) -> &'s str {
    series.labels.iter().find(|(one, _)| *one == name).map_or("", |(_, value)| value)
}

/// The namespace of an object such as `Ingress/shop/cart`.
fn namespace_of(origin: &str) -> Option<&str> {
    origin.split('/').nth(1)
}
