//! `prometheus`: counts what passed, by route, service, consumer, endpoint and status; streams by route.
//!
//! A worker finds its series by one hash over the labels and updates counters that nobody else writes;
//! a lock is taken only where a series is new, and to read them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_plugin::{Carry, Configure, Exchange, Outcome, Phases, Plugin, Serves, Setup, Source};

mod export;
mod series;

pub use export::Disabled;
pub use series::Metrics;
use series::{Labels, STREAM};

/// The metrics of this process. Whoever exports them holds on to what this gives; else they are forgotten
/// when no configured plugin uses them.
pub fn metrics(carry: &Carry) -> Arc<Metrics> {
    carry.keep("prometheus", Metrics::default)
}

/// Metrics with one series of each family, for the reference.
pub fn example() -> Metrics {
    let metrics = Metrics::default();
    let labels = Labels {
        status: 200,
        source: "upstream",
        route: "",
        service: "",
        matched_uri: "",
        matched_host: "",
        consumer: "",
        node: None,
    };
    metrics.record(&labels, &Outcome::default(), 0);
    metrics.record(&Labels { source: STREAM, ..labels }, &Outcome::default(), 0);
    metrics
}

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// Whether routes and services are told by name rather than by id.
    #[serde(default)]
    prefer_name: bool,
}

/// What all `prometheus` plugins share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Labels to leave empty, by metric.
    #[serde(default)]
    disabled_labels: Disabled,
}

/// Counts.
pub struct Prometheus {
    prefer_name: bool,
    metrics: Arc<Metrics>,
}

impl Configure for Prometheus {
    const NAME: &'static str = "prometheus";
    const PRIORITY: i32 = 500;
    const VERSION: &'static str = "0.2";
    const PREFERS_ROUTE: bool = true;
    const SERVES: Serves = Serves::Both;
    type Config = Config;

    fn build(config: Config, setup: &Setup<'_>) -> Result<Self, Invalid> {
        let metadata = match setup.metadata {
            Some(value) => Metadata::deserialize(value).map_err(Invalid::from_serde)?,
            None => Metadata::default(),
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
    fn phases(&self) -> Phases {
        Phases::LOG
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &Outcome<'_>) {
        let (route, service) = match ex.route {
            None => ("", ""),
            Some(route) if self.prefer_name => {
                (first(&route.name, &route.id), first(&route.service_name, &route.service_id))
            }
            Some(route) => (&*route.id, &*route.service_id),
        };
        if ex.stream.is_some() {
            let nothing = Labels { source: STREAM, route, ..Labels::default() };
            return self.metrics.record(&nothing, outcome, ex.now.unix_s());
        }
        let source = match outcome.source {
            Source::Upstream => "upstream",
            // An endpoint was asked and gave no answer: what APISIX leaves to NGINX.
            Source::Gateway if outcome.attempts > 0 => "nginx",
            Source::Gateway => "apisix",
        };
        let labels = Labels {
            status: outcome.status,
            source,
            route,
            service,
            matched_uri: ex.matched_uri(),
            matched_host: ex.matched_host,
            consumer: ex.consumer.map_or("", |consumer| &consumer.username),
            node: outcome.endpoint.map(|endpoint| endpoint.ip()),
        };
        self.metrics.record(&labels, outcome, ex.now.unix_s());
    }
}

#[cfg(test)]
mod tests;
