//! `tencent-cloud-cls`: sends log entries to Tencent Cloud Log Service, as signed protobuf.

use std::fmt::Write;
use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use bytes::Bytes;
use prost::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkTls,
    SinkVerdict,
};

use crate::logging::{LogEntry, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy};
use crate::sink_url::SinkUrl;

#[cfg(test)]
mod tests;

/// Path of the service.
const PATH: &str = "/structuredlog";
/// Validity of a signature in seconds.
const SIGNATURE_LIFE_S: u64 = 60;
/// Longest value of a member in bytes, and longest request, as the service allows them.
const VALUE_BYTES_MAX: usize = 1024 * 1024;
const REQUEST_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Milliseconds until a request fails.
const TIMEOUT_MS: u64 = 10_000;

/// Settings of `tencent-cloud-cls`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["secret_key"]))]
pub(crate) struct TencentClsSettings {
    /// Host of the service and, after a colon, its port.
    cls_host: String,
    /// Id of the topic.
    cls_topic: String,
    /// Id of the key.
    secret_id: String,
    /// The key that signs requests.
    secret_key: String,
    /// Scheme of the URL: `http` or `https`.
    #[serde(default)]
    #[schemars(extend("default" = "https"))]
    scheme: ClsScheme,
    /// Whether the certificate of the service is verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Share of the requests that are logged, from 0.00001 to 1.
    #[serde(default = "sample_ratio")]
    #[schemars(range(min = 0.00001, max = 1))]
    sample_ratio: f64,
    /// Members that are added to all entries.
    global_tag: Option<Map<String, Value>>,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

/// Scheme of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ClsScheme {
    Http,
    #[default]
    Https,
}

fn ssl_verify() -> bool {
    true
}

fn sample_ratio() -> f64 {
    1.0
}

fn name() -> String {
    "tencent-cloud-cls".to_owned()
}

/// The plugin.
pub(crate) struct TencentCloudCls {
    sample_ratio: f64,
}

impl LoggerKind for TencentCloudCls {
    const NAME: &'static str = "tencent-cloud-cls";
    const PRIORITY: i32 = 397;
    type Config = TencentClsSettings;

    fn build(
        config: TencentClsSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let scheme = if config.scheme == ClsScheme::Http { "http" } else { "https" };
        let url = SinkUrl::parse("cls_host", &format!("{scheme}://{}", config.cls_host))?;
        if url.target != "/" {
            return Err(InvalidSettings::at("cls_host", "\"cls_host\" is a host without a path"));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !config.cls_topic.bytes().all(is_plain) {
            return Err(InvalidSettings::at(
                "cls_topic",
                "\"cls_topic\" has characters that no topic id has",
            ));
        }
        let tags = config.global_tag.unwrap_or_default();
        let encoder = ClsEncoder {
            target: format!("{PATH}?topic_id={}", config.cls_topic),
            secret_id: config.secret_id,
            secret_key: config.secret_key,
            tags: tags.iter().map(|(name, value)| (name.clone(), text_of(value))).collect(),
        };
        let settings = [&encoder.target, &encoder.secret_id, &encoder.secret_key];
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Http {
                endpoints: vec![url.origin],
                tls: SinkTls { verify: config.ssl_verify, ..SinkTls::default() },
                timeout_ms: TIMEOUT_MS,
                idle_ms: 60_000,
            },
            policy: batch_policy(&config.common.batch, setup.metadata),
            encoder_settings: format!("{settings:?} {:?}", encoder.tags),
            encoder: Arc::new(encoder),
        };
        let kind = TencentCloudCls { sample_ratio: config.sample_ratio };
        Ok(config.common.parts(kind, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let is_sampled =
            self.sample_ratio >= 1.0 || (entry.ex.host.random() as f64 / u64::MAX as f64) < self.sample_ratio;
        if is_sampled {
            entry.write_json(out);
        }
    }
}

/// The messages of the service.
#[derive(Clone, PartialEq, Message)]
struct ClsLogGroupList {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<ClsLogGroup>,
}

#[derive(Clone, PartialEq, Message)]
struct ClsLogGroup {
    #[prost(message, repeated, tag = "1")]
    logs: Vec<ClsLog>,
    #[prost(string, optional, tag = "4")]
    source: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ClsLog {
    /// Milliseconds since 1970.
    #[prost(int64, tag = "1")]
    time: i64,
    #[prost(message, repeated, tag = "2")]
    contents: Vec<ClsContent>,
}

#[derive(Clone, PartialEq, Message)]
struct ClsContent {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// A text stays as it is; other values are JSON. Long texts are cut off.
fn text_of(value: &Value) -> String {
    let mut text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
    text
}

struct ClsEncoder {
    target: String,
    secret_id: String,
    secret_key: String,
    tags: Vec<(String, String)>,
}

impl ClsEncoder {
    fn log(&self, entry: &[u8], unix_ms: u64) -> ClsLog {
        let members: Map<String, Value> = serde_json::from_slice(entry).unwrap_or_default();
        let own = members.iter().map(|(name, value)| (name.clone(), text_of(value)));
        let contents = own.chain(self.tags.iter().cloned()).map(|(key, value)| ClsContent { key, value });
        ClsLog { time: unix_ms as i64, contents: contents.collect() }
    }

    /// The value of `Authorization`.
    fn signature(&self, unix_s: u64) -> String {
        let times = format!("{unix_s};{}", unix_s + SIGNATURE_LIFE_S);
        let request = format!("post\n{PATH}\n\n\n");
        let digest = hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, request.as_bytes()).as_ref());
        let key = sign(self.secret_key.as_bytes(), &times);
        let signature = sign(key.as_bytes(), &format!("sha1\n{times}\n{digest}\n"));
        format!(
            "q-sign-algorithm=sha1&q-ak={}&q-sign-time={times}&q-key-time={times}&q-header-list=&q-url-param-list=\
             &q-signature={signature}",
            self.secret_id
        )
    }
}

fn sign(key: &[u8], text: &str) -> String {
    hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key), text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl SinkEncoder for ClsEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let source = ProcessVars::current().map(|process| process.hostname.to_string());
        let mut requests = Vec::new();
        let (mut logs, mut bytes) = (Vec::new(), 0);
        let mut finish = |logs: &mut Vec<ClsLog>| {
            let entries = logs.len();
            if entries == 0 {
                return;
            }
            let group = ClsLogGroup { logs: std::mem::take(logs), source: source.clone() };
            let list = ClsLogGroupList { groups: vec![group] };
            requests.push(SinkRequest {
                method: "POST",
                target: self.target.clone(),
                fields: vec![
                    ("Content-Type".to_owned(), "application/x-protobuf".to_owned()),
                    ("Authorization".to_owned(), self.signature(batch.now.unix_ms / 1000)),
                ],
                body: vec![Bytes::from(list.encode_to_vec())],
                entries,
            });
        };
        for entry in batch.entries(0) {
            let log = self.log(entry, batch.now.unix_ms);
            let length = log.encoded_len();
            if bytes + length > REQUEST_BYTES_MAX {
                finish(&mut logs);
                bytes = 0;
            }
            bytes += length;
            logs.push(log);
        }
        finish(&mut logs);
        requests
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200 => SinkVerdict::Sent,
            status => {
                let body = reply.excerpt();
                SinkVerdict::Retry(format!("got wrong status: {status}, body: {body}"))
            }
        }
    }
}
