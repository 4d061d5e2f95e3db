//! `sls-logger`: sends log entries to the Log Service of Alibaba Cloud, as syslog over TLS.

use std::io::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkAddress, SinkTls};

use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy};
use crate::syslog::{self, SyslogEncoder};

/// Idle time of a connection in milliseconds.
const IDLE_MS: u64 = 120_000;
/// Facility 5 and severity 6 (RFC 5424 §6.2.1).
const PRIORITY: u8 = 5 << 3 | 6;

/// Settings of `sls-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SlsLoggerSettings {
    /// Host of the service.
    host: String,
    /// Port of the service.
    port: u16,
    /// Name of the project.
    project: String,
    /// Name of the log store.
    logstore: String,
    /// Id of the access key.
    access_key_id: String,
    /// Secret of the access key.
    access_key_secret: String,
    /// Whether the certificate of the server is verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Milliseconds until connecting or sending fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

fn ssl_verify() -> bool {
    true
}

fn timeout() -> u64 {
    5000
}

fn name() -> String {
    "sls-logger".to_owned()
}

/// The plugin.
pub(crate) struct SlsLogger {
    /// The structured data of each message.
    data: Vec<u8>,
}

impl LoggerKind for SlsLogger {
    const NAME: &'static str = "sls-logger";
    const PRIORITY: i32 = 406;
    const UNMATCHED_ROUTE: Option<&'static str> = Some("no-matched");
    type Config = SlsLoggerSettings;

    fn build(
        config: SlsLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let mut data = b"[logservice".to_vec();
        for (name, value) in [
            ("project", &config.project),
            ("logstore", &config.logstore),
            ("access-key-id", &config.access_key_id),
            ("access-key-secret", &config.access_key_secret),
        ] {
            // These characters are escaped in values (RFC 5424 §6.3.3).
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]");
            write!(data, " {name}=\"{value}\"").expect("a vector takes every write");
        }
        data.extend_from_slice(b"] ");
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Tcp {
                host: config.host,
                port: config.port,
                tls: Some(SinkTls { verify: config.ssl_verify, ..SinkTls::default() }),
                timeout_ms: config.timeout,
                idle_ms: IDLE_MS,
            },
            policy: batch_policy(&config.common.batch, setup.metadata),
            encoder: Arc::new(SyslogEncoder { is_udp: false }),
            encoder_settings: String::new(),
        };
        Ok(config.common.parts(SlsLogger { data }, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        syslog::write_header(out, PRIORITY, entry.ex, entry.outcome.duration_us);
        out.extend_from_slice(b"- ");
        out.extend_from_slice(&self.data);
        entry.write_json(out);
        out.push(b'\n');
    }
}
