//! Export requests of OTLP around encoded spans (opentelemetry-proto, `trace_service.proto`).

use std::collections::BTreeMap;

use bytes::Bytes;
use yumen_base::ProtobufWriter;
use yumen_base::protobuf::write_prefix;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{SinkBatch, SinkEncoder, SinkFraming, SinkRequest};

use super::attributes::AttributeWriter;
use super::settings::ScalarValue;
use crate::logging::post;

/// The unary method of OTLP over gRPC.
pub(super) const GRPC_METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The field `spans` of `ScopeSpans`, in which workers write each span.
pub(super) const SPANS: u32 = 2;

/// Fields of `ExportTraceServiceRequest`, `ResourceSpans`, `Resource` and `InstrumentationScope`.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const RESOURCE_ATTRIBUTES: u32 = 1;
const SCOPE: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;

/// Makes export requests.
#[derive(Debug)]
pub(super) struct SpanEncoder {
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    /// The encoded field `resource` of `ResourceSpans`.
    pub(super) resource: Vec<u8>,
}

/// Encodes the resource: this node.
pub(super) fn resource(written: &BTreeMap<String, ScalarValue>) -> Vec<u8> {
    let mut out = Vec::new();
    ProtobufWriter::new(&mut out).message(RESOURCE, |resource| {
        let mut attributes = AttributeWriter::new(resource, RESOURCE_ATTRIBUTES);
        if let Some(process) = ProcessVars::current()
            && !written.contains_key("hostname")
        {
            attributes.text("hostname", process.hostname.as_bytes());
        }
        if !written.contains_key("service.name") {
            attributes.text("service.name", "APISIX");
        }
        for (name, value) in written {
            match value {
                ScalarValue::Bool(value) => attributes.flag(name, *value),
                ScalarValue::Integer(value) => attributes.integer(name, *value),
                ScalarValue::Number(value) => attributes.number(name, *value),
                ScalarValue::Text(value) => attributes.text(name, value),
            }
        }
    });
    out
}

impl SpanEncoder {
    /// The bytes in front of `spans_bytes` bytes of spans.
    fn prefix(&self, spans_bytes: usize) -> Vec<u8> {
        let mut scope = Vec::new();
        ProtobufWriter::new(&mut scope).message(SCOPE, |scope| {
            scope.text(SCOPE_NAME, "yumen");
            scope.text(SCOPE_VERSION, env!("CARGO_PKG_VERSION"));
        });
        let mut scope_spans = Vec::new();
        write_prefix(&mut scope_spans, SCOPE_SPANS, scope.len() + spans_bytes);
        let resource_spans = self.resource.len() + scope_spans.len() + scope.len() + spans_bytes;
        let mut out = Vec::new();
        write_prefix(&mut out, RESOURCE_SPANS, resource_spans);
        out.extend_from_slice(&self.resource);
        out.extend_from_slice(&scope_spans);
        out.extend_from_slice(&scope);
        out
    }
}

impl SinkEncoder for SpanEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::PLAIN
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let spans = batch.framed(self.framing());
        let prefix = self.prefix(spans.iter().map(Bytes::len).sum());
        let mut fields = vec![("Content-Type".to_owned(), "application/x-protobuf".to_owned())];
        fields.extend(self.fields.iter().cloned());
        let body = std::iter::once(prefix.into()).chain(spans).collect();
        vec![post(batch, &self.target, fields, body)]
    }
}
