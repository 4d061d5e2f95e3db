//! Messages of OTLP as collectors read them (opentelemetry-proto 1.9), for tests of exporters.

use std::collections::BTreeMap;

use prost::Message;

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
struct TraceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<OtlpResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OtlpResource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<OtlpPair>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<OtlpScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<OtlpPair>,
    #[prost(message, optional, tag = "15")]
    status: Option<OtlpStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OtlpPair {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "OtlpValue", tags = "1, 2, 3, 4")]
    pub(crate) value: Option<OtlpValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum OtlpValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

/// A received span. Identifiers are hexadecimal texts, attributes have their values as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The trace.
    pub trace_id: String,
    /// The span.
    pub span_id: String,
    /// The parent; empty for a root.
    pub parent_id: String,
    /// The vendors' state.
    pub trace_state: String,
    /// The name.
    pub name: String,
    /// 1 for internal, 2 for server, 3 for client.
    pub kind: i32,
    /// Start in nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// End in nanoseconds since the Unix epoch.
    pub end_ns: u64,
    /// Attributes of the span.
    pub attributes: BTreeMap<String, String>,
    /// The message of an error; `None` for another status.
    pub error: Option<String>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

impl ReceivedSpan {
    /// The value of an attribute; empty without it.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", |value| value)
    }
}

/// Decodes an export request of traces.
///
/// # Panics
///
/// If the request is malformed, has a key twice, or comes from another scope than `yumen`.
pub fn received_spans(body: &[u8]) -> Vec<ReceivedSpan> {
    let request = TraceRequest::decode(body).expect("a message of OTLP");
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = pairs(of_resource.resource.expect("a resource").attributes);
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.expect("a scope").name, "yumen");
            spans.extend(of_scope.spans.into_iter().map(|span| received(span, &resource)));
        }
    }
    spans
}

fn received(span: OtlpSpan, resource: &BTreeMap<String, String>) -> ReceivedSpan {
    ReceivedSpan {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_id: hex(&span.parent_span_id),
        trace_state: span.trace_state,
        name: span.name,
        kind: span.kind,
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: pairs(span.attributes),
        error: span.status.filter(|status| status.code == 2).map(|status| status.message),
        resource: resource.clone(),
    }
}

/// An identifier as a hexadecimal text.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn pairs(attributes: Vec<OtlpPair>) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for OtlpPair { key, value } in attributes {
        let value = match value.and_then(|any| any.value).expect("a value") {
            OtlpValue::Text(text) => text,
            OtlpValue::Bool(value) => value.to_string(),
            OtlpValue::Int(value) => value.to_string(),
            OtlpValue::Double(value) => value.to_string(),
        };
        assert!(map.insert(key.clone(), value).is_none(), "{key} occurs twice");
    }
    map
}
