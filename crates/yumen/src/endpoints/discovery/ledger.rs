//! Current state of all discovered services, for metrics and documents.
//!
//! Receives the state from the discovery tasks; makes no queries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};
use yumen_base::metric::{self, MetricFamily, MetricKind, MetricSeries, MetricSource};
use yumen_config::node::DiscoveryConfig;
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryQuery;

use super::service_standing::ServiceStanding;

#[derive(Debug)]
struct ServiceStatus {
    /// Active endpoints.
    nodes: Vec<UpstreamNode>,
    /// Active endpoints, or saved ones while there is no result yet.
    last_known: Vec<UpstreamNode>,
    error: Option<Box<str>>,
    last_answer: Option<Instant>,
    since: Instant,
}

#[derive(Debug, Default)]
struct ServiceStatuses {
    services: BTreeMap<Arc<DiscoveryQuery>, ServiceStatus>,
    errors: BTreeMap<Box<str>, u64>,
}

/// State of all services in use.
#[derive(Debug, Default)]
pub(crate) struct ServiceLedger {
    lines: Mutex<ServiceStatuses>,
}

impl ServiceLedger {
    fn lines(&self) -> MutexGuard<'_, ServiceStatuses> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, service: &Arc<DiscoveryQuery>, standing: &ServiceStanding) {
        let mut lines = self.lines();
        let line = lines.services.entry(service.clone()).or_insert_with(|| ServiceStatus {
            nodes: Vec::new(),
            last_known: Vec::new(),
            error: None,
            last_answer: None,
            since: Instant::now(),
        });
        line.last_answer = standing.last_answer();
        line.error = standing.error().map(Box::from);
        // Compared first: most results are equal, and the copies stay.
        if line.nodes != standing.nodes() {
            line.nodes = standing.nodes().to_vec();
        }
        if line.last_known != standing.last_known() {
            line.last_known = standing.last_known().to_vec();
        }
    }

    pub(super) fn forget(&self, service: &DiscoveryQuery) {
        self.lines().services.remove(service);
    }

    pub(super) fn failed(&self, source: &str) {
        // User-chosen types share one label, which bounds the number of series.
        let source = if SOURCES.contains(&source) { source } else { "other" };
        *self.lines().errors.entry(source.into()).or_default() += 1;
    }

    /// Last known endpoints of each service that has any.
    pub(crate) fn known(&self) -> Vec<(DiscoveryQuery, Vec<UpstreamNode>)> {
        let lines = self.lines();
        let known = lines.services.iter().filter(|(_, line)| !line.last_known.is_empty());
        known.map(|(service, line)| (DiscoveryQuery::clone(service), line.last_known.clone())).collect()
    }

    /// Document of `/yumen/v1/discovery`: endpoints, age of the last response, and trouble of each service.
    pub(crate) fn document(&self) -> Value {
        let lines = self.lines();
        let services = lines.services.iter().map(|(service, line)| {
            json!({
                "source": service.source,
                "service": service.name,
                "args": args(service),
                "endpoints": line.nodes,
                "last_success_age_ms": line.last_answer.map(|at| at.elapsed().as_millis() as u64),
                "trouble": line.error,
            })
        });
        let services: Vec<Value> = services.collect();
        json!({ "services": services, "errors": lines.errors })
    }

    /// Document of `/v1/discovery/{type}/dump` in the format of APISIX; `None` for an unknown type.
    pub(crate) fn dump(&self, source: &str, settings: &DiscoveryConfig) -> Option<Value> {
        let mut config = serde_json::to_value(settings).unwrap_or_default()[source].take();
        if !config.is_object() {
            return None;
        }
        // Hosts of Nacos may contain credentials.
        for secret in ["token", "host"] {
            if config.get(secret).is_some() {
                config[secret] = "(hidden)".into();
            }
        }
        let lines = self.lines();
        let mut services = Map::new();
        for (service, line) in lines.services.iter().filter(|(service, _)| &*service.source == source) {
            services.insert(service.name.to_string(), json!(line.nodes));
        }
        Some(json!({ "config": config, "services": services }))
    }
}

fn args(service: &DiscoveryQuery) -> Value {
    serde_json::from_str(&service.args).unwrap_or_default()
}

/// Supported discovery types.
const SOURCES: [&str; 4] = ["dns", "consul", "consul_kv", "nacos"];

impl MetricSource for ServiceLedger {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let lines = self.lines();
        let per_source = |of: &dyn Fn(&str) -> f64| {
            let sample = |source: &&str| MetricSeries {
                labels: vec![("source", (*source).to_owned())],
                value: metric::MetricValue::Number(of(source)),
            };
            SOURCES.iter().map(sample).collect::<Vec<_>>()
        };
        let of_source = |source: &str| {
            let source = source.to_owned();
            lines.services.iter().filter(move |(service, _)| *service.source == *source).map(|(_, line)| line)
        };
        let mut family = |name: &'static str, help: &'static str, kind, samples| {
            out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
        };
        family(
            "yumen_discovery_services",
            "Discovered services in use, by source.",
            MetricKind::Gauge,
            per_source(&|source| of_source(source).count() as f64),
        );
        family(
            "yumen_discovery_services_stale",
            "Services with a failing source or without endpoints, by source.",
            MetricKind::Gauge,
            per_source(&|source| of_source(source).filter(|line| line.error.is_some()).count() as f64),
        );
        family(
            "yumen_discovery_last_success_age_seconds",
            "Age of the oldest successful answer over the services of a source.",
            MetricKind::Gauge,
            per_source(&|source| {
                let ages = of_source(source).map(|line| line.last_answer.unwrap_or(line.since).elapsed());
                ages.max().unwrap_or_default().as_secs_f64()
            }),
        );
        family(
            "yumen_discovery_errors_total",
            "Failed discovery queries, by source.",
            MetricKind::Counter,
            per_source(&|source| lines.errors.get(source).copied().unwrap_or(0) as f64),
        );
    }
}
