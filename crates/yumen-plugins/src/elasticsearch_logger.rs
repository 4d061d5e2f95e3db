//! `elasticsearch-logger`: sends log entries to Elasticsearch or OpenSearch by the bulk API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PluginBuildContext, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkVerdict, VarTemplate,
};

use crate::log_time::write_strftime;
use crate::logging::json_text::write_json_text;
use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, post};
use crate::sink_url::{SinkUrl, http_servers};

/// Settings of `elasticsearch-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    {"required": ["endpoint_addr", "field"]},
    {"required": ["endpoint_addrs", "field"]}
]))]
pub(crate) struct ElasticsearchLoggerSettings {
    /// Address of the server, without a slash at the end.
    #[schemars(regex(pattern = "[^/]$"))]
    endpoint_addr: Option<String>,
    /// Addresses of the servers, one of which receives a batch.
    #[schemars(length(min = 1), inner(regex(pattern = "[^/]$")))]
    endpoint_addrs: Option<Vec<String>>,
    /// Metadata of the documents.
    field: Option<DocumentField>,
    /// Credentials for Basic authentication.
    auth: Option<SearchCredentials>,
    /// Further request fields.
    #[schemars(length(min = 1))]
    headers: Option<BTreeMap<String, String>>,
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

/// Metadata of the documents.
#[derive(Debug, Deserialize, JsonSchema)]
struct DocumentField {
    /// Name of the index. `$name` is a variable, `{%Y.%m.%d}` the date of the entry.
    index: String,
}

/// Credentials for Basic authentication.
#[derive(Debug, Deserialize, JsonSchema)]
struct SearchCredentials {
    /// User name.
    #[schemars(length(min = 1))]
    username: String,
    /// Password.
    #[schemars(length(min = 1))]
    password: String,
}

fn timeout() -> u64 {
    10
}

fn ssl_verify() -> bool {
    true
}

fn name() -> String {
    "elasticsearch-logger".to_owned()
}

/// The plugin.
pub(crate) struct ElasticsearchLogger {
    index: Vec<IndexPart>,
}

/// A part of the name of an index.
#[derive(Debug)]
enum IndexPart {
    Text(VarTemplate),
    Time(String),
}

fn parse_index(written: &str) -> Vec<IndexPart> {
    let (mut parts, mut rest) = (Vec::new(), written);
    while let Some(begin) = rest.find("{%") {
        let Some(length) = rest[begin..].find('}') else { break };
        if begin > 0 {
            parts.push(IndexPart::Text(VarTemplate::parse(&rest[..begin])));
        }
        parts.push(IndexPart::Time(rest[begin + 1..begin + length].to_owned()));
        rest = &rest[begin + length + 1..];
    }
    if !rest.is_empty() {
        parts.push(IndexPart::Text(VarTemplate::parse(rest)));
    }
    parts
}

impl LoggerKind for ElasticsearchLogger {
    const NAME: &'static str = "elasticsearch-logger";
    const PRIORITY: i32 = 413;
    type Config = ElasticsearchLoggerSettings;

    fn build(
        config: ElasticsearchLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let (endpoints, base) = SinkUrl::parse_either(config.endpoint_addr, config.endpoint_addrs)?;
        let index = config.field.map(|field| field.index).unwrap_or_default();
        let mut fields = Vec::new();
        if let Some(SearchCredentials { username, password }) = config.auth {
            let credentials = STANDARD.encode(format!("{username}:{password}"));
            fields.push(("Authorization".to_owned(), format!("Basic {credentials}")));
        }
        fields.extend(config.headers.unwrap_or_default());
        let encoder = BulkEncoder { base, fields, has_types: AtomicBool::new(false) };
        let address = http_servers(endpoints, config.ssl_verify, config.timeout.saturating_mul(1000), 60_000);
        let sink = config.common.batch.sink(config.name, address, encoder, setup);
        let kind = ElasticsearchLogger { index: parse_index(&index) };
        Ok(config.common.parts(kind, sink))
    }

    /// Index and entry, with a NUL between them, which JSON text never has.
    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let mut index = Vec::with_capacity(64);
        for part in &self.index {
            match part {
                IndexPart::Text(template) => drop(template.render(entry.ex, &mut index)),
                IndexPart::Time(format) => write_strftime(&mut index, format, entry.ex.now.unix_ms),
            }
        }
        write_json_text(out, &index);
        out.push(0);
        entry.write_json(out);
    }
}

#[derive(Debug)]
struct BulkEncoder {
    base: String,
    fields: Vec<(String, String)>,
    /// Whether the server requires the type of a document: versions 5 and 6.
    has_types: AtomicBool,
}

impl SinkEncoder for BulkEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let mut body = Vec::new();
        let document_type: &[u8] =
            if self.has_types.load(Ordering::Relaxed) { b",\"_type\":\"_doc\"" } else { b"" };
        for entry in batch.entries(0) {
            let mut parts = entry.splitn(2, |byte| *byte == 0);
            if let (Some(index), Some(line)) = (parts.next(), parts.next()) {
                for part in [b"{\"index\":{\"_index\":", index, document_type, b"}}\n", line, b"\n"] {
                    body.extend_from_slice(part);
                }
            }
        }
        let mut fields = vec![
            ("Content-Type".to_owned(), "application/x-ndjson".to_owned()),
            ("Accept".to_owned(), "application/vnd.elasticsearch+json".to_owned()),
        ];
        fields.extend(self.fields.iter().cloned());
        vec![post(batch, &format!("{}/_bulk", self.base), fields, vec![Bytes::from(body)])]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        if reply.status != 200 {
            let body = reply.excerpt();
            let status = reply.status;
            let reason = format!("elasticsearch server returned status: {status}, body: {body}");
            return SinkVerdict::Retry(reason);
        }
        let Ok(result) = serde_json::from_slice::<Value>(&reply.body) else {
            // A longer result is cut off; its documents count as taken.
            return SinkVerdict::Sent;
        };
        if result["errors"] != true {
            return SinkVerdict::Sent;
        }
        let (mut retry, mut dropped, mut reason) = (Vec::new(), 0, String::new());
        for (index, item) in result["items"].as_array().into_iter().flatten().enumerate() {
            match item["index"]["status"].as_u64() {
                // The server is overloaded and takes the document later.
                Some(429) => retry.push(index),
                Some(400..) => dropped += 1,
                _ => continue,
            }
            if reason.is_empty() {
                reason = format!("document refused: {}", item["index"]["error"]["reason"]);
            }
        }
        SinkVerdict::Partial { retry, dropped, reason }
    }

    fn preflight(&self) -> Option<SinkRequest> {
        let fields = self.fields.clone();
        Some(SinkRequest {
            method: "GET",
            target: format!("{}/", self.base),
            fields,
            ..SinkRequest::default()
        })
    }

    fn learn(&self, reply: &SinkReply) {
        let version = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
        let version = version["version"]["number"].as_str().unwrap_or_default();
        self.has_types.store(version.starts_with("5.") || version.starts_with("6."), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
