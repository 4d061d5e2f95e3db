//! Log records of OTLP as collectors read them (opentelemetry-proto 1.9), for tests of exporters.

use std::collections::BTreeMap;

use prost::Message;

use crate::otlp::{AnyValue, OtlpPair, OtlpResource, OtlpValue, hex, pairs};

#[derive(Clone, PartialEq, Message)]
struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<OtlpResource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<OtlpPair>,
    #[prost(fixed32, tag = "8")]
    flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    span_id: Vec<u8>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
}

/// A received log record. Identifiers are hexadecimal texts, attributes have their values as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRecord {
    /// Time in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Time of the observation in nanoseconds since the Unix epoch.
    pub observed_ns: u64,
    /// The severity as a number.
    pub severity: i32,
    /// The severity as a word.
    pub severity_text: String,
    /// The text.
    pub body: String,
    /// Attributes of the record.
    pub attributes: BTreeMap<String, String>,
    /// Flags of the trace.
    pub flags: u32,
    /// The trace; empty without one.
    pub trace_id: String,
    /// The span; empty without one.
    pub span_id: String,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

/// Decodes an export request of logs.
///
/// # Panics
///
/// If the request is malformed, has a key twice, or a record without a text.
pub fn received_records(body: &[u8]) -> Vec<ReceivedRecord> {
    let request = LogsRequest::decode(body).expect("a message of OTLP");
    let mut received = Vec::new();
    for of_resource in request.resource_logs {
        let resource = pairs(of_resource.resource.expect("a resource").attributes);
        for record in of_resource.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
            let Some(OtlpValue::Text(text)) = record.body.and_then(|any| any.value) else {
                panic!("a record without a text");
            };
            received.push(ReceivedRecord {
                time_ns: record.time_unix_nano,
                observed_ns: record.observed_time_unix_nano,
                severity: record.severity_number,
                severity_text: record.severity_text,
                body: text,
                attributes: pairs(record.attributes),
                flags: record.flags,
                trace_id: hex(&record.trace_id),
                span_id: hex(&record.span_id),
                resource: resource.clone(),
            });
        }
    }
    received
}
