//! `clickhouse-logger`: inserts log entries into a table of ClickHouse.

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkRequest, SinkTls,
};

use crate::logging::{
    BatchSettings, BodySettings, FormatSettings, LoggerKind, LoggerParts, SinkPlan, batch_policy,
};
use crate::sink_url::SinkUrl;

/// Settings of `clickhouse-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    {"required": ["endpoint_addr", "user", "password", "database", "logtable"]},
    {"required": ["endpoint_addrs", "user", "password", "database", "logtable"]}
]))]
pub(crate) struct ClickhouseLoggerSettings {
    /// Address of the server.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    endpoint_addr: Option<String>,
    /// Addresses of the servers, one of which receives a batch.
    #[schemars(
        length(min = 1),
        inner(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))
    )]
    endpoint_addrs: Option<Vec<String>>,
    /// User name.
    #[serde(default)]
    user: String,
    /// Password.
    #[serde(default)]
    password: String,
    /// Name of the database.
    #[serde(default)]
    database: String,
    /// Name of the table.
    #[serde(default)]
    logtable: String,
    /// Seconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Whether the certificates of the servers are verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    batch: BatchSettings,
    #[serde(flatten)]
    format: FormatSettings,
    #[serde(flatten)]
    bodies: BodySettings,
}

fn timeout() -> u64 {
    3
}

fn ssl_verify() -> bool {
    true
}

fn name() -> String {
    "clickhouse-logger".to_owned()
}

/// The plugin.
pub(crate) struct ClickhouseLogger;

impl LoggerKind for ClickhouseLogger {
    const NAME: &'static str = "clickhouse-logger";
    const PRIORITY: i32 = 398;
    type Config = ClickhouseLoggerSettings;

    fn build(
        config: ClickhouseLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let (path, addresses) = match (config.endpoint_addr, config.endpoint_addrs) {
            (Some(address), _) => ("endpoint_addr", vec![address]),
            (None, addresses) => ("endpoint_addrs", addresses.unwrap_or_default()),
        };
        let (endpoints, base) = SinkUrl::parse_all(path, &addresses)?;
        let encoder = InsertEncoder {
            target: if base.is_empty() { "/".to_owned() } else { base },
            statement: format!("INSERT INTO {} FORMAT JSONEachRow ", config.logtable),
            fields: vec![
                ("Content-Type".to_owned(), "application/json".to_owned()),
                ("X-ClickHouse-User".to_owned(), config.user),
                ("X-ClickHouse-Key".to_owned(), config.password),
                ("X-ClickHouse-Database".to_owned(), config.database),
            ],
        };
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Http {
                endpoints,
                tls: SinkTls { verify: config.ssl_verify, ..SinkTls::default() },
                timeout_ms: config.timeout.saturating_mul(1000),
                idle_ms: 60_000,
            },
            policy: batch_policy(&config.batch, setup.metadata),
            encoder_settings: format!("{encoder:?}"),
            encoder: Arc::new(encoder),
        };
        Ok(LoggerParts { kind: ClickhouseLogger, format: config.format, bodies: config.bodies, sink })
    }
}

#[derive(Debug)]
struct InsertEncoder {
    target: String,
    statement: String,
    fields: Vec<(String, String)>,
}

impl SinkEncoder for InsertEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming { open: b"", separator: b" ", close: b"" }
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let mut body = vec![Bytes::from(self.statement.clone())];
        body.extend(batch.framed(self.framing()));
        let (target, fields) = (self.target.clone(), self.fields.clone());
        vec![SinkRequest { method: "POST", target, fields, body, entries: batch.entries }]
    }
}
