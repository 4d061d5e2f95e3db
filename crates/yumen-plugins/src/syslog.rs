//! `syslog`: sends log entries to a syslog server (RFC 5424).

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    Exchange, PluginBuildContext, ServedTraffic, SinkAddress, SinkBatch, SinkEncoder, SinkFraming,
    SinkRequest, SinkTls,
};

use crate::log_time::write_utc_ms;
use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy};

/// Idle time of a connection in milliseconds.
const IDLE_MS: u64 = 60_000;

/// Settings of `syslog`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SyslogSettings {
    /// Host name or IP address of the server.
    host: String,
    /// Port of the server.
    port: u16,
    /// Transport: `tcp`, where lines end with a newline, or `udp` with a datagram per entry.
    #[serde(default)]
    #[schemars(extend("default" = "tcp"))]
    sock_type: SyslogTransport,
    /// Whether the TCP connection uses TLS. The certificate of the server is not verified.
    #[serde(default)]
    tls: bool,
    /// Milliseconds until connecting or sending fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Accepted for compatibility: a node has one connection to the server.
    #[serde(default = "pool_size", rename = "pool_size")]
    #[schemars(range(min = 5))]
    _pool_size: u64,
    /// Accepted for compatibility: a batch is written at once.
    #[serde(default = "flush_limit", rename = "flush_limit")]
    #[schemars(range(min = 1))]
    _flush_limit: u64,
    /// Maximum size of waiting entries in bytes; later ones are dropped.
    #[serde(default = "drop_limit")]
    drop_limit: u64,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

/// Transport of syslog messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SyslogTransport {
    #[default]
    Tcp,
    Udp,
}

fn timeout() -> u64 {
    3000
}

fn pool_size() -> u64 {
    5
}

fn flush_limit() -> u64 {
    4096
}

fn drop_limit() -> u64 {
    1_048_576
}

fn name() -> String {
    "sys logger".to_owned()
}

/// The plugin.
pub(crate) struct SyslogLogger;

impl LoggerKind for SyslogLogger {
    const NAME: &'static str = "syslog";
    const PRIORITY: i32 = 401;
    const SERVES: ServedTraffic = ServedTraffic::Both;
    type Config = SyslogSettings;

    fn build(
        config: SyslogSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let is_udp = config.sock_type == SyslogTransport::Udp;
        if is_udp && config.tls {
            setup.warn("tls", "without effect with sock_type udp", "use tcp");
        }
        let SyslogSettings { host, port, timeout, .. } = config;
        let address = if is_udp {
            SinkAddress::Udp { host, port }
        } else {
            let tls = config.tls.then(SinkTls::default);
            SinkAddress::Tcp { host, port, tls, timeout_ms: timeout, idle_ms: IDLE_MS }
        };
        let mut policy = batch_policy(&config.common.batch, setup.metadata);
        policy.pending_bytes_max = policy.pending_bytes_max.min(config.drop_limit.max(1));
        let sink = SinkPlan {
            name: config.name,
            address,
            policy,
            encoder: Arc::new(SyslogEncoder { is_udp }),
            encoder_settings: String::new(),
        };
        Ok(config.common.parts(SyslogLogger, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        write_header(out, FACILITY_SYSLOG | SEVERITY_INFO, entry.ex, entry.outcome.duration_us);
        out.extend_from_slice(b"- - ");
        entry.write_json(out);
        out.push(b'\n');
    }
}

/// Facility 5 (RFC 5424 §6.2.1).
const FACILITY_SYSLOG: u8 = 5 << 3;
/// Severity 6.
const SEVERITY_INFO: u8 = 6;

/// Appends the header of a syslog message up to the process id and a space.
pub(crate) fn write_header(out: &mut Vec<u8>, priority: u8, ex: &Exchange<'_>, duration_us: u64) {
    write!(out, "<{priority}>1 ").expect("a vector takes every write");
    write_utc_ms(out, ex.now.unix_ms + duration_us / 1000);
    let host = ex.request.host();
    // A header field has printable ASCII only (RFC 5424 §6).
    let is_printable = !host.is_empty() && host.len() <= 255 && host.iter().all(u8::is_ascii_graphic);
    out.push(b' ');
    out.extend_from_slice(if is_printable { host } else { b"-" });
    let pid = ProcessVars::current().map_or(0, |process| process.pid);
    write!(out, " apisix {pid} ").expect("a vector takes every write");
}

/// Sends messages as they are.
pub(crate) struct SyslogEncoder {
    /// Whether each message is a datagram (RFC 5426 §3.1).
    pub(crate) is_udp: bool,
}

impl SinkEncoder for SyslogEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        if self.is_udp {
            let datagram = |entry: &[u8]| SinkRequest {
                body: vec![Bytes::copy_from_slice(entry)],
                entries: 1,
                ..SinkRequest::default()
            };
            return batch.entries(0).map(datagram).collect();
        }
        let body = batch.framed(self.framing());
        vec![SinkRequest { body, entries: batch.entries, ..SinkRequest::default() }]
    }
}
