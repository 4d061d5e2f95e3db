//! `splunk-hec-logging`: sends events to the HTTP event collector of Splunk.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    PluginBuildContext, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkVerdict,
};

use crate::logging::json_text::{ObjectWriter, write_ms};
use crate::logging::{BatchSettings, BodySettings, FormatSettings, LogEntry, LoggerKind, LoggerParts, post};
use crate::sink_url::{SinkUrl, http_servers};

/// Settings of `splunk-hec-logging`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SplunkHecSettings {
    /// The event collector.
    endpoint: SplunkEndpoint,
    /// Whether the certificate of the server is verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    batch: BatchSettings,
    #[serde(flatten)]
    format: FormatSettings,
}

/// The event collector.
#[derive(Debug, Deserialize, JsonSchema)]
struct SplunkEndpoint {
    /// URL of the collector.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    uri: String,
    /// Token of the collector.
    token: String,
    /// Value of the field `X-Splunk-Request-Channel`.
    channel: Option<String>,
    /// Seconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Milliseconds for which an idle connection stays open.
    #[serde(default = "keepalive_timeout")]
    #[schemars(range(min = 1000))]
    keepalive_timeout: u64,
}

fn timeout() -> u64 {
    10
}

fn keepalive_timeout() -> u64 {
    60_000
}

fn ssl_verify() -> bool {
    true
}

fn name() -> String {
    "splunk-hec-logging".to_owned()
}

/// The plugin.
pub(crate) struct SplunkHecLogging;

impl LoggerKind for SplunkHecLogging {
    const NAME: &'static str = "splunk-hec-logging";
    const PRIORITY: i32 = 409;
    type Config = SplunkHecSettings;

    fn build(
        config: SplunkHecSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let SplunkEndpoint { uri, token, channel, timeout, keepalive_timeout } = config.endpoint;
        let url = SinkUrl::parse("endpoint.uri", &uri)?;
        let mut fields = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Authorization".to_owned(), format!("Splunk {token}")),
        ];
        fields.extend(channel.map(|channel| ("X-Splunk-Request-Channel".to_owned(), channel)));
        let encoder = SplunkEncoder { target: url.target, fields };
        let address = http_servers(
            vec![url.origin],
            config.ssl_verify,
            timeout.saturating_mul(1000),
            keepalive_timeout,
        );
        let sink = config.batch.sink(config.name, address, encoder, setup);
        let bodies = BodySettings::default();
        Ok(LoggerParts { kind: SplunkHecLogging, format: config.format, bodies, sink })
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let (ex, outcome) = (entry.ex, entry.outcome);
        let mut object = ObjectWriter::begin(out);
        // Seconds with their fraction.
        write_ms(object.member("time"), ex.now.unix_ms + outcome.duration_us / 1000);
        object.text("host", ProcessVars::current().map_or("", |process| &process.hostname));
        object.text("source", "apache-apisix-splunk-hec-logging");
        object.text("sourcetype", "_json");
        let out = object.member("event");
        if entry.is_custom() {
            entry.write_json(out);
        } else {
            write_event(entry, out);
        }
        object.end();
    }
}

fn write_event(entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
    let (ex, outcome) = (entry.ex, entry.outcome);
    let mut event = ObjectWriter::begin(out);
    let mut url = Vec::with_capacity(128);
    entry.write_url(&mut url);
    event.text("request_url", &url);
    event.text("request_method", ex.request.method_name());
    entry.write_request_fields(event.member("request_headers"));
    entry.write_query(event.member("request_query"));
    event.number("request_size", outcome.received_bytes);
    entry.write_response_fields(event.member("response_headers"));
    event.number("response_status", outcome.status.into());
    event.number("response_size", outcome.sent_bytes);
    write_ms(event.member("latency"), outcome.duration_us);
    if let Some(endpoint) = outcome.endpoint {
        event.text("upstream", endpoint.to_string());
    }
    event.end();
}

#[derive(Debug)]
struct SplunkEncoder {
    target: String,
    fields: Vec<(String, String)>,
}

impl SinkEncoder for SplunkEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        vec![post(batch, &self.target, self.fields.clone(), batch.framed(self.framing()))]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        if reply.status == 200 {
            return SinkVerdict::Sent;
        }
        let body = reply.excerpt();
        SinkVerdict::Retry(format!("failed to send splunk, status {}, body: {body}", reply.status))
    }
}
