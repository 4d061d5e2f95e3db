//! `http-logger`: sends log entries to an HTTP server.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginBuildContext, SinkBatch, SinkEncoder, SinkFraming, SinkRequest};

use crate::logging::{LoggerKind, LoggerParts, LoggerSettings, post};
use crate::sink_url::{SinkUrl, http_servers};

/// Settings of `http-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct HttpLoggerSettings {
    /// URL of the server.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    uri: String,
    /// Value of the field `Authorization`.
    auth_header: Option<String>,
    /// Seconds until a request fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Form of a batch: `json` for a list, `new_line` for one entry per line.
    #[serde(default)]
    #[schemars(extend("default" = "json"))]
    concat_method: ConcatMethod,
    /// Whether the certificate of the server is verified.
    #[serde(default)]
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

fn name() -> String {
    "http logger".to_owned()
}

/// Form of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ConcatMethod {
    #[default]
    Json,
    NewLine,
}

/// The plugin.
pub(crate) struct HttpLogger;

impl LoggerKind for HttpLogger {
    const NAME: &'static str = "http-logger";
    const PRIORITY: i32 = 410;
    const UNMATCHED_ROUTE: Option<&'static str> = Some("no-matched");
    type Config = HttpLoggerSettings;

    fn build(
        config: HttpLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let url = SinkUrl::parse("uri", &config.uri)?;
        let encoder = HttpLogEncoder {
            target: url.target,
            authorization: config.auth_header,
            concat_method: config.concat_method,
            is_single: config.common.batch.batch_max_size == 1,
        };
        let address =
            http_servers(vec![url.origin], config.ssl_verify, config.timeout.saturating_mul(1000), 60_000);
        let sink = config.common.batch.sink(config.name, address, encoder, setup);
        Ok(config.common.parts(HttpLogger, sink))
    }
}

#[derive(Debug)]
struct HttpLogEncoder {
    target: String,
    authorization: Option<String>,
    concat_method: ConcatMethod,
    is_single: bool,
}

impl SinkEncoder for HttpLogEncoder {
    fn framing(&self) -> SinkFraming {
        match self.concat_method {
            ConcatMethod::Json if self.is_single => SinkFraming::PLAIN,
            ConcatMethod::Json => SinkFraming::JSON_LIST,
            ConcatMethod::NewLine => SinkFraming::LINES,
        }
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let content_type = match self.concat_method {
            ConcatMethod::Json => "application/json",
            ConcatMethod::NewLine => "text/plain",
        };
        let mut fields = vec![("Content-Type".to_owned(), content_type.to_owned())];
        fields.extend(self.authorization.iter().map(|value| ("Authorization".to_owned(), value.clone())));
        let body = batch.framed(self.framing());
        vec![post(batch, &self.target, fields, body)]
    }
}

#[cfg(test)]
mod tests;
