//! `error-log-logger`: sends lines of the node's own log to a server. It has metadata only.

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    BatchPolicy, KafkaLogin, KafkaMechanism, KafkaSettings, NodeLogLevel, NodeLogSink, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkRegistry,
    SinkReply, SinkRequest, SinkSpec, SinkTls, SinkVerdict,
};

use crate::logging::post;
use crate::sink_url::SinkUrl;

#[cfg(test)]
mod tests;

/// Bounds of waiting lines.
const PENDING_ENTRIES_MAX: u64 = 8192;
const PENDING_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Settings of `error-log-logger` on objects, which have no effect.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ErrorLogSettings {}

/// Metadata of `error-log-logger`. The first of `skywalking`, `clickhouse`, `kafka` and `tcp` that is set gets lines.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend(
    "anyOf" = [
        {"required": ["skywalking"]}, {"required": ["tcp"]}, {"required": ["clickhouse"]}, {"required": ["kafka"]},
        {"required": ["host", "port"]}
    ],
    "encrypt_fields" = ["clickhouse.password", "kafka.brokers.sasl_config.password"]
))]
pub(crate) struct ErrorLogMetadata {
    /// A TCP server.
    tcp: Option<ErrorLogTcp>,
    /// A server of SkyWalking.
    skywalking: Option<ErrorLogSkywalking>,
    /// A table of ClickHouse.
    clickhouse: Option<ErrorLogClickhouse>,
    /// A topic of Kafka.
    kafka: Option<ErrorLogKafka>,
    /// Old form of `tcp.host`.
    host: Option<String>,
    /// Old form of `tcp.port`.
    port: Option<u16>,
    /// Old form of `tcp.tls`.
    #[serde(default)]
    tls: bool,
    /// Old form of `tcp.tls_server_name`.
    tls_server_name: Option<String>,
    /// Least severe level that is sent, as far as the node logs it.
    #[serde(default)]
    #[schemars(extend("default" = "WARN"))]
    level: ErrorLogLevel,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    /// Seconds until connecting or sending fails.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Seconds for which an idle connection stays open.
    #[serde(default = "keepalive")]
    #[schemars(range(min = 1))]
    keepalive: u64,
    #[serde(flatten)]
    batch: ErrorLogBatch,
}

/// Batches of lines.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogBatch {
    /// Lines of a full batch.
    #[serde(default = "batch_max_size")]
    batch_max_size: u32,
    /// Repetitions of a failed batch before it is dropped.
    #[serde(default)]
    max_retry_count: u32,
    /// Seconds before a failed batch is sent again.
    #[serde(default = "retry_delay")]
    retry_delay: u64,
    /// Maximum age of the first line of a batch in seconds, checked each `inactive_timeout`.
    #[serde(default = "buffer_duration")]
    #[schemars(range(min = 1))]
    buffer_duration: u64,
    /// Seconds without a new line after which a batch is sent.
    #[serde(default = "inactive_timeout")]
    #[schemars(range(min = 1))]
    inactive_timeout: u64,
}

/// A TCP server, which gets the lines with their ends.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogTcp {
    /// Host name or IP address.
    host: String,
    /// Port.
    port: u16,
    /// Whether the connection uses TLS. The certificate of the server is not verified.
    #[serde(default)]
    tls: bool,
    /// Server name for TLS.
    tls_server_name: Option<String>,
}

/// A server of SkyWalking.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogSkywalking {
    /// URL of the log API.
    #[serde(default = "skywalking_url")]
    endpoint_addr: String,
    /// Name of the service.
    #[serde(default = "service_name")]
    service_name: String,
    /// Name of the instance; `$hostname` is the host name of the node.
    #[serde(default = "service_instance_name")]
    service_instance_name: String,
}

/// A table of ClickHouse with a column `data`.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogClickhouse {
    /// Address of the server.
    #[serde(default = "clickhouse_url")]
    endpoint_addr: String,
    /// User name.
    #[serde(default = "clickhouse_user")]
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
}

/// A topic of Kafka.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogKafka {
    /// Brokers of the cluster.
    brokers: Vec<ErrorLogBroker>,
    /// The topic.
    #[serde(default)]
    kafka_topic: String,
    /// Key of the records.
    key: Option<String>,
    /// Acknowledgements that a record requires: 1 of the leader, -1 of all replicas in sync. 0 counts as 1.
    #[serde(default = "required_acks")]
    #[schemars(extend("enum" = [0, 1, -1]))]
    required_acks: i64,
    /// Seconds between refreshes of the cluster's metadata.
    #[serde(default = "meta_refresh_interval")]
    #[schemars(range(min = 1))]
    meta_refresh_interval: u64,
    /// TLS to the brokers.
    tls: Option<ErrorLogKafkaTls>,
}

/// TLS to the brokers.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogKafkaTls {
    /// Whether the certificates of the brokers are verified.
    #[serde(default)]
    verify: bool,
}

/// A broker.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogBroker {
    /// Host name or IP address.
    host: String,
    /// Port.
    #[schemars(range(min = 1))]
    port: u16,
    /// Credentials for PLAIN; those of the first broker that has some apply to all.
    sasl_config: Option<ErrorLogSasl>,
}

/// Credentials.
#[derive(Deserialize, JsonSchema)]
struct ErrorLogSasl {
    /// User name.
    user: String,
    /// Password.
    password: String,
}

/// Levels with the names of NGINX.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum ErrorLogLevel {
    Stderr,
    Emerg,
    Alert,
    Crit,
    Err,
    Error,
    #[default]
    Warn,
    Notice,
    Info,
    Debug,
}

impl ErrorLogLevel {
    fn of_node(self) -> NodeLogLevel {
        match self {
            ErrorLogLevel::Stderr
            | ErrorLogLevel::Emerg
            | ErrorLogLevel::Alert
            | ErrorLogLevel::Crit
            | ErrorLogLevel::Err
            | ErrorLogLevel::Error => NodeLogLevel::Error,
            ErrorLogLevel::Warn => NodeLogLevel::Warn,
            ErrorLogLevel::Notice | ErrorLogLevel::Info => NodeLogLevel::Info,
            ErrorLogLevel::Debug => NodeLogLevel::Debug,
        }
    }
}

fn name() -> String {
    "error-log-logger".to_owned()
}

fn timeout() -> u64 {
    3
}

fn keepalive() -> u64 {
    30
}

fn batch_max_size() -> u32 {
    1000
}

fn retry_delay() -> u64 {
    1
}

fn buffer_duration() -> u64 {
    60
}

fn inactive_timeout() -> u64 {
    3
}

fn skywalking_url() -> String {
    "http://127.0.0.1:12900/v3/logs".to_owned()
}

fn service_name() -> String {
    "APISIX".to_owned()
}

fn service_instance_name() -> String {
    "APISIX Service Instance".to_owned()
}

fn clickhouse_url() -> String {
    "http://127.0.0.1:8123".to_owned()
}

fn clickhouse_user() -> String {
    "default".to_owned()
}

fn required_acks() -> i64 {
    1
}

fn meta_refresh_interval() -> u64 {
    30
}

/// The plugin, which does nothing on objects.
pub(crate) struct ErrorLogLogger;

impl PluginFactory for ErrorLogLogger {
    const NAME: &'static str = "error-log-logger";
    const PRIORITY: i32 = 1091;
    type Config = ErrorLogSettings;

    fn build(_: ErrorLogSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        if setup.metadata.is_none() && setup.objects.is_some() {
            setup.warn("", "without effect: the plugin has no metadata", "add plugin metadata with a server");
        }
        Ok(ErrorLogLogger)
    }
}

impl Plugin for ErrorLogLogger {
    fn phases(&self) -> PhaseSet {
        PhaseSet::NONE
    }
}

/// Opens the sink for the node's log.
pub(crate) fn open_node_log(metadata: &Value, sinks: &SinkRegistry) -> Result<NodeLogSink, InvalidSettings> {
    let metadata: ErrorLogMetadata =
        serde_json::from_value(metadata.clone()).map_err(InvalidSettings::from_serde)?;
    let (timeout_ms, idle_ms) =
        (metadata.timeout.saturating_mul(1000), metadata.keepalive.saturating_mul(1000));
    let batch = &metadata.batch;
    let policy = BatchPolicy {
        batch_max_size: batch.batch_max_size.max(1),
        inactive_timeout_ms: batch.inactive_timeout.saturating_mul(1000),
        buffer_duration_ms: batch.buffer_duration.saturating_mul(1000),
        max_retry_count: batch.max_retry_count,
        retry_delay_ms: batch.retry_delay.saturating_mul(1000),
        pending_entries_max: PENDING_ENTRIES_MAX,
        pending_bytes_max: PENDING_BYTES_MAX,
    };
    let level = metadata.level.of_node();
    let http = |path: &str, url: &str| {
        let url = SinkUrl::parse(path, url)?;
        let address =
            SinkAddress::Http { endpoints: vec![url.origin], tls: SinkTls::default(), timeout_ms, idle_ms };
        Ok::<_, InvalidSettings>((address, url.target))
    };
    let (name, tls, server_name) = (metadata.name, metadata.tls, metadata.tls_server_name);
    let old_form = match (metadata.host, metadata.port) {
        (Some(host), Some(port)) => Some(ErrorLogTcp { host, port, tls, tls_server_name: server_name }),
        _ => None,
    };
    let (address, encoder, form) = if let Some(skywalking) = metadata.skywalking {
        let (address, target) = http("skywalking.endpoint_addr", &skywalking.endpoint_addr)?;
        let instance = match skywalking.service_instance_name.as_str() {
            "$hostname" => ProcessVars::current().map_or("", |process| &process.hostname).to_owned(),
            name => name.to_owned(),
        };
        let encoder = NodeLogEncoder { target, framing: SinkFraming::JSON_LIST, ..NodeLogEncoder::default() };
        (address, encoder, LineForm::Skywalking { service: skywalking.service_name, instance })
    } else if let Some(clickhouse) = metadata.clickhouse {
        let (address, target) = http("clickhouse.endpoint_addr", &clickhouse.endpoint_addr)?;
        let encoder = NodeLogEncoder {
            target,
            fields: vec![
                ("X-ClickHouse-User".to_owned(), clickhouse.user),
                ("X-ClickHouse-Key".to_owned(), clickhouse.password),
                ("X-ClickHouse-Database".to_owned(), clickhouse.database),
            ],
            head: format!("INSERT INTO {} FORMAT JSONEachRow ", clickhouse.logtable),
            framing: SinkFraming { open: b"", separator: b" ", close: b"" },
        };
        (address, encoder, LineForm::Row)
    } else if let Some(kafka) = metadata.kafka {
        (kafka_address(kafka, timeout_ms), NodeLogEncoder::default(), LineForm::Line)
    } else if let Some(tcp) = metadata.tcp.or(old_form) {
        let tls = tcp.tls.then_some(SinkTls { server_name: tcp.tls_server_name, ..SinkTls::default() });
        let address = SinkAddress::Tcp { host: tcp.host, port: tcp.port, tls, timeout_ms, idle_ms };
        (address, NodeLogEncoder::default(), LineForm::Line)
    } else {
        return Err(InvalidSettings::at("", "one of tcp, skywalking, clickhouse and kafka is required"));
    };
    let spec = SinkSpec {
        plugin: ErrorLogLogger::NAME,
        name,
        address,
        policy,
        encoder: format!("{encoder:?}{form:?}"),
    };
    let handle = sinks.open(spec, Arc::new(encoder));
    Ok(NodeLogSink { handle, level, render: Box::new(move |line: &str| form.render(line)) })
}

fn kafka_address(kafka: ErrorLogKafka, timeout_ms: u64) -> SinkAddress {
    let (mut brokers, mut login) = (Vec::new(), None);
    for broker in kafka.brokers {
        brokers.push((broker.host, broker.port));
        login = login.or(broker.sasl_config);
    }
    SinkAddress::Kafka(Box::new(KafkaSettings {
        brokers,
        topic: kafka.kafka_topic,
        key: kafka.key,
        awaits_replicas: kafka.required_acks == -1,
        timeout_ms,
        refresh_ms: kafka.meta_refresh_interval.saturating_mul(1000),
        login: login.map(|sasl| KafkaLogin {
            mechanism: KafkaMechanism::Plain,
            user: sasl.user,
            password: sasl.password,
        }),
        tls: kafka.tls.map(|tls| SinkTls { verify: tls.verify, ..SinkTls::default() }),
    }))
}

/// The form of a line as an entry.
#[derive(Debug)]
enum LineForm {
    /// The line with its end.
    Line,
    /// A row of ClickHouse.
    Row,
    Skywalking {
        service: String,
        instance: String,
    },
}

impl LineForm {
    fn render(&self, line: &str) -> Vec<u8> {
        match self {
            LineForm::Line => format!("{line}\n").into_bytes(),
            LineForm::Row => json!({ "data": line }).to_string().into_bytes(),
            LineForm::Skywalking { service, instance } => {
                let body = json!({ "text": { "text": line } });
                let entry =
                    json!({ "service": service, "serviceInstance": instance, "endpoint": "", "body": body });
                entry.to_string().into_bytes()
            }
        }
    }
}

#[derive(Debug)]
struct NodeLogEncoder {
    target: String,
    fields: Vec<(String, String)>,
    /// Text in front of the entries.
    head: String,
    framing: SinkFraming,
}

impl Default for NodeLogEncoder {
    fn default() -> NodeLogEncoder {
        NodeLogEncoder {
            target: String::new(),
            fields: Vec::new(),
            head: String::new(),
            framing: SinkFraming::PLAIN,
        }
    }
}

impl SinkEncoder for NodeLogEncoder {
    fn framing(&self) -> SinkFraming {
        self.framing
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let mut body = vec![Bytes::from(self.head.clone())];
        body.extend(batch.framed(self.framing));
        let mut fields = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        fields.extend(self.fields.iter().cloned());
        vec![post(batch, &self.target, fields, body)]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            ..400 => SinkVerdict::Sent,
            status => SinkVerdict::Retry(format!("server returned status code[{status}]")),
        }
    }
}
