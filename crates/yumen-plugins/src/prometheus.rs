//! `prometheus`: counts exchanges by route, service, consumer, endpoint and status, and streams by route.
//!
//! A worker finds its series by one hash over the labels and is the only writer of their counters. A lock is
//! only taken for a new series and for the export.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    Carry, Exchange, ExchangeOutcome, PhaseSet, Plugin, PluginBuildContext, PluginFactory, ResponseSource,
    ServedTraffic,
};

mod export;
mod series;

pub use export::DisabledLabels;
pub use series::PrometheusMetrics;
use series::{STREAM, SeriesLabels};

/// The metrics of this process. The exporter must retain the returned reference; otherwise they are dropped
/// when no configured plugin uses them.
pub fn metrics(carry: &Carry) -> Arc<PrometheusMetrics> {
    carry.keep("prometheus", PrometheusMetrics::default)
}

/// Metrics with one series of each family, for the reference page.
pub fn example() -> PrometheusMetrics {
    let metrics = PrometheusMetrics::default();
    let labels = SeriesLabels {
        status: 200,
        source: "upstream",
        route: "",
        service: "",
        matched_uri: "",
        matched_host: "",
        consumer: "",
        node: None,
    };
    metrics.record(&labels, &ExchangeOutcome::default(), 0);
    metrics.record(&SeriesLabels { source: STREAM, ..labels }, &ExchangeOutcome::default(), 0);
    metrics
}

/// Settings of `prometheus`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PrometheusSettings {
    /// Whether labels contain the names of routes and services instead of their ids.
    #[serde(default)]
    prefer_name: bool,
}

/// Plugin metadata of `prometheus`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct PrometheusMetadata {
    /// Labels to leave empty, by metric.
    #[serde(default)]
    disabled_labels: DisabledLabels,
}

/// The compiled settings with the metrics of the process.
pub struct Prometheus {
    prefer_name: bool,
    metrics: Arc<PrometheusMetrics>,
}

impl PluginFactory for Prometheus {
    const NAME: &'static str = "prometheus";
    const PRIORITY: i32 = 500;
    const VERSION: &'static str = "0.2";
    const PREFERS_ROUTE: bool = true;
    const SERVES: ServedTraffic = ServedTraffic::Both;
    type Config = PrometheusSettings;

    fn build(config: PrometheusSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let metadata = match setup.metadata {
            Some(value) => PrometheusMetadata::deserialize(value).map_err(InvalidSettings::from_serde)?,
            None => PrometheusMetadata::default(),
        };
        let metrics = metrics(setup.carry);
        metrics.disable(metadata.disabled_labels);
        Ok(Prometheus { prefer_name: config.prefer_name, metrics })
    }
}

fn first<'a>(preferred: &'a str, other: &'a str) -> &'a str {
    if preferred.is_empty() { other } else { preferred }
}

impl Plugin for Prometheus {
    fn phases(&self) -> PhaseSet {
        PhaseSet::LOG
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let (route, service) = match ex.route.info {
            None => ("", ""),
            Some(route) if self.prefer_name => {
                (first(&route.name, &route.id), first(&route.service_name, &route.service_id))
            }
            Some(route) => (&*route.id, &*route.service_id),
        };
        if ex.client.stream.is_some() {
            let nothing = SeriesLabels { source: STREAM, route, ..SeriesLabels::default() };
            return self.metrics.record(&nothing, outcome, ex.now.unix_s());
        }
        let source = match outcome.source {
            ResponseSource::Upstream => "upstream",
            // The gateway made the response after an attempt failed. APISIX counts such responses under
            // `nginx`.
            ResponseSource::Gateway if outcome.attempts > 0 => "nginx",
            ResponseSource::Gateway => "apisix",
        };
        let labels = SeriesLabels {
            status: outcome.status,
            source,
            route,
            service,
            matched_uri: ex.route.uri(),
            matched_host: ex.route.host,
            consumer: ex.consumer.map_or("", |consumer| &consumer.username),
            node: outcome.endpoint.map(|endpoint| endpoint.ip()),
        };
        self.metrics.record(&labels, outcome, ex.now.unix_s());
    }
}

#[cfg(test)]
mod tests;
