//! `kafka-logger`: sends log entries to a topic of Apache Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::HttpVersion;
use yumen_plugin::{KafkaLogin, KafkaMechanism, KafkaSettings, PluginBuildContext, SinkAddress, SinkTls};

use crate::logging::json_text::write_json_text;
use crate::logging::{
    JsonEncoder, LogEntry, LoggerKind, LoggerParts, LoggerSettings, SinkPlan, batch_policy,
};

/// Settings of `kafka-logger`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    {"required": ["broker_list", "kafka_topic"]},
    {"required": ["brokers", "kafka_topic"]}
], "encrypt_fields" = ["brokers.sasl_config.password"]))]
pub(crate) struct KafkaLoggerSettings {
    /// Brokers of the cluster, of version 2.1 or later.
    #[schemars(length(min = 1))]
    brokers: Option<Vec<KafkaBroker>>,
    /// Brokers of the cluster: ports by host.
    #[schemars(extend("minProperties" = 1))]
    broker_list: Option<BTreeMap<String, u16>>,
    /// The topic.
    kafka_topic: Option<String>,
    /// Key of the records, which decides about their partition; without it partitions take turns.
    key: Option<String>,
    /// Acknowledgements that a record requires: 1 of the leader, -1 of all replicas in sync.
    #[serde(default = "required_acks")]
    #[schemars(extend("enum" = [1, -1]))]
    required_acks: i64,
    /// Seconds until a request fails, and until a record does for which the cluster has no leader.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// TLS to the brokers.
    tls: Option<KafkaTls>,
    /// Form of entries: `default`, or `origin` for the request as text.
    #[serde(default)]
    meta_format: KafkaMetaFormat,
    /// Seconds between refreshes of the cluster's metadata.
    #[serde(default = "meta_refresh_interval")]
    #[schemars(range(min = 1))]
    meta_refresh_interval: u64,
    #[serde(flatten)]
    _producer: ProducerSettings,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    common: LoggerSettings,
}

/// Settings of the producer of APISIX, which have no effect here.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProducerSettings {
    /// Accepted for compatibility: a batch is one record, which is sent at once.
    #[serde(default, rename = "producer_type")]
    _producer_type: KafkaProducerType,
    /// Accepted for compatibility; see `batch_max_size`.
    #[serde(default = "producer_batch_num", rename = "producer_batch_num")]
    #[schemars(range(min = 1))]
    _producer_batch_num: u64,
    /// Accepted for compatibility.
    #[serde(default = "producer_batch_size", rename = "producer_batch_size")]
    _producer_batch_size: u64,
    /// Accepted for compatibility; see `max_pending_entries` of the metadata.
    #[serde(default = "producer_max_buffering", rename = "producer_max_buffering")]
    #[schemars(range(min = 1))]
    _producer_max_buffering: u64,
    /// Accepted for compatibility; see `inactive_timeout`.
    #[serde(default = "one", rename = "producer_time_linger")]
    #[schemars(range(min = 1))]
    _producer_time_linger: u64,
    /// Accepted for compatibility: clusters differ by their brokers.
    #[serde(default = "one", rename = "cluster_name")]
    #[schemars(range(min = 1))]
    _cluster_name: u64,
    /// Accepted for compatibility: versions are negotiated with the brokers.
    #[serde(default = "one", rename = "api_version")]
    #[schemars(extend("enum" = [0, 1, 2]))]
    _api_version: u64,
}

/// A broker.
#[derive(Debug, Deserialize, JsonSchema)]
struct KafkaBroker {
    /// Host name or IP address.
    host: String,
    /// Port.
    #[schemars(range(min = 1))]
    port: u16,
    /// Credentials; those of the first broker that has some apply to all.
    sasl_config: Option<KafkaSasl>,
}

/// Credentials.
#[derive(Debug, Deserialize, JsonSchema)]
struct KafkaSasl {
    /// Mechanism.
    #[serde(default)]
    mechanism: SaslMechanismName,
    /// User name.
    user: String,
    /// Password.
    password: String,
}

/// Mechanism of the login.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
enum SaslMechanismName {
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// TLS to the brokers.
#[derive(Debug, Deserialize, JsonSchema)]
struct KafkaTls {
    /// Whether the certificates of the brokers are verified.
    #[serde(default)]
    verify: bool,
}

/// Form of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KafkaMetaFormat {
    #[default]
    Default,
    Origin,
}

/// Mode of the producer of APISIX.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KafkaProducerType {
    #[default]
    Async,
    Sync,
}

fn required_acks() -> i64 {
    1
}

fn timeout() -> u64 {
    3
}

fn meta_refresh_interval() -> u64 {
    30
}

fn producer_batch_num() -> u64 {
    200
}

fn producer_batch_size() -> u64 {
    1_048_576
}

fn producer_max_buffering() -> u64 {
    50_000
}

fn one() -> u64 {
    1
}

fn name() -> String {
    "kafka logger".to_owned()
}

/// The plugin.
pub(crate) struct KafkaLogger {
    format: KafkaMetaFormat,
    is_single: bool,
    includes_body: bool,
}

impl LoggerKind for KafkaLogger {
    const NAME: &'static str = "kafka-logger";
    const PRIORITY: i32 = 403;
    type Config = KafkaLoggerSettings;

    fn build(
        mut config: KafkaLoggerSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let mut brokers: Vec<(String, u16)> =
            config.broker_list.take().unwrap_or_default().into_iter().collect();
        let mut login = None;
        for broker in config.brokers.take().unwrap_or_default() {
            brokers.push((broker.host, broker.port));
            login = login.or(broker.sasl_config);
        }
        let mechanism = |name| match name {
            SaslMechanismName::Plain => KafkaMechanism::Plain,
            SaslMechanismName::ScramSha256 => KafkaMechanism::ScramSha256,
            SaslMechanismName::ScramSha512 => KafkaMechanism::ScramSha512,
        };
        let settings = KafkaSettings {
            brokers,
            topic: config.kafka_topic.take().unwrap_or_default(),
            key: config.key.take(),
            awaits_replicas: config.required_acks == -1,
            timeout_ms: config.timeout.saturating_mul(1000),
            refresh_ms: config.meta_refresh_interval.saturating_mul(1000),
            login: login.map(|sasl| KafkaLogin {
                mechanism: mechanism(sasl.mechanism),
                user: sasl.user,
                password: sasl.password,
            }),
            tls: config.tls.map(|tls| SinkTls { verify: tls.verify, ..SinkTls::default() }),
        };
        let sink = SinkPlan {
            name: config.name,
            address: SinkAddress::Kafka(Box::new(settings)),
            policy: batch_policy(&config.common.batch, setup.metadata),
            encoder: Arc::new(JsonEncoder::new(&config.common.batch)),
            encoder_settings: String::new(),
        };
        let kind = KafkaLogger {
            format: config.meta_format,
            is_single: config.common.batch.batch_max_size == 1,
            includes_body: config.common.bodies.include_req_body,
        };
        Ok(config.common.parts(kind, sink))
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        if self.format == KafkaMetaFormat::Default {
            return entry.write_json(out);
        }
        let mut text = Vec::with_capacity(512);
        self.write_origin(entry, &mut text);
        // A list has texts, a record of its own has the request itself.
        if self.is_single {
            out.extend_from_slice(&text);
        } else {
            write_json_text(out, &text);
        }
    }
}

impl KafkaLogger {
    /// The request line, the fields, an empty line and the body.
    fn write_origin(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let request = &entry.ex.request;
        let version: &[u8] = match request.version {
            HttpVersion::Http10 => b" HTTP/1.0\r\n",
            HttpVersion::Http11 => b" HTTP/1.1\r\n",
            HttpVersion::Http2 => b" HTTP/2.0\r\n",
            HttpVersion::Http3 => b" HTTP/3.0\r\n",
        };
        out.extend_from_slice(request.method_name());
        out.push(b' ');
        out.extend_from_slice(&request.request_uri());
        out.extend_from_slice(version);
        for (name, value) in request.fields.iter() {
            out.extend_from_slice(&name.to_ascii_lowercase());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        if self.includes_body
            && let Some(body) = entry.request_body()
        {
            out.extend_from_slice(&body);
        }
    }
}

#[cfg(test)]
mod tests;
