//! `clickhouse-logger`: inserts log entries into a table of ClickHouse.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkBatch, SinkEncoder, SinkFraming, SinkRequest};

use crate::logging::{LoggerKind, LoggerParts, LoggerSettings, post};
use crate::sink_url::{SinkUrl, http_servers};

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
    common: LoggerSettings,
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
        let (endpoints, base) = SinkUrl::parse_either(config.endpoint_addr, config.endpoint_addrs)?;
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
        let address = http_servers(endpoints, config.ssl_verify, config.timeout.saturating_mul(1000), 60_000);
        let sink = config.common.batch.sink(config.name, address, encoder, setup);
        Ok(config.common.parts(ClickhouseLogger, sink))
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
        vec![post(batch, &self.target, self.fields.clone(), body)]
    }
}
