//! `datadog`: sends metrics of each request to a DogStatsD server.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkRequest};

use crate::logging::json_text::{write_ms, write_number};
use crate::logging::{
    BatchSettings, BodySettings, FormatSettings, LogEntry, LoggerKind, LoggerParts, SinkPlan, batch_policy,
};

/// Size of a datagram that servers read whole by default.
const DATAGRAM_BYTES_MAX: usize = 8192;

/// Settings of `datadog`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DatadogSettings {
    /// Whether tags have the name of a route and service instead of the id, if there is a name.
    #[serde(default = "prefer_name")]
    prefer_name: bool,
    #[serde(flatten)]
    optional: OptionalTags,
    /// Further tags, as `name:value`.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 200), regex(pattern = r"^[^\W\d_][\w.:/-]*$")))]
    constant_tags: Vec<String>,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    batch: BatchSettings,
}

/// Tags that metrics have on request.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct OptionalTags {
    /// Whether metrics have the path of the route as a tag.
    #[serde(default)]
    include_path: bool,
    /// Whether metrics have the method as a tag.
    #[serde(default)]
    include_method: bool,
}

/// Metadata of `datadog`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DatadogMetadata {
    /// Host of the server.
    #[serde(default = "host")]
    host: String,
    /// Port of the server.
    #[serde(default = "port")]
    port: u16,
    /// Prefix of the metric names.
    #[serde(default = "namespace")]
    namespace: String,
    /// Tags of all metrics.
    #[serde(default = "constant_tags")]
    #[schemars(inner(length(min = 1, max = 200), regex(pattern = r"^[^\W\d_][\w.:/-]*$")))]
    constant_tags: Vec<String>,
    /// Maximum number of waiting entries; later ones are discarded.
    #[serde(default = "max_pending_entries", rename = "max_pending_entries")]
    #[schemars(range(min = 1))]
    _max_pending_entries: u64,
}

fn prefer_name() -> bool {
    true
}

fn name() -> String {
    "datadog".to_owned()
}

fn host() -> String {
    "127.0.0.1".to_owned()
}

fn port() -> u16 {
    8125
}

fn namespace() -> String {
    "apisix".to_owned()
}

fn constant_tags() -> Vec<String> {
    vec!["source:apisix".to_owned()]
}

fn max_pending_entries() -> u64 {
    8192
}

/// The plugin.
pub(crate) struct DatadogLogger {
    prefer_name: bool,
    optional: OptionalTags,
    /// Prefix of the metric names, with a dot.
    prefix: String,
    /// Constant tags, joined.
    tags: String,
}

impl LoggerKind for DatadogLogger {
    const NAME: &'static str = "datadog";
    const PRIORITY: i32 = 495;
    type Config = DatadogSettings;

    fn build(
        config: DatadogSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let metadata = setup.metadata.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let metadata: DatadogMetadata =
            serde_json::from_value(metadata).map_err(InvalidSettings::from_serde)?;
        let DatadogMetadata { host, port, namespace, constant_tags, .. } = metadata;
        let prefix = if namespace.is_empty() { namespace } else { format!("{namespace}.") };
        let kind = DatadogLogger {
            prefer_name: config.prefer_name,
            optional: config.optional,
            prefix,
            tags: [constant_tags, config.constant_tags].concat().join(","),
        };
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Udp { host, port },
            policy: batch_policy(&config.batch, setup.metadata),
            encoder: Arc::new(StatsdEncoder),
            encoder_settings: String::new(),
        };
        let (format, bodies) = (FormatSettings::default(), BodySettings::default());
        Ok(LoggerParts { kind, format, bodies, sink })
    }

    fn uses_form(&self) -> bool {
        false
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let tags = self.tags(entry);
        let mut is_first = true;
        let mut line = |name: &str, kind: &str, write: &dyn Fn(&mut Vec<u8>)| {
            if !is_first {
                out.push(b'\n');
            }
            is_first = false;
            out.extend_from_slice(self.prefix.as_bytes());
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            write(out);
            out.push(b'|');
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(b"|#");
            out.extend_from_slice(tags.as_bytes());
        };
        let (latency_us, upstream_us) = entry.latency_us();
        line("request.counter", "c", &|out| out.push(b'1'));
        line("request.latency", "h", &|out| write_ms(out, latency_us));
        if let Some(upstream_us) = upstream_us {
            line("upstream.latency", "h", &|out| write_ms(out, upstream_us));
        }
        let gateway_us = latency_us.saturating_sub(upstream_us.unwrap_or(0));
        line("apisix.latency", "h", &|out| write_ms(out, gateway_us));
        line("ingress.size", "ms", &|out| write_number(out, entry.outcome.received_bytes));
        line("egress.size", "ms", &|out| write_number(out, entry.outcome.sent_bytes));
    }
}

impl DatadogLogger {
    fn tags(&self, entry: &LogEntry<'_, '_>) -> String {
        let (ex, outcome) = (entry.ex, entry.outcome);
        let mut tags = self.tags.clone();
        let mut add = |name: &str, value: &str| {
            if value.is_empty() {
                return;
            }
            if !tags.is_empty() {
                tags.push(',');
            }
            tags.push_str(name);
            tags.push(':');
            // These characters end a tag or a metric.
            tags.extend(
                value.chars().map(|c| if matches!(c, ',' | '|' | '#') || c.is_control() { '_' } else { c }),
            );
        };
        let preferred = |name: &str, id: &str| {
            if self.prefer_name && !name.is_empty() { name.to_owned() } else { id.to_owned() }
        };
        if let Some(route) = ex.route.info {
            add("route_name", &preferred(&route.name, &route.id));
        }
        if self.optional.include_path {
            add("path", ex.route.uri());
        }
        if self.optional.include_method {
            add("method", &String::from_utf8_lossy(ex.request.method_name()));
        }
        if let Some(route) = ex.route.info {
            add("service_name", &preferred(&route.service_name, &route.service_id));
        }
        if let Some(consumer) = ex.consumer {
            add("consumer", &consumer.username);
        }
        if let Some(endpoint) = outcome.endpoint {
            add("balancer_ip", &endpoint.ip().to_string());
        }
        let mut class = String::new();
        write!(class, "{}xx", outcome.status / 100).expect("a string takes every write");
        add("response_status", &outcome.status.to_string());
        add("response_status_class", &class);
        add("scheme", ex.client.scheme());
        tags
    }
}

struct StatsdEncoder;

impl SinkEncoder for StatsdEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::LINES
    }

    /// Datagrams of several entries, as far as they fit.
    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let mut requests: Vec<SinkRequest> = Vec::new();
        let (mut datagram, mut entries) = (Vec::new(), 0);
        let mut finish = |datagram: &mut Vec<u8>, entries: &mut usize| {
            if *entries > 0 {
                let body = vec![Bytes::from(std::mem::take(datagram))];
                requests.push(SinkRequest {
                    body,
                    entries: std::mem::take(entries),
                    ..SinkRequest::default()
                });
            }
        };
        for entry in batch.entries(1) {
            if datagram.len() + entry.len() + 1 > DATAGRAM_BYTES_MAX {
                finish(&mut datagram, &mut entries);
            }
            if entries > 0 {
                datagram.push(b'\n');
            }
            datagram.extend_from_slice(entry);
            entries += 1;
        }
        finish(&mut datagram, &mut entries);
        requests
    }
}

#[cfg(test)]
mod tests;
