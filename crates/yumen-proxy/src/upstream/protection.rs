//! State of protected upstreams for metrics and operators: limits, retry budgets, ejections. The only change
//! made here is the end of expired ejections.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use tokio::sync::watch;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_snapshot::{Snapshot, Upstream, UpstreamProtection};

use crate::runtime::clock;

/// Maximum number of upstreams in the metrics, and of entries in a list; further ones are left out.
const UPSTREAMS_MAX: usize = 1000;

/// An ejected endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EjectedEndpoint {
    /// The object of the upstream, such as `upstreams/1`.
    pub upstream: Arc<str>,
    /// The address of the endpoint.
    pub endpoint: String,
    /// Time to the end of the ejection, in milliseconds.
    pub returns_in_ms: u64,
}

/// Returns the ejected endpoints of a snapshot, at most 1000.
pub fn ejected(snapshot: &Snapshot) -> Vec<EjectedEndpoint> {
    let now_ms = clock::exact().mono_ms();
    let of_upstream = |upstream: &Arc<Upstream>| {
        // Ejections end lazily (decision 33), so expired ones end before they are listed.
        upstream.end_ejections(now_ms);
        let all = upstream.endpoints.iter().filter_map(|endpoint| {
            let until_ms = endpoint.outlier.as_ref()?.ejection.until_ms()?;
            Some(EjectedEndpoint {
                upstream: upstream.origin.clone(),
                endpoint: endpoint.addr.to_string(),
                returns_in_ms: until_ms.saturating_sub(now_ms),
            })
        });
        all.collect::<Vec<_>>()
    };
    snapshot.upstreams().flat_map(|(_, upstream)| of_upstream(upstream)).take(UPSTREAMS_MAX).collect()
}

/// Metric source for the protected upstreams of the current snapshot.
pub struct ProtectionMetrics(pub watch::Receiver<Arc<Snapshot>>);

type Read = fn(&UpstreamProtection) -> f64;

/// Metric families with one series per upstream.
const BY_UPSTREAM: [(&str, &str, MetricKind, Read); 4] = [
    (
        "yumen_upstream_requests",
        "Requests in flight to an upstream with limits or a retry budget.",
        MetricKind::Gauge,
        |all| f64::from(all.gate.requests.load(Relaxed)),
    ),
    (
        "yumen_upstream_connections",
        "Connections open to an upstream that bounds them.",
        MetricKind::Gauge,
        |all| f64::from(all.gate.connections.load(Relaxed)),
    ),
    ("yumen_upstream_pending", "Requests in the pending queue of an upstream.", MetricKind::Gauge, |all| {
        all.gate.waiting() as f64
    }),
    (
        "yumen_upstream_queued_total",
        "Requests that were queued for an upstream.",
        MetricKind::Counter,
        |all| all.gate.queued.load(Relaxed) as f64,
    ),
];

const REFUSALS: [(&str, Read); 3] = [
    ("full", |all| all.gate.refused_full.load(Relaxed) as f64),
    ("waited", |all| all.gate.refused_late.load(Relaxed) as f64),
    ("retry_budget", |all| all.gate.retries_refused.load(Relaxed) as f64),
];

impl MetricSource for ProtectionMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let snapshot = self.0.borrow().clone();
        let of = |(_, upstream): (_, &Arc<Upstream>)| {
            let upstream = upstream.clone();
            upstream.protection.is_some().then_some(upstream)
        };
        let all: Vec<Arc<Upstream>> = snapshot.upstreams().filter_map(of).take(UPSTREAMS_MAX).collect();
        gather(&all, out);
    }
}

/// Returns the families with one series each, so that the reference can list the labels.
pub fn example() -> Vec<MetricFamily> {
    let mut families = Vec::new();
    gather(&[], &mut families);
    for family in &mut families {
        let second = match &*family.name {
            "yumen_upstream_refused_total" => Some("reason"),
            name => name.starts_with("yumen_endpoint_").then_some("endpoint"),
        };
        let labels = ["upstream"].into_iter().chain(second).map(|label| (label, String::new())).collect();
        family.samples.push(MetricSeries { labels, value: MetricValue::Number(0.0) });
    }
    families
}

/// Appends the families of these upstreams.
fn gather(all: &[Arc<Upstream>], out: &mut Vec<MetricFamily>) {
    let protected = || {
        let protection = |upstream: &'_ Arc<Upstream>| upstream.protection.is_some();
        all.iter().filter(move |upstream| protection(upstream))
    };
    let name = |upstream: &Upstream| upstream.origin.to_string();
    for (family, help, kind, read) in BY_UPSTREAM {
        let sample = |upstream: &Arc<Upstream>| {
            let value = MetricValue::Number(read(upstream.protection.as_ref()?));
            Some(MetricSeries { labels: vec![("upstream", name(upstream))], value })
        };
        out.push(family_of(family, help, kind, protected().filter_map(sample).collect()));
    }
    let refused = protected().flat_map(|upstream| {
        let sample = move |(reason, read): (&str, Read)| {
            let value = MetricValue::Number(read(upstream.protection.as_ref()?));
            Some(MetricSeries {
                labels: vec![("upstream", name(upstream)), ("reason", reason.to_owned())],
                value,
            })
        };
        REFUSALS.into_iter().filter_map(sample)
    });
    out.push(family_of(
        "yumen_upstream_refused_total",
        "Requests and retries refused by the limiter of an upstream.",
        MetricKind::Counter,
        refused.collect(),
    ));
    gather_endpoints(all, out);
}

fn gather_endpoints(all: &[Arc<Upstream>], out: &mut Vec<MetricFamily>) {
    let now_ms = clock::exact().mono_ms();
    let (mut ejected, mut ejections) = (Vec::new(), Vec::new());
    for upstream in all {
        // As in `ejected`: no background task ends expired ejections.
        upstream.end_ejections(now_ms);
        for endpoint in &upstream.endpoints {
            let Some(tally) = &endpoint.outlier else { continue };
            let sample = |value: f64| MetricSeries {
                labels: vec![
                    ("upstream", upstream.origin.to_string()),
                    ("endpoint", endpoint.addr.to_string()),
                ],
                value: MetricValue::Number(value),
            };
            ejected.push(sample(f64::from(u8::from(tally.ejection.is_ejected()))));
            ejections.push(sample(tally.ejection.total() as f64));
        }
    }
    let help = "Whether an endpoint is ejected: 1 or 0.";
    out.push(family_of("yumen_endpoint_ejected", help, MetricKind::Gauge, ejected));
    let help = "Ejections of an endpoint.";
    out.push(family_of("yumen_endpoint_ejections_total", help, MetricKind::Counter, ejections));
}

fn family_of(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<MetricSeries>,
) -> MetricFamily {
    MetricFamily { name: name.into(), help: help.into(), kind, samples }
}
