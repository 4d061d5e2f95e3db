//! Records of ended exchanges in the wire format of OTLP (opentelemetry-proto, `logs.proto`).
//!
//! Names of attributes are those of the semantic conventions of OpenTelemetry, or begin with `yumen.`. This file must not
//! know sinks.

use yumen_base::ProtobufWriter;
use yumen_plugin::{Exchange, ExchangeOutcome, ExchangeTrace, StreamInfo};

#[cfg(test)]
mod tests;

/// The field of `ScopeLogs` with a record.
const LOG_RECORDS: u32 = 2;

/// Fields of `LogRecord`.
const TIME: u32 = 1;
const SEVERITY: u32 = 2;
const SEVERITY_TEXT: u32 = 3;
const BODY: u32 = 5;
const ATTRIBUTES: u32 = 6;
const FLAGS: u32 = 8;
const TRACE_ID: u32 = 9;
const SPAN_ID: u32 = 10;
const OBSERVED_TIME: u32 = 11;

/// Fields of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING_VALUE: u32 = 1;
const INT_VALUE: u32 = 3;

/// Values of `SeverityNumber`.
const INFO: u64 = 9;
const ERROR: u64 = 17;

/// The flag of a sampled trace (W3C Trace Context §3.2.2.5.1).
const SAMPLED: u32 = 1;

/// Appends the record of one exchange.
pub(crate) fn write(ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
    ProtobufWriter::new(out).message(LOG_RECORDS, |record| {
        // The clock of an exchange has milliseconds.
        let time_ns = ex.now.unix_ms * 1_000_000;
        let is_stream = ex.client.stream.is_some();
        // The record of a stream has the time of its end.
        let duration_ns = if is_stream { 0 } else { outcome.duration_us * 1000 };
        record.fixed64(TIME, time_ns);
        record.fixed64(OBSERVED_TIME, time_ns + duration_ns);
        let is_error = outcome.status >= 500;
        record.varint(SEVERITY, if is_error { ERROR } else { INFO });
        record.text(SEVERITY_TEXT, if is_error { "ERROR" } else { "INFO" });
        match &ex.client.stream {
            None => write_request(ex, outcome, record),
            Some(stream) => write_stream(ex, stream, outcome, record),
        }
        write_outcome(ex, outcome, record);
        if let Some(trace) = ex.note::<ExchangeTrace>() {
            record.fixed32(FLAGS, if trace.is_sampled { SAMPLED } else { 0 });
            record.bytes(TRACE_ID, &trace.trace_id);
            record.bytes(SPAN_ID, &trace.span_id);
        }
    });
}

fn write_body(text: &[u8], record: &mut ProtobufWriter<'_>) {
    record.message(BODY, |any| any.text(STRING_VALUE, text));
}

/// The members that only requests have.
fn write_request(ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>, record: &mut ProtobufWriter<'_>) {
    let request = &ex.request;
    let (method, target) = (request.method_name(), request.target());
    let status = outcome.status.to_string();
    write_body(&[method, b" ", target, b" ", status.as_bytes()].concat(), record);
    let question = target.iter().position(|byte| *byte == b'?');
    text("http.request.method", method, record);
    text("url.path", &target[..question.unwrap_or(target.len())], record);
    text("url.query", question.map_or(&b""[..], |at| &target[at + 1..]), record);
    text("url.scheme", ex.client.scheme(), record);
    text("server.address", request.host(), record);
    integer("http.response.status_code", outcome.status.into(), record);
    text("http.route", ex.route.uri(), record);
    for (name, field) in [
        ("user_agent.original", "user-agent"),
        ("http.request.header.referer", "referer"),
        ("http.request.header.x-request-id", "x-request-id"),
    ] {
        text(name, request.fields.get(field).unwrap_or_default(), record);
    }
}

/// The members that only streams have.
fn write_stream(
    ex: &Exchange<'_>,
    stream: &StreamInfo,
    outcome: &ExchangeOutcome<'_>,
    record: &mut ProtobufWriter<'_>,
) {
    let local = ex.client.connection.local;
    write_body(format!("{} {local} {}", stream.protocol, outcome.status).as_bytes(), record);
    text("network.protocol.name", stream.protocol, record);
    text("network.local.address", local.ip().to_string(), record);
    integer("network.local.port", local.port().into(), record);
    integer("yumen.status", outcome.status.into(), record);
    let sni = ex.client.tls().and_then(|tls| tls.sni.as_deref()).unwrap_or_default();
    text("tls.client.server_name", sni, record);
    text("yumen.mqtt_client_id", stream.mqtt_client_id.as_deref().unwrap_or_default(), record);
}

/// The members of all exchanges.
fn write_outcome(ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>, record: &mut ProtobufWriter<'_>) {
    text("client.address", ex.client.ip.to_string(), record);
    text("yumen.source", outcome.source.name(), record);
    text("yumen.route_id", ex.route.info.map_or("", |route| &*route.id), record);
    text("yumen.consumer", ex.consumer.map_or("", |consumer| &*consumer.username), record);
    if let Some(endpoint) = outcome.endpoint {
        text("yumen.endpoint", endpoint.to_string(), record);
    }
    text("yumen.fault", outcome.fault, record);
    integer("yumen.duration_us", outcome.duration_us, record);
    if let Some(upstream_us) = outcome.upstream_us {
        integer("yumen.upstream_us", upstream_us, record);
    }
    integer("yumen.attempts", outcome.attempts.into(), record);
    integer("yumen.received_bytes", outcome.received_bytes, record);
    integer("yumen.sent_bytes", outcome.sent_bytes, record);
}

/// Appends an attribute, unless its value is empty.
fn text(name: &str, value: impl AsRef<[u8]>, record: &mut ProtobufWriter<'_>) {
    let value = value.as_ref();
    if !value.is_empty() {
        attribute(name, record, |any| any.text(STRING_VALUE, value));
    }
}

fn integer(name: &str, value: u64, record: &mut ProtobufWriter<'_>) {
    attribute(name, record, |any| any.varint(INT_VALUE, value));
}

fn attribute(name: &str, record: &mut ProtobufWriter<'_>, value: impl FnOnce(&mut ProtobufWriter<'_>)) {
    record.message(ATTRIBUTES, |pair| {
        pair.text(KEY, name);
        pair.message(VALUE, value);
    });
}
