//! `udp-logger`: sends log entries to a UDP server.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkAddress};

use crate::logging::{JsonEncoder, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy};

/// Settings of `udp-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UdpLoggerSettings {
    /// Host name or IP address of the server.
    host: String,
    /// Port of the server.
    port: u16,
    /// Accepted for compatibility: no response is awaited. A batch is one datagram of at most 65 507 bytes.
    #[serde(default = "timeout", rename = "timeout")]
    #[schemars(range(min = 1))]
    _timeout: u64,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

fn timeout() -> u64 {
    3
}

fn name() -> String {
    "udp logger".to_owned()
}

/// The plugin.
pub(crate) struct UdpLogger;

impl LoggerKind for UdpLogger {
    const NAME: &'static str = "udp-logger";
    const PRIORITY: i32 = 400;
    type Config = UdpLoggerSettings;

    fn build(
        config: UdpLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let encoder = JsonEncoder::new(&config.common.batch);
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Udp { host: config.host, port: config.port },
            policy: batch_policy(&config.common.batch, setup.metadata),
            encoder: Arc::new(encoder),
            encoder_settings: String::new(),
        };
        Ok(config.common.parts(UdpLogger, sink))
    }
}
