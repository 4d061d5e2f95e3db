//! Settings of the export by OTLP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use yumen_base::Problem;

use super::{SecretText, problem};

/// Export of the node's metrics and logs by OTLP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// Base URL of the collector, such as `http://127.0.0.1:4318`. With `http`, `/v1/metrics` and `/v1/logs` follow its
    /// path; `grpc` has none. Empty exports nothing.
    #[schemars(regex(pattern = r"^$|^https?://[^/@\s?#]+(/[^\s?#]*)?$"))]
    pub endpoint: String,
    /// Form of requests; servers of `grpc` use port 4317.
    pub protocol: OtlpProtocol,
    /// Further fields of requests, such as `Authorization`.
    pub headers: BTreeMap<String, SecretText>,
    /// Whether the metrics of the node are exported.
    pub metrics: bool,
    /// Seconds between two exports of metrics.
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

impl OtlpConfig {
    /// Scheme and authority of the endpoint, and its path without a slash at the end.
    pub fn base(&self) -> (&str, &str) {
        let authority = self.endpoint.find("://").map_or(0, |at| at + 3);
        let path = self.endpoint[authority..].find('/').map_or(self.endpoint.len(), |at| authority + at);
        let (origin, path) = self.endpoint.split_at(path);
        (origin, path.trim_end_matches('/'))
    }

    /// Checks the rules that the schema cannot express.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        if self.protocol == OtlpProtocol::Grpc && !self.base().1.is_empty() {
            let found = format!("\"{}\" has a path, and gRPC has methods of its own", self.endpoint);
            problems.push(problem("observe.otlp.endpoint", found).hint("such as http://127.0.0.1:4317"));
        }
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        OtlpConfig {
            endpoint: String::new(),
            protocol: OtlpProtocol::Http,
            headers: BTreeMap::new(),
            metrics: true,
            metrics_interval_s: 60,
            logs: false,
            service_name: "yumen".into(),
        }
    }
}
