//! Export of the node's metrics and logs by OTLP (opentelemetry-proto, `metrics.proto` and `logs.proto`).
//!
//! Each interval makes one entry of metrics, and workers make one of each request. Senders take them as those of plugins:
//! bounded, repeated, counted.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::runtime::Runtime;
use yumen_base::ProtobufWriter;
use yumen_base::metric::{MetricExemplar, MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_base::protobuf::write_prefix;
use yumen_config::NodeConfig;
use yumen_config::node::{OtlpConfig, OtlpProtocol};
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    BatchPolicy, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkHandle, SinkRequest, SinkSpec, SinkTls,
};

use crate::operators::{OperatorContext, metric_sources};
use crate::senders::LogSenders;

/// Time limit of a request in milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// Exports that wait for a collector.
const PENDING_MAX: u64 = 4;
/// Log records that wait for a collector, and their bytes.
const PENDING_RECORDS_MAX: u64 = 8192;
const PENDING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A signal of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtlpSignal {
    Metrics,
    Logs,
}

impl OtlpSignal {
    /// The target of OTLP over HTTP below the path of the endpoint, or the unary method of OTLP over gRPC.
    fn target(self, settings: &OtlpConfig) -> String {
        let method = match (self, settings.protocol) {
            (OtlpSignal::Metrics, OtlpProtocol::Http) => "/v1/metrics",
            (OtlpSignal::Metrics, OtlpProtocol::Grpc) => {
                "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
            }
            (OtlpSignal::Logs, OtlpProtocol::Http) => "/v1/logs",
            (OtlpSignal::Logs, OtlpProtocol::Grpc) => {
                "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
            }
        };
        format!("{}{method}", settings.base().1)
    }
}

/// Fields of the messages around metrics and log records: `ExportMetricsServiceRequest` and `ResourceMetrics` have the
/// same numbers as `ExportLogsServiceRequest` and `ResourceLogs`.
const RESOURCES: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPES: u32 = 2;
const ATTRIBUTES_OF_RESOURCE: u32 = 1;
const SCOPE: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
const METRICS: u32 = 2;

/// Fields of `Metric`, and of its kinds.
const NAME: u32 = 1;
const DESCRIPTION: u32 = 2;
const GAUGE: u32 = 5;
const SUM: u32 = 7;
const HISTOGRAM: u32 = 9;
const DATA_POINTS: u32 = 1;
const TEMPORALITY: u32 = 2;
const CUMULATIVE: u64 = 2;
const IS_MONOTONIC: u32 = 3;

/// Fields of `NumberDataPoint` and `HistogramDataPoint`.
const START_TIME: u32 = 2;
const TIME: u32 = 3;
const AS_DOUBLE: u32 = 4;
const NUMBER_ATTRIBUTES: u32 = 7;
const COUNT: u32 = 4;
const SUM_OF_POINT: u32 = 5;
const BUCKET_COUNTS: u32 = 6;
const EXPLICIT_BOUNDS: u32 = 7;
const EXEMPLARS: u32 = 8;
const HISTOGRAM_ATTRIBUTES: u32 = 9;

/// Fields of `Exemplar`.
const EXEMPLAR_TIME: u32 = 2;
const EXEMPLAR_DOUBLE: u32 = 3;
const EXEMPLAR_TRACE_ID: u32 = 5;

/// Fields of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING_VALUE: u32 = 1;

/// Starts the export of metrics, if the settings ask for it.
pub(crate) fn start(runtime: &Runtime, node: &NodeConfig, context: &OperatorContext) {
    let settings = &node.observe.otlp;
    if settings.endpoint.is_empty() || !settings.metrics {
        return;
    }
    let encoder = OtlpEncoder::new(settings, OtlpSignal::Metrics);
    let sink = context.senders.open(spec(settings, OtlpSignal::Metrics), Arc::new(encoder));
    let interval = Duration::from_secs(settings.metrics_interval_s.into());
    let sources = metric_sources(context);
    let start_ns = unix_ns();
    tracing::info!(endpoint = settings.endpoint, "metrics are exported by OTLP");
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            // False if too many wait, which the sink counts.
            sink.push(encode(&sources, PointTimes { start_ns, now_ns: unix_ns() }));
        }
    });
}

/// The sink to which workers append a record of each exchange, if the settings ask for it.
pub(crate) fn open_records(node: &NodeConfig, senders: &LogSenders) -> Option<SinkHandle> {
    let settings = &node.observe.otlp;
    if settings.endpoint.is_empty() || !settings.logs {
        return None;
    }
    tracing::info!(endpoint = settings.endpoint, "requests are exported as log records by OTLP");
    let encoder = OtlpEncoder::new(settings, OtlpSignal::Logs);
    Some(senders.open(spec(settings, OtlpSignal::Logs), Arc::new(encoder)))
}

fn policy(signal: OtlpSignal) -> BatchPolicy {
    let metrics = BatchPolicy {
        batch_max_size: 1,
        inactive_timeout_ms: 1000,
        buffer_duration_ms: 1000,
        max_retry_count: 2,
        retry_delay_ms: 1000,
        pending_entries_max: PENDING_MAX,
        pending_bytes_max: PENDING_BYTES_MAX,
    };
    match signal {
        OtlpSignal::Metrics => metrics,
        OtlpSignal::Logs => BatchPolicy {
            batch_max_size: 1000,
            buffer_duration_ms: 5000,
            pending_entries_max: PENDING_RECORDS_MAX,
            ..metrics
        },
    }
}

fn spec(settings: &OtlpConfig, signal: OtlpSignal) -> SinkSpec {
    let endpoint = settings.base().0.to_owned();
    let tls = SinkTls { verify: true, ..SinkTls::default() };
    let (timeout_ms, idle_ms) = (TIMEOUT_MS, 2 * 1000 * u64::from(settings.metrics_interval_s));
    let (plugin, name, encoder) = match signal {
        OtlpSignal::Metrics => ("otlp", "otlp metrics", "metrics"),
        OtlpSignal::Logs => ("otlp-logs", "otlp logs", "logs"),
    };
    SinkSpec {
        plugin,
        name: name.to_owned(),
        address: match settings.protocol {
            OtlpProtocol::Http => SinkAddress::Http { endpoints: vec![endpoint], tls, timeout_ms, idle_ms },
            OtlpProtocol::Grpc => SinkAddress::Grpc { endpoint, tls, timeout_ms, idle_ms },
        },
        policy: policy(signal),
        encoder: encoder.to_owned(),
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Begin and time of all points, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct PointTimes {
    start_ns: u64,
    now_ns: u64,
}

/// Encodes all metrics as fields of `ScopeMetrics`.
fn encode(sources: &[Arc<dyn MetricSource>], times: PointTimes) -> Vec<u8> {
    let (mut families, mut exemplars) = (Vec::new(), Vec::new());
    for source in sources {
        source.gather(&mut families);
        source.exemplars(&mut exemplars);
    }
    let mut out = Vec::new();
    let mut scope = ProtobufWriter::new(&mut out);
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        scope.message(METRICS, |metric| write_family(family, &exemplars, times, metric));
    }
    out
}

fn write_family(
    family: &MetricFamily,
    exemplars: &[MetricExemplar],
    times: PointTimes,
    metric: &mut ProtobufWriter<'_>,
) {
    metric.text(NAME, family.name.as_bytes());
    metric.text(DESCRIPTION, family.help.as_bytes());
    let kind = match family.kind {
        MetricKind::Counter => SUM,
        MetricKind::Gauge => GAUGE,
        MetricKind::Histogram => HISTOGRAM,
    };
    metric.message(kind, |data| {
        for series in &family.samples {
            data.message(DATA_POINTS, |point| write_point(family, series, exemplars, times, point));
        }
        if kind != GAUGE {
            data.varint(TEMPORALITY, CUMULATIVE);
        }
        if kind == SUM {
            data.varint(IS_MONOTONIC, 1);
        }
    });
}

fn write_point(
    family: &MetricFamily,
    series: &MetricSeries,
    exemplars: &[MetricExemplar],
    times: PointTimes,
    point: &mut ProtobufWriter<'_>,
) {
    if family.kind != MetricKind::Gauge {
        point.fixed64(START_TIME, times.start_ns);
    }
    point.fixed64(TIME, times.now_ns);
    let attributes = match &series.value {
        MetricValue::Number(number) => {
            point.double(AS_DOUBLE, *number);
            NUMBER_ATTRIBUTES
        }
        MetricValue::Buckets { buckets, sum, count } => {
            point.fixed64(COUNT, *count);
            point.double(SUM_OF_POINT, *sum);
            write_buckets(buckets, *count, point);
            let own = |one: &&MetricExemplar| one.family == family.name && series.labels.is_empty();
            exemplars.iter().filter(own).for_each(|one| write_exemplar(one, point));
            HISTOGRAM_ATTRIBUTES
        }
    };
    for (name, value) in &series.labels {
        point.message(attributes, |pair| {
            pair.text(KEY, name);
            pair.message(VALUE, |any| any.text(STRING_VALUE, value));
        });
    }
}

/// Appends the counts of single buckets, and their bounds; those of the gateway are cumulative and end below infinity.
fn write_buckets(buckets: &[(f64, u64)], count: u64, point: &mut ProtobufWriter<'_>) {
    let (mut counts, mut bounds, mut before) = (Vec::new(), Vec::new(), 0);
    for (bound, cumulative) in buckets {
        counts.extend_from_slice(&cumulative.saturating_sub(before).to_le_bytes());
        bounds.extend_from_slice(&bound.to_le_bytes());
        before = *cumulative;
    }
    counts.extend_from_slice(&count.saturating_sub(before).to_le_bytes());
    point.bytes(BUCKET_COUNTS, &counts);
    point.bytes(EXPLICIT_BOUNDS, &bounds);
}

fn write_exemplar(one: &MetricExemplar, point: &mut ProtobufWriter<'_>) {
    // An identifier of 64 bits is the lower half.
    let Ok(trace_id) = u128::from_str_radix(&one.trace_id, 16) else { return };
    point.message(EXEMPLARS, |exemplar| {
        exemplar.fixed64(EXEMPLAR_TIME, one.unix_ms * 1_000_000);
        exemplar.double(EXEMPLAR_DOUBLE, one.value);
        exemplar.bytes(EXEMPLAR_TRACE_ID, &trace_id.to_be_bytes());
    });
}

/// Makes export requests of encoded metrics or log records.
struct OtlpEncoder {
    target: String,
    fields: Vec<(String, String)>,
    service_name: String,
}

impl OtlpEncoder {
    fn new(settings: &OtlpConfig, signal: OtlpSignal) -> OtlpEncoder {
        let fields = settings.headers.iter().map(|(name, value)| (name.clone(), value.0.clone()));
        OtlpEncoder {
            target: signal.target(settings),
            fields: fields.collect(),
            service_name: settings.service_name.clone(),
        }
    }

    /// The bytes in front of `content_bytes` bytes of metrics or records.
    fn prefix(&self, content_bytes: usize) -> Vec<u8> {
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        ProtobufWriter::new(&mut resource).message(RESOURCE, |resource| {
            let hostname = ProcessVars::current().map_or("", |node| &node.hostname);
            for (key, value) in [("service.name", self.service_name.as_str()), ("host.name", hostname)] {
                resource.message(ATTRIBUTES_OF_RESOURCE, |pair| {
                    pair.text(KEY, key);
                    pair.message(VALUE, |any| any.text(STRING_VALUE, value));
                });
            }
        });
        ProtobufWriter::new(&mut scope).message(SCOPE, |scope| {
            scope.text(SCOPE_NAME, "yumen");
            scope.text(SCOPE_VERSION, env!("CARGO_PKG_VERSION"));
        });
        let mut inner = Vec::new();
        write_prefix(&mut inner, SCOPES, scope.len() + content_bytes);
        let mut out = Vec::new();
        write_prefix(&mut out, RESOURCES, resource.len() + inner.len() + scope.len() + content_bytes);
        for part in [resource, inner, scope] {
            out.extend_from_slice(&part);
        }
        out
    }
}

impl SinkEncoder for OtlpEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let content = batch.framed(self.framing());
        let prefix = self.prefix(content.iter().map(Bytes::len).sum());
        let mut fields = vec![("Content-Type".to_owned(), "application/x-protobuf".to_owned())];
        fields.extend(self.fields.iter().cloned());
        let body = std::iter::once(prefix.into()).chain(content).collect();
        let entries = batch.entries;
        vec![SinkRequest { method: "POST", target: self.target.clone(), fields, body, entries }]
    }
}
