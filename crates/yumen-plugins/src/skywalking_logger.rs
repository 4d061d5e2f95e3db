//! `skywalking-logger`: sends log entries to Apache SkyWalking.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    Exchange, PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest,
    SinkTls, SinkVerdict,
};

use crate::logging::json_text::{ObjectWriter, write_json_text};
use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, post};
use crate::sink_url::SinkUrl;

/// Settings of `skywalking-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SkywalkingLoggerSettings {
    /// Address of the server; the path is `/v3/logs`.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    endpoint_addr: String,
    /// Name of the service.
    #[serde(default = "service_name")]
    service_name: String,
    /// Name of the instance; `$hostname` is the host name of the node.
    #[serde(default = "service_instance_name")]
    service_instance_name: String,
    /// Seconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

fn service_name() -> String {
    "APISIX".to_owned()
}

fn service_instance_name() -> String {
    "APISIX Instance Name".to_owned()
}

fn timeout() -> u64 {
    3
}

fn name() -> String {
    "skywalking logger".to_owned()
}

/// The plugin.
pub(crate) struct SkywalkingLogger {
    service: String,
    instance: String,
}

impl LoggerKind for SkywalkingLogger {
    const NAME: &'static str = "skywalking-logger";
    const PRIORITY: i32 = 408;
    type Config = SkywalkingLoggerSettings;

    fn build(
        config: SkywalkingLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let url = SinkUrl::parse("endpoint_addr", &config.endpoint_addr)?;
        let instance = match config.service_instance_name.as_str() {
            "$hostname" => {
                ProcessVars::current().map_or_else(String::new, |process| process.hostname.to_string())
            }
            name => name.to_owned(),
        };
        let encoder =
            SkywalkingLogEncoder { target: format!("{}/v3/logs", url.target.trim_end_matches('/')) };
        let address = SinkAddress::Http {
            endpoints: vec![url.origin],
            tls: SinkTls::default(),
            timeout_ms: config.timeout.saturating_mul(1000),
            idle_ms: 60_000,
        };
        let sink = config.common.batch.sink(config.name, address, encoder, setup);
        let kind = SkywalkingLogger { service: config.service_name, instance };
        Ok(config.common.parts(kind, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        if let Some(context) = SegmentReference::of(entry.ex) {
            let mut member = ObjectWriter::begin(object.member("traceContext"));
            member.text("traceId", &context.trace_id);
            member.text("traceSegmentId", &context.segment_id);
            member.number("spanId", context.span_id);
            member.end();
        }
        let mut text = Vec::with_capacity(1024);
        entry.write_json(&mut text);
        let out = object.member("body");
        out.extend_from_slice(b"{\"json\":{\"json\":");
        write_json_text(out, &text);
        out.extend_from_slice(b"}}");
        object.text("service", &self.service);
        object.text("serviceInstance", &self.instance);
        object.text("endpoint", entry.ex.request.path());
        object.end();
    }
}

/// The segment that a request belongs to, from its field `sw8`.
struct SegmentReference {
    trace_id: Vec<u8>,
    segment_id: Vec<u8>,
    span_id: u64,
}

impl SegmentReference {
    fn of(ex: &Exchange<'_>) -> Option<SegmentReference> {
        let value = std::str::from_utf8(ex.request.fields.get("sw8")?).ok()?;
        let parts: Vec<&str> = value.split('-').collect();
        let [_, trace_id, segment_id, span_id, _, _, _, _] = parts[..] else { return None };
        Some(SegmentReference {
            trace_id: STANDARD.decode(trace_id).ok()?,
            segment_id: STANDARD.decode(segment_id).ok()?,
            span_id: span_id.parse().ok()?,
        })
    }
}

#[derive(Debug)]
struct SkywalkingLogEncoder {
    target: String,
}

impl SinkEncoder for SkywalkingLogEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let fields = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let body = batch.framed(self.framing());
        vec![post(batch, &self.target, fields, body)]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200 => SinkVerdict::Sent,
            status => SinkVerdict::Retry(format!("server returned status code[{status}]")),
        }
    }
}
