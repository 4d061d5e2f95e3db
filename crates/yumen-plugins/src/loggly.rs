//! `loggly`: sends log entries to Loggly, as syslog over UDP or in bulk over HTTP.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkTls,
    SinkVerdict,
};

use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy, post};
use crate::syslog::{self, SyslogEncoder};

/// Facility 1 (RFC 5424 §6.2.1).
const FACILITY_USER: u8 = 1 << 3;

/// Settings of `loggly`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LogglySettings {
    /// Token of the customer.
    customer_token: String,
    /// Severity of messages.
    #[serde(default)]
    #[schemars(schema_with = "severity_schema")]
    severity: SyslogSeverity,
    /// Severities by the status of the response.
    #[serde(default)]
    #[schemars(schema_with = "severity_map_schema")]
    severity_map: Option<BTreeMap<String, SyslogSeverity>>,
    /// Tags of messages.
    #[serde(default = "tags")]
    #[schemars(length(min = 1), inner(regex(pattern = "^[ -~]*$")))]
    tags: Vec<String>,
    /// Whether the certificate of the server is verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

/// All severities, as APISIX spells them.
const SEVERITIES: [&str; 16] = [
    "CRIT", "crit", "ALERT", "alert", "WARNING", "warning", "EMEGR", "emegr", "ERR", "err", "INFO", "info",
    "DEBUG", "debug", "NOTICE", "notice",
];

fn severity_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": SEVERITIES, "default": "INFO"})
}

fn severity_map_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "patternProperties": {"^[1-5][0-9]{2}$": {"type": "string", "enum": SEVERITIES}},
        "additionalProperties": false
    })
}

/// Severity of a syslog message.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
enum SyslogSeverity {
    #[serde(rename = "EMEGR", alias = "emegr")]
    Emergency,
    #[serde(rename = "ALERT", alias = "alert")]
    Alert,
    #[serde(rename = "CRIT", alias = "crit")]
    Critical,
    #[serde(rename = "ERR", alias = "err")]
    Error,
    #[serde(rename = "WARNING", alias = "warning")]
    Warning,
    #[serde(rename = "NOTICE", alias = "notice")]
    Notice,
    #[default]
    #[serde(rename = "INFO", alias = "info")]
    Informational,
    #[serde(rename = "DEBUG", alias = "debug")]
    Debug,
}

/// Metadata of `loggly`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LogglyMetadata {
    /// Host of the service.
    #[serde(default = "host")]
    host: String,
    /// Port of the service.
    #[serde(default = "port")]
    port: u16,
    /// Protocol: `syslog` over UDP, `http` or `https`.
    #[serde(default)]
    #[schemars(extend("default" = "syslog"))]
    protocol: LogglyProtocol,
    /// Milliseconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// `log_format` of all uses without their own.
    #[serde(rename = "log_format")]
    _log_format: Option<Map<String, Value>>,
    /// `log_format_extra` of all uses without their own.
    #[serde(rename = "log_format_extra")]
    _log_format_extra: Option<Map<String, Value>>,
    /// Maximum number of waiting entries; later ones are discarded.
    #[serde(default = "max_pending_entries", rename = "max_pending_entries")]
    #[schemars(range(min = 1))]
    _max_pending_entries: u64,
}

/// Protocol of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LogglyProtocol {
    #[default]
    Syslog,
    Http,
    Https,
}

fn tags() -> Vec<String> {
    vec!["apisix".to_owned()]
}

fn ssl_verify() -> bool {
    true
}

fn name() -> String {
    "loggly".to_owned()
}

fn host() -> String {
    "logs-01.loggly.com".to_owned()
}

fn port() -> u16 {
    514
}

fn timeout() -> u64 {
    5000
}

fn max_pending_entries() -> u64 {
    8192
}

/// The plugin.
pub(crate) struct LogglyLogger {
    severity: SyslogSeverity,
    severity_map: BTreeMap<String, SyslogSeverity>,
    /// The structured data of each message.
    data: Vec<u8>,
    is_syslog: bool,
}

impl LoggerKind for LogglyLogger {
    const NAME: &'static str = "loggly";
    const PRIORITY: i32 = 411;
    type Config = LogglySettings;

    fn build(
        config: LogglySettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let metadata = setup.metadata.cloned().unwrap_or_else(|| Value::Object(Map::new()));
        let metadata: LogglyMetadata =
            serde_json::from_value(metadata).map_err(InvalidSettings::from_serde)?;
        let LogglyMetadata { host, port, protocol, timeout, .. } = metadata;
        let token = &config.customer_token;
        let mut data = format!("- [{token}@41058").into_bytes();
        for tag in &config.tags {
            let tag = tag.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]");
            write!(data, " tag=\"{tag}\"").expect("a vector takes every write");
        }
        data.extend_from_slice(b"] ");
        let is_syslog = protocol == LogglyProtocol::Syslog;
        let kind = LogglyLogger {
            severity: config.severity,
            severity_map: config.severity_map.unwrap_or_default(),
            data,
            is_syslog,
        };
        let (address, encoder, encoder_settings): (_, Arc<dyn SinkEncoder>, _) = if is_syslog {
            (SinkAddress::Udp { host, port }, Arc::new(SyslogEncoder { is_udp: true }), String::new())
        } else {
            let scheme = if protocol == LogglyProtocol::Https { "https" } else { "http" };
            // The default port is that of syslog.
            let port = if port == 514 { String::new() } else { format!(":{port}") };
            let address = SinkAddress::Http {
                endpoints: vec![format!("{scheme}://{host}{port}")],
                tls: SinkTls { verify: config.ssl_verify, ..SinkTls::default() },
                timeout_ms: timeout,
                idle_ms: 60_000,
            };
            let encoder =
                LogglyBulkEncoder { target: format!("/bulk/{token}/tag/bulk"), tags: config.tags.join(",") };
            let settings = format!("{encoder:?}");
            (address, Arc::new(encoder), settings)
        };
        let policy = batch_policy(&config.common.batch, setup.metadata);
        let sink = SinkPlan { name: config.name, address, policy, encoder, encoder_settings };
        Ok(config.common.parts(kind, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        if self.is_syslog {
            let severity = self.severity_map.get(&entry.outcome.status.to_string()).unwrap_or(&self.severity);
            let priority = FACILITY_USER | *severity as u8;
            syslog::write_header(out, priority, entry.ex, entry.outcome.duration_us);
            out.extend_from_slice(&self.data);
        }
        entry.write_json(out);
        if !self.is_syslog {
            out.push(b'\n');
        }
    }
}

#[derive(Debug)]
struct LogglyBulkEncoder {
    target: String,
    tags: String,
}

impl SinkEncoder for LogglyBulkEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let fields = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("X-LOGGLY-TAG".to_owned(), self.tags.clone()),
        ];
        let body = batch.framed(self.framing());
        vec![post(batch, &self.target, fields, body)]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200 => SinkVerdict::Sent,
            status => SinkVerdict::Retry(format!("got unexpected http status code [{status}]")),
        }
    }
}
