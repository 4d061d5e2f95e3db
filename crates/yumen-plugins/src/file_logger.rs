//! `file-logger`: appends log entries to a file.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    BatchPolicy, ConditionExpr, Exchange, PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder,
    SinkFraming, SinkRequest,
};

use crate::logging::{BodySettings, FormatSettings, LoggerKind, LoggerParts, SinkPlan};

/// Settings of `file-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FileLoggerSettings {
    /// Path of the file, which is created if it is missing; its directory must exist. After a rotation, the next line
    /// creates a new file.
    path: Option<String>,
    /// Conditions, at least one of which must hold for an exchange to be logged.
    #[schemars(length(max = 20))]
    r#match: Option<Vec<Vec<Value>>>,
    #[serde(flatten)]
    format: FormatSettings,
    #[serde(flatten)]
    bodies: BodySettings,
}

/// Metadata of `file-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "the schema is read, and the members by name")]
pub(crate) struct FileLoggerMetadata {
    /// Path of the file for uses without their own.
    path: Option<String>,
    /// `log_format` of all uses without their own.
    log_format: Option<Map<String, Value>>,
    /// `log_format_extra` of all uses without their own.
    log_format_extra: Option<Map<String, Value>>,
}

/// The plugin.
pub(crate) struct FileLogger {
    conditions: Vec<ConditionExpr>,
}

impl LoggerKind for FileLogger {
    const NAME: &'static str = "file-logger";
    const PRIORITY: i32 = 399;
    type Config = FileLoggerSettings;

    fn build(
        config: FileLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let of_metadata = || setup.metadata?.get("path")?.as_str().map(str::to_owned);
        let path = config.path.or_else(of_metadata);
        // Without other objects the settings are only validated, and the metadata is not known.
        if path.is_none() && setup.objects.is_some() {
            let message = "property \"path\" is not set in either the plugin conf or the metadata";
            return Err(InvalidSettings::at("path", message));
        }
        let parse = |(index, written): (usize, Vec<Value>)| {
            ConditionExpr::parse(&Value::Array(written)).map_err(|why| {
                let message = format!("failed to validate the 'match' expression: {why}");
                InvalidSettings::at(format!("match[{index}]"), message)
            })
        };
        let conditions = config.r#match.unwrap_or_default().into_iter().enumerate().map(parse);
        let sink = SinkPlan {
            name: "file-logger".to_owned(),
            address: SinkAddress::File { path: path.unwrap_or_default() },
            policy: BatchPolicy {
                // Lines are written as they come.
                batch_max_size: u32::MAX,
                inactive_timeout_ms: 0,
                buffer_duration_ms: 0,
                max_retry_count: 0,
                retry_delay_ms: 0,
                pending_entries_max: 65_536,
                pending_bytes_max: 32 * 1024 * 1024,
            },
            encoder: Arc::new(LineEncoder),
            encoder_settings: String::new(),
        };
        Ok(LoggerParts {
            kind: FileLogger { conditions: conditions.collect::<Result<_, _>>()? },
            format: config.format,
            bodies: config.bodies,
            sink,
        })
    }

    fn admits(&self, ex: &Exchange<'_>) -> bool {
        self.conditions.is_empty() || self.conditions.iter().any(|condition| condition.eval(ex))
    }
}

struct LineEncoder;

impl SinkEncoder for LineEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming { open: b"", separator: b"\n", close: b"\n" }
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let body = batch.framed(self.framing());
        vec![SinkRequest { body, entries: batch.entries, ..SinkRequest::default() }]
    }
}

#[cfg(test)]
mod tests;
