//! The health of endpoints as plain data and as a metric. Read-only.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde::{Serialize, Serializer};
use tokio::sync::watch;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_snapshot::upstream::{Endpoint, EndpointHealth, ProbeKind};
use yumen_snapshot::{Snapshot, Upstream};

use crate::upstream::health::CHANGES;

/// The health of an upstream's endpoints; serialized, it is an item of `/v1/healthcheck`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamHealth {
    /// The path of the upstream's object, such as `upstreams/1`.
    #[serde(rename = "name", serialize_with = "as_path")]
    pub origin: Arc<str>,
    /// The type of the probe: `http`, `https` or `tcp`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The endpoints of the upstream, in order.
    pub nodes: Vec<NodeHealth>,
}

/// The health of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeHealth {
    /// The IP address of the endpoint.
    pub ip: IpAddr,
    /// The host as configured in the node.
    pub hostname: Box<str>,
    /// The port of the endpoint.
    pub port: u16,
    /// The health state.
    pub status: NodeStatus,
    /// Counts of observations, by probes and by traffic.
    pub counter: NodeCounter,
}

/// Numbers of consecutive observations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounter {
    /// Successes that count towards the healthy state.
    pub success: u32,
    /// Responses with an unhealthy status.
    pub http_failure: u32,
    /// Failed connections.
    pub tcp_failure: u32,
    /// Timeouts.
    pub timeout_failure: u32,
}

/// The path of the object in the store, by which APISIX names upstreams here and in the metric.
fn path(origin: &str) -> String {
    format!("/apisix/{origin}")
}

fn as_path<S: Serializer>(origin: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path(origin))
}

/// The state of an endpoint, with recent observations to the contrary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Healthy.
    Healthy,
    /// Healthy, with recent failures.
    MostlyHealthy,
    /// Unhealthy, with recent successes.
    MostlyUnhealthy,
    /// Unhealthy.
    Unhealthy,
}

/// The health of all upstreams that have checks.
pub fn report(snapshot: &Snapshot) -> Vec<UpstreamHealth> {
    snapshot.upstreams().filter_map(|(_, upstream)| of_upstream(upstream)).collect()
}

pub(super) fn of_upstream(upstream: &Upstream) -> Option<UpstreamHealth> {
    let kind = match upstream.checks.as_ref()?.active.probe {
        ProbeKind::Grpc { verify: None, .. } => "grpc",
        ProbeKind::Grpc { .. } => "grpcs",
        ProbeKind::Tcp => "tcp",
        ProbeKind::Http { .. } => "http",
        ProbeKind::Https { .. } => "https",
    };
    let nodes = upstream.endpoints.iter();
    let nodes = nodes.filter_map(|endpoint| Some(of_endpoint(endpoint, endpoint.health.as_ref()?))).collect();
    Some(UpstreamHealth { origin: upstream.origin.clone(), kind, nodes })
}

fn of_endpoint(endpoint: &Endpoint, health: &EndpointHealth) -> NodeHealth {
    let (active, passive) = (&health.active, &health.passive);
    let sum = |one: &AtomicU32, other: &AtomicU32| one.load(Relaxed) + other.load(Relaxed);
    let counter = NodeCounter {
        success: sum(&active.successes, &passive.successes),
        http_failure: sum(&active.http_failures, &passive.http_failures),
        tcp_failure: sum(&active.tcp_failures, &passive.tcp_failures),
        timeout_failure: sum(&active.timeouts, &passive.timeouts),
    };
    let status = match health.is_up() {
        true if counter.http_failure + counter.tcp_failure + counter.timeout_failure > 0 => {
            NodeStatus::MostlyHealthy
        }
        true => NodeStatus::Healthy,
        false if counter.success > 0 => NodeStatus::MostlyUnhealthy,
        false => NodeStatus::Unhealthy,
    };
    NodeHealth {
        ip: endpoint.addr.ip(),
        hostname: endpoint.host.clone(),
        port: endpoint.addr.port(),
        status,
        counter,
    }
}

/// The metrics of endpoint health: `apisix_upstream_status` from the newest snapshot, and the number of state
/// changes.
pub struct HealthMetrics(pub watch::Receiver<Arc<Snapshot>>);

impl MetricSource for HealthMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let snapshot = self.0.borrow().clone();
        out.push(status_family(&report(&snapshot)));
        let changes = ["unhealthy", "healthy"].iter().zip(&CHANGES).map(|(to, changes)| MetricSeries {
            labels: vec![("to", (*to).to_owned())],
            value: MetricValue::Number(changes.get() as f64),
        });
        out.push(MetricFamily {
            name: "yumen_health_changes_total".into(),
            help: "Endpoints that became healthy or unhealthy, by probes or by traffic.".into(),
            kind: MetricKind::Counter,
            samples: changes.collect(),
        });
    }
}

/// The metric `apisix_upstream_status` of these upstreams.
pub fn status_family(upstreams: &[UpstreamHealth]) -> MetricFamily {
    MetricFamily {
        name: "apisix_upstream_status".into(),
        help: "Health of an endpoint by its checks: 1 healthy, 0 unhealthy.".into(),
        kind: MetricKind::Gauge,
        samples: upstreams.iter().flat_map(samples_of).collect(),
    }
}

pub(super) fn samples_of(upstream: &UpstreamHealth) -> Vec<MetricSeries> {
    let sample = |node: &NodeHealth| MetricSeries {
        labels: vec![
            ("name", path(&upstream.origin)),
            ("ip", node.ip.to_string()),
            ("port", node.port.to_string()),
        ],
        value: MetricValue::Number(match node.status {
            NodeStatus::Healthy | NodeStatus::MostlyHealthy => 1.0,
            NodeStatus::Unhealthy | NodeStatus::MostlyUnhealthy => 0.0,
        }),
    };
    upstream.nodes.iter().map(sample).collect()
}
