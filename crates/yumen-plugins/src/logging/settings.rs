//! Settings that all loggers share, with the names and defaults of APISIX.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_plugin::BatchPolicy;

/// Maximum size of waiting entries of one sink: 32 MiB.
const PENDING_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Default of `max_pending_entries`.
const PENDING_ENTRIES_MAX: u64 = 8192;

/// Settings of batches.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct BatchSettings {
    /// Entries of a full batch; with 1 each entry is sent at once.
    #[serde(default = "batch_max_size")]
    #[schemars(range(min = 1))]
    pub(crate) batch_max_size: u32,
    /// Seconds without a new entry after which a batch is sent.
    #[serde(default = "inactive_timeout")]
    #[schemars(range(min = 1))]
    pub(crate) inactive_timeout: u64,
    /// Maximum age of the first entry of a batch in seconds, checked each `inactive_timeout`.
    #[serde(default = "buffer_duration")]
    #[schemars(range(min = 1))]
    pub(crate) buffer_duration: u64,
    /// Repetitions of a failed batch before it is dropped.
    #[serde(default)]
    pub(crate) max_retry_count: u32,
    /// Seconds before a failed batch is sent again.
    #[serde(default = "retry_delay")]
    pub(crate) retry_delay: u64,
}

fn batch_max_size() -> u32 {
    1000
}

fn inactive_timeout() -> u64 {
    5
}

fn buffer_duration() -> u64 {
    60
}

fn retry_delay() -> u64 {
    1
}

/// The rules of a sink with these settings and this metadata.
pub(crate) fn batch_policy(batch: &BatchSettings, metadata: Option<&Value>) -> BatchPolicy {
    let pending = metadata.and_then(|metadata| metadata.get("max_pending_entries")).and_then(Value::as_u64);
    BatchPolicy {
        batch_max_size: batch.batch_max_size,
        inactive_timeout_ms: batch.inactive_timeout.saturating_mul(1000),
        buffer_duration_ms: batch.buffer_duration.saturating_mul(1000),
        max_retry_count: batch.max_retry_count,
        retry_delay_ms: batch.retry_delay.saturating_mul(1000),
        pending_entries_max: pending.unwrap_or(PENDING_ENTRIES_MAX),
        pending_bytes_max: PENDING_BYTES_MAX,
    }
}

/// Settings that most loggers share.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct LoggerSettings {
    #[serde(flatten)]
    pub(crate) batch: BatchSettings,
    #[serde(flatten)]
    pub(crate) format: FormatSettings,
    #[serde(flatten)]
    pub(crate) bodies: BodySettings,
}

/// The form of entries.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct FormatSettings {
    /// Members of an entry instead of the default form. Texts that begin with `$` are variables. Objects may be nested
    /// to a depth of 5.
    pub(crate) log_format: Option<Map<String, Value>>,
    /// Members in addition to the default form; without effect beside `log_format`.
    pub(crate) log_format_extra: Option<Map<String, Value>>,
}

/// Bodies in entries.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct BodySettings {
    /// Whether entries have the request body.
    #[serde(default)]
    pub(crate) include_req_body: bool,
    /// Condition for the request body, evaluated before the request is forwarded.
    #[schemars(length(min = 1))]
    pub(crate) include_req_body_expr: Option<Vec<Vec<Value>>>,
    /// Whether entries have the response body.
    #[serde(default)]
    pub(crate) include_resp_body: bool,
    /// Condition for the response body, evaluated when the response head is known.
    #[schemars(length(min = 1))]
    pub(crate) include_resp_body_expr: Option<Vec<Vec<Value>>>,
    /// Maximum size of a request body in entries, in bytes; the rest is cut off.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) max_req_body_bytes: usize,
    /// Maximum size of a response body in entries, in bytes; the rest is cut off.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) max_resp_body_bytes: usize,
}

fn body_bytes_max() -> usize {
    524_288
}

impl Default for BodySettings {
    fn default() -> BodySettings {
        BodySettings {
            include_req_body: false,
            include_req_body_expr: None,
            include_resp_body: false,
            include_resp_body_expr: None,
            max_req_body_bytes: body_bytes_max(),
            max_resp_body_bytes: body_bytes_max(),
        }
    }
}

/// Metadata of a logger.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "the schema is read, and the members by name")]
pub(crate) struct LoggerMetadata {
    /// `log_format` of all uses without their own.
    log_format: Option<Map<String, Value>>,
    /// `log_format_extra` of all uses without their own.
    log_format_extra: Option<Map<String, Value>>,
    /// Maximum number of waiting entries of one sink; later ones are discarded.
    #[serde(default = "pending_entries_max")]
    #[schemars(range(min = 1))]
    max_pending_entries: u64,
}

fn pending_entries_max() -> u64 {
    PENDING_ENTRIES_MAX
}
