//! Settings of `opentelemetry`, and its metadata, which names the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{BatchPolicy, SinkAddress, SinkHandle, SinkRegistry, SinkSpec, SinkTls};

use super::attributes::AttributeRules;
use super::export::{self, SpanEncoder};
use crate::sink_url::SinkUrl;
use crate::traces::sampler::{TraceSampler, TraceShare};

/// Settings of `opentelemetry`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OpenTelemetrySettings {
    /// The sampler.
    #[serde(default)]
    #[schemars(extend("default" = sampler_default()))]
    sampler: SamplerSettings,
    /// Variables whose values are attributes of spans.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    additional_attributes: Vec<String>,
    /// Request fields whose values are attributes of spans. A name with `*` at its end is a prefix of names.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    additional_header_prefix_attributes: Vec<String>,
}

/// A sampler.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct SamplerSettings {
    /// `always_on`, `always_off`, `trace_id_ratio` for a fraction of all traces, or `parent_base` for the decision of
    /// the caller.
    #[serde(default)]
    #[schemars(extend("default" = "always_off"))]
    name: SamplerName,
    /// Options of the sampler.
    #[serde(default)]
    #[schemars(extend("default" = json!({"fraction": 0, "root": {"name": "always_off"}})))]
    options: SamplerOptions,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct SamplerOptions {
    /// Fraction of traces for `trace_id_ratio`, from 0 to 1.
    #[serde(default)]
    fraction: f64,
    /// Sampler of traces without a caller, for `parent_base`.
    #[serde(default)]
    #[schemars(extend("default" = json!({"name": "always_off", "options": {"fraction": 0}})))]
    root: RootSampler,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct RootSampler {
    /// `always_on`, `always_off`, or `trace_id_ratio` for a fraction of all traces.
    #[serde(default)]
    #[schemars(extend("default" = "always_off"))]
    name: RootSamplerName,
    /// Options of the sampler.
    #[serde(default)]
    #[schemars(extend("default" = json!({"fraction": 0})))]
    options: RootOptions,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct RootOptions {
    /// Fraction of traces for `trace_id_ratio`, from 0 to 1.
    #[serde(default)]
    fraction: f64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SamplerName {
    AlwaysOn,
    #[default]
    AlwaysOff,
    TraceIdRatio,
    ParentBase,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RootSamplerName {
    AlwaysOn,
    #[default]
    AlwaysOff,
    TraceIdRatio,
}

fn sampler_default() -> Value {
    json!({"name": "always_off", "options": {"fraction": 0, "root": {"name": "always_off"}}})
}

impl RootSampler {
    fn share(&self) -> TraceShare {
        match self.name {
            RootSamplerName::AlwaysOn => TraceShare::All,
            RootSamplerName::AlwaysOff => TraceShare::Nothing,
            RootSamplerName::TraceIdRatio => TraceShare::of(self.options.fraction),
        }
    }
}

impl OpenTelemetrySettings {
    pub(super) fn sampler(&self) -> TraceSampler {
        let options = &self.sampler.options;
        match self.sampler.name {
            SamplerName::AlwaysOn => TraceSampler::Share(TraceShare::All),
            SamplerName::AlwaysOff => TraceSampler::Share(TraceShare::Nothing),
            SamplerName::TraceIdRatio => TraceSampler::Share(TraceShare::of(options.fraction)),
            SamplerName::ParentBase => TraceSampler::ParentBased(options.root.share()),
        }
    }

    pub(super) fn attribute_rules(&self) -> AttributeRules {
        AttributeRules::new(&self.additional_attributes, &self.additional_header_prefix_attributes)
    }
}

/// Metadata of `opentelemetry`. Without it no trace is recorded.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OpenTelemetryMetadata {
    /// Source of trace identifiers: `random`, or `x-request-id` for the request field of this name if it has 32
    /// hexadecimal digits.
    #[serde(default)]
    #[schemars(extend("default" = "random"))]
    pub(super) trace_id_source: TraceIdSource,
    /// Attributes of the resource; `service.name` is `APISIX` by default.
    #[serde(default)]
    resource: BTreeMap<String, ScalarValue>,
    /// The collector.
    #[serde(default)]
    #[schemars(extend("default" = json!({"address": "127.0.0.1:4318", "request_timeout": 3})))]
    collector: CollectorSettings,
    /// Batches of spans.
    #[serde(default)]
    #[schemars(extend("default" = json!({})))]
    batch_span_processor: SpanBatchSettings,
    /// Whether the variables `opentelemetry_context_traceparent`, `opentelemetry_trace_id` and
    /// `opentelemetry_span_id` are set, for access logs.
    #[serde(default)]
    pub(super) set_ngx_var: bool,
    /// Spans of a request: `server` for one span, `attempts` for one more per attempt at the upstream, `plugins` also
    /// for those of plugins that take longer than 10 µs.
    #[serde(default)]
    #[schemars(extend("default" = "server"))]
    pub(super) span_detail: SpanDetail,
}

/// Source of trace identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TraceIdSource {
    XRequestId,
    #[default]
    Random,
}

/// Spans of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SpanDetail {
    #[default]
    Server,
    Attempts,
    Plugins,
}

/// A value without members.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ScalarValue {
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

impl std::fmt::Display for ScalarValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ScalarValue::Bool(value) => value.fmt(f),
            ScalarValue::Integer(value) => value.fmt(f),
            ScalarValue::Number(value) => value.fmt(f),
            ScalarValue::Text(value) => f.write_str(value),
        }
    }
}

/// The collector.
#[derive(Debug, Deserialize, JsonSchema)]
struct CollectorSettings {
    /// `host:port`, or a URL for https. With `http`, the path is `/v1/traces`.
    #[serde(default = "address")]
    address: String,
    /// Seconds until a request fails.
    #[serde(default = "request_timeout")]
    #[schemars(range(min = 1))]
    request_timeout: u64,
    /// Further fields of requests, such as `Authorization`.
    #[serde(default)]
    request_headers: BTreeMap<String, ScalarValue>,
    /// Form of requests: `http` for OTLP over HTTP, `grpc` for OTLP over gRPC, whose servers use port 4317.
    #[serde(default)]
    #[schemars(extend("default" = "http"))]
    protocol: CollectorProtocol,
    /// Whether the certificate of an https collector is verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CollectorProtocol {
    #[default]
    Http,
    Grpc,
}

fn address() -> String {
    "127.0.0.1:4318".to_owned()
}

fn request_timeout() -> u64 {
    3
}

fn ssl_verify() -> bool {
    true
}

impl Default for CollectorSettings {
    fn default() -> CollectorSettings {
        CollectorSettings {
            address: address(),
            request_timeout: request_timeout(),
            request_headers: BTreeMap::new(),
            protocol: CollectorProtocol::Http,
            ssl_verify: true,
        }
    }
}

/// Batches of spans.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct SpanBatchSettings {
    /// Whether requests beyond `max_queue_size` are left out; false has no effect, since no request waits.
    drop_on_queue_full: Option<bool>,
    /// Maximum number of requests whose spans wait. Default 2048.
    #[schemars(range(min = 1))]
    max_queue_size: Option<u64>,
    /// Maximum age of a batch in seconds. Default 5.
    batch_timeout: Option<f64>,
    /// Seconds without a new span after which a batch is sent. Default 2.
    inactive_timeout: Option<f64>,
    /// Maximum number of requests in a batch. Default 256.
    #[schemars(range(min = 1))]
    max_export_batch_size: Option<u32>,
}

/// Maximum size of waiting spans: 32 MiB.
const PENDING_BYTES_MAX: u64 = 32 * 1024 * 1024;

impl SpanBatchSettings {
    fn policy(&self) -> BatchPolicy {
        let ms = |seconds: Option<f64>, default: f64| (seconds.unwrap_or(default).max(0.1) * 1000.0) as u64;
        BatchPolicy {
            batch_max_size: self.max_export_batch_size.unwrap_or(256),
            inactive_timeout_ms: ms(self.inactive_timeout, 2.0),
            buffer_duration_ms: ms(self.batch_timeout, 5.0),
            max_retry_count: 2,
            retry_delay_ms: 1000,
            pending_entries_max: self.max_queue_size.unwrap_or(2048),
            pending_bytes_max: PENDING_BYTES_MAX,
        }
    }
}

/// The sink of spans before it is opened.
pub(super) struct SpanSink {
    pub(super) address: SinkAddress,
    policy: BatchPolicy,
    encoder: SpanEncoder,
}

impl SpanSink {
    pub(super) fn open(self, registry: &SinkRegistry) -> SinkHandle {
        let spec = SinkSpec {
            plugin: "opentelemetry",
            name: "opentelemetry".to_owned(),
            address: self.address,
            policy: self.policy,
            encoder: format!("{:?}", self.encoder),
        };
        registry.open(spec, Arc::new(self.encoder))
    }
}

impl OpenTelemetryMetadata {
    pub(super) fn parse(written: &Value) -> Result<OpenTelemetryMetadata, InvalidSettings> {
        OpenTelemetryMetadata::deserialize(written).map_err(InvalidSettings::from_serde)
    }

    pub(super) fn drops_when_full(&self) -> Option<bool> {
        self.batch_span_processor.drop_on_queue_full
    }

    pub(super) fn sink(&self) -> Result<SpanSink, InvalidSettings> {
        let collector = &self.collector;
        let url = match collector.address.contains("://") {
            true => collector.address.clone(),
            false => format!("http://{}", collector.address),
        };
        let url = SinkUrl::parse("collector.address", &url)?;
        let tls = SinkTls { verify: collector.ssl_verify, ..SinkTls::default() };
        let timeout_ms = collector.request_timeout.saturating_mul(1000);
        let (address, target) = match collector.protocol {
            CollectorProtocol::Http => (
                SinkAddress::Http { endpoints: vec![url.origin], tls, timeout_ms, idle_ms: 60_000 },
                format!("{}/v1/traces", url.target.trim_end_matches('/')),
            ),
            CollectorProtocol::Grpc => (
                SinkAddress::Grpc { endpoint: url.origin, tls, timeout_ms, idle_ms: 60_000 },
                export::GRPC_METHOD.to_owned(),
            ),
        };
        let fields = collector.request_headers.iter();
        let encoder = SpanEncoder {
            target,
            fields: fields.map(|(name, value)| (name.clone(), value.to_string())).collect(),
            resource: export::resource(&self.resource),
        };
        Ok(SpanSink { address, policy: self.batch_span_processor.policy(), encoder })
    }
}
