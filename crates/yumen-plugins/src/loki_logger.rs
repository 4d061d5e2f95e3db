//! `loki-logger`: sends log entries to Grafana Loki.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PluginBuildContext, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkVerdict, VarTemplate,
};

use crate::logging::json_text::{ObjectWriter, write_json_text, write_number};
use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, post};
use crate::sink_url::{SinkUrl, http_servers};

/// Settings of `loki-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LokiLoggerSettings {
    /// Addresses of the servers, one of which receives a batch.
    #[schemars(
        length(min = 1),
        inner(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))
    )]
    endpoint_addrs: Vec<String>,
    /// Path behind the address.
    #[serde(default = "endpoint_uri")]
    #[schemars(length(min = 1))]
    endpoint_uri: String,
    /// Value of the field `X-Scope-OrgID`.
    #[serde(default = "tenant_id")]
    tenant_id: String,
    /// Further request fields.
    headers: Option<BTreeMap<String, String>>,
    /// Labels of the streams; values may have variables, which are resolved per request.
    #[serde(default = "log_labels")]
    log_labels: BTreeMap<String, String>,
    /// Whether the certificates of the servers are verified.
    #[serde(default)]
    ssl_verify: bool,
    /// Milliseconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1, max = 60_000))]
    timeout: u64,
    /// Whether connections are used again.
    #[serde(default = "keepalive")]
    keepalive: bool,
    /// Milliseconds for which an idle connection stays open.
    #[serde(default = "keepalive_timeout")]
    #[schemars(range(min = 1000))]
    keepalive_timeout: u64,
    /// Accepted for compatibility: a node has one connection per server.
    #[serde(default = "keepalive_pool", rename = "keepalive_pool")]
    #[schemars(range(min = 1))]
    _keepalive_pool: u64,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

fn endpoint_uri() -> String {
    "/loki/api/v1/push".to_owned()
}

fn tenant_id() -> String {
    "fake".to_owned()
}

fn log_labels() -> BTreeMap<String, String> {
    BTreeMap::from([("job".to_owned(), "apisix".to_owned())])
}

fn timeout() -> u64 {
    3000
}

fn keepalive() -> bool {
    true
}

fn keepalive_timeout() -> u64 {
    60_000
}

fn keepalive_pool() -> u64 {
    5
}

fn name() -> String {
    "loki logger".to_owned()
}

/// The plugin.
pub(crate) struct LokiLogger {
    /// Names, written values and templates of the labels.
    labels: Vec<(String, String, VarTemplate)>,
}

impl LoggerKind for LokiLogger {
    const NAME: &'static str = "loki-logger";
    const PRIORITY: i32 = 414;
    const UNMATCHED_ROUTE: Option<&'static str> = Some("no-matched");
    type Config = LokiLoggerSettings;

    fn build(
        config: LokiLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let (endpoints, base) = SinkUrl::parse_all("endpoint_addrs", &config.endpoint_addrs)?;
        let labels = config.log_labels.into_iter().map(|(name, value)| {
            let template = VarTemplate::parse(&value);
            (name, value, template)
        });
        let mut fields = vec![
            ("X-Scope-OrgID".to_owned(), config.tenant_id),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let is_own =
            |name: &str| ["x-scope-orgid", "content-type"].iter().any(|own| name.eq_ignore_ascii_case(own));
        fields.extend(config.headers.unwrap_or_default().into_iter().filter(|(name, _)| !is_own(name)));
        let encoder = LokiEncoder { target: format!("{base}{}", config.endpoint_uri), fields };
        let address = http_servers(
            endpoints,
            config.ssl_verify,
            config.timeout,
            if config.keepalive { config.keepalive_timeout } else { 0 },
        );
        let sink = config.common.batch.sink(config.name, address, encoder, setup);
        let kind = LokiLogger { labels: labels.collect() };
        Ok(config.common.parts(kind, sink))
    }

    /// Labels, time and line, each behind the other with a NUL, which JSON text never has.
    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        let mut text = Vec::new();
        for (name, written, template) in &self.labels {
            text.clear();
            // A label whose variables have no value keeps its text, as in APISIX.
            let resolved = template.render(entry.ex, &mut text);
            object.text(name, if resolved > 0 { &text } else { written.as_bytes() });
        }
        object.end();
        out.push(0);
        write_number(out, entry.ex.now.unix_ms);
        out.extend_from_slice(b"000000");
        out.push(0);
        entry.write_json(out);
    }
}

/// A time in nanoseconds and a line.
type TimedLine<'b> = (&'b [u8], &'b [u8]);

#[derive(Debug)]
struct LokiEncoder {
    target: String,
    fields: Vec<(String, String)>,
}

impl SinkEncoder for LokiEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let mut streams: BTreeMap<&[u8], Vec<TimedLine<'_>>> = BTreeMap::new();
        for entry in batch.entries(0) {
            let mut parts = entry.splitn(3, |byte| *byte == 0);
            if let (Some(labels), Some(time), Some(line)) = (parts.next(), parts.next(), parts.next()) {
                streams.entry(labels).or_default().push((time, line));
            }
        }
        let mut body = b"{\"streams\":[".to_vec();
        for (index, (labels, values)) in streams.iter().enumerate() {
            body.extend_from_slice(if index > 0 { b",{\"stream\":" } else { b"{\"stream\":" });
            body.extend_from_slice(labels);
            body.extend_from_slice(b",\"values\":[");
            for (index, (time, line)) in values.iter().enumerate() {
                body.extend_from_slice(if index > 0 { b",[" } else { b"[" });
                write_json_text(&mut body, time);
                body.push(b',');
                write_json_text(&mut body, line);
                body.push(b']');
            }
            body.extend_from_slice(b"]}");
        }
        body.extend_from_slice(b"]}");
        vec![post(batch, &self.target, self.fields.clone(), vec![Bytes::from(body)])]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            ..300 => SinkVerdict::Sent,
            status => {
                let body = reply.excerpt();
                SinkVerdict::Retry(format!("loki server returned status: {status}, body: {body}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
