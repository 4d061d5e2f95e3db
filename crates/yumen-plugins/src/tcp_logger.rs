//! `tcp-logger`: sends log entries to a TCP server.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkAddress, SinkTls};

use crate::logging::{JsonEncoder, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy};

/// Settings of `tcp-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TcpLoggerSettings {
    /// Host name or IP address of the server.
    host: String,
    /// Port of the server.
    port: u16,
    /// Whether the connection uses TLS. The certificate of the server is not verified.
    #[serde(default)]
    tls: bool,
    /// Server name for TLS.
    tls_options: Option<String>,
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

fn timeout() -> u64 {
    1000
}

fn name() -> String {
    "tcp logger".to_owned()
}

/// The plugin.
pub(crate) struct TcpLogger;

impl LoggerKind for TcpLogger {
    const NAME: &'static str = "tcp-logger";
    const PRIORITY: i32 = 405;
    type Config = TcpLoggerSettings;

    fn build(
        config: TcpLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        if config.tls_options.is_some() && !config.tls {
            setup.warn("tls_options", "without effect unless tls is true", "set tls to true");
        }
        let tls = SinkTls { server_name: config.tls_options, ..SinkTls::default() };
        let encoder = JsonEncoder::new(&config.common.batch);
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Tcp {
                host: config.host,
                port: config.port,
                tls: config.tls.then_some(tls),
                timeout_ms: config.timeout,
                idle_ms: 0,
            },
            policy: batch_policy(&config.common.batch, setup.metadata),
            encoder: Arc::new(encoder),
            encoder_settings: String::new(),
        };
        Ok(config.common.parts(TcpLogger, sink))
    }
}
