//! Settings of the export by OTLP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretText;

/// Export of the node's metrics and logs by OTLP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// URL of the collector without a path, such as `http://127.0.0.1:4318`. Empty exports nothing.
    #[schemars(regex(pattern = r"^$|^https?://[^/@\s]+$"))]
    pub endpoint: String,
    /// Form of requests; servers of `grpc` use port 4317.
    pub protocol: OtlpProtocol,
    /// Further fields of requests, such as `Authorization`.
    pub headers: BTreeMap<String, SecretText>,
    /// Seconds between two exports.
    #[schemars(range(min = 1, max = 86400))]
    pub metrics_interval_s: u32,
    /// Whether each request and each stream is exported as a log record.
    pub logs: bool,
    /// `service.name` of the resource.
    pub service_name: String,
}

/// Form of requests of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// Protocol Buffers over HTTP.
    #[default]
    Http,
    /// gRPC.
    Grpc,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        OtlpConfig {
            endpoint: String::new(),
            protocol: OtlpProtocol::Http,
            headers: BTreeMap::new(),
            metrics_interval_s: 60,
            logs: false,
            service_name: "yumen".into(),
        }
    }
}
