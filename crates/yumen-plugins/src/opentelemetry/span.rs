//! Spans of one request in the wire format of OTLP (opentelemetry-proto, `trace.proto`).

use yumen_base::ProtobufWriter;
use yumen_plugin::{
    AttemptTiming, Exchange, ExchangeOutcome, ExchangeTimeline, PluginTiming, ResponseSource,
};

use super::attributes::{AttributeRules, AttributeWriter};
use super::export::SPANS;
use super::settings::SpanDetail;
use crate::traces::span_times::SpanTimes;
use crate::traces::w3c::{self, TraceParent};
use crate::traces::{SpanId, new_span_id, response_source};

/// Fields of `Span`.
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START_TIME: u32 = 7;
const END_TIME: u32 = 8;
const STATUS: u32 = 15;

/// Fields of `Status`.
const STATUS_MESSAGE: u32 = 2;
const STATUS_CODE: u32 = 3;
const STATUS_ERROR: u64 = 2;

/// Spans of one request, beside the server span.
const CHILDREN_MAX: usize = 63;
/// Plugins that take less time in nanoseconds have no span.
const PLUGIN_NS_MIN: u64 = 10_000;

/// Kinds of spans.
#[derive(Clone, Copy)]
enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The span of a sampled request, until it is exported.
pub(super) struct ServerSpan {
    /// The tracer that has made the span.
    pub(super) tracer: usize,
    pub(super) context: TraceParent,
    pub(super) parent_id: Option<SpanId>,
    /// Name, kind and attributes as encoded fields: other plugins may change the request.
    pub(super) begun: Vec<u8>,
    /// Spans of attempts.
    pub(super) attempts: Vec<SpanId>,
}

/// The span of one attempt.
struct AttemptSpan<'t> {
    id: SpanId,
    attempt: &'t AttemptTiming,
    times: SpanTimes,
    /// Status of the response, if the client received it.
    status: Option<u16>,
}

/// Encodes the fields of a server span that are known at its begin.
pub(super) fn begin(rules: &AttributeRules, ex: &Exchange<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut span = ProtobufWriter::new(&mut out);
    let request = &ex.request;
    let (method, route) = (request.method_name(), ex.route.uri());
    match route {
        "" => span.text(NAME, method),
        path => span.text(NAME, [method, b" ", path.as_bytes()].concat()),
    }
    span.varint(KIND, SpanKind::Server as u64);
    let mut attributes = AttributeWriter::of_span(&mut span);
    let agent = request.fields.get("user-agent").unwrap_or_default();
    attributes.optional("net.host.name", request.host());
    attributes.text("http.method", method);
    attributes.text("http.scheme", ex.client.scheme());
    attributes.text("http.target", request.request_uri());
    attributes.optional("http.user_agent", agent);
    attributes.text("http.request.method", method);
    attributes.text("url.scheme", ex.client.scheme());
    attributes.text("url.path", request.path());
    attributes.optional("user_agent.original", agent);
    if let Some(info) = ex.route.info {
        attributes.optional("apisix.route_id", info.id.as_bytes());
        attributes.optional("apisix.route_name", info.name.as_bytes());
        attributes.optional("http.route", route);
        attributes.optional("apisix.service_id", info.service_id.as_bytes());
        attributes.optional("apisix.service_name", info.service_name.as_bytes());
    }
    rules.write_early(ex, &mut attributes);
    out
}

impl ServerSpan {
    /// Appends the ended span.
    pub(super) fn write(
        &self,
        rules: &AttributeRules,
        ex: &Exchange<'_>,
        outcome: &ExchangeOutcome<'_>,
        out: &mut Vec<u8>,
    ) {
        let times = SpanTimes::of(ex.now, outcome);
        ProtobufWriter::new(out).message(SPANS, |span| {
            self.write_identity(self.context.span_id, self.parent_id, times, span);
            if let Some(state) = w3c::state(&ex.request.fields) {
                span.text(TRACE_STATE, state);
            }
            span.encoded(&self.begun);
            let source = response_source(outcome);
            let mut attributes = AttributeWriter::of_span(span);
            attributes.integer("http.status_code", outcome.status.into());
            attributes.integer("http.response.status_code", outcome.status.into());
            attributes.text("apisix.response_source", source);
            rules.write_late(ex, &mut attributes);
            if outcome.status >= 500 {
                write_error(&format!("{source} error: {}", outcome.status), span);
            }
        });
    }

    fn write_identity(
        &self,
        id: SpanId,
        parent: Option<SpanId>,
        times: SpanTimes,
        span: &mut ProtobufWriter<'_>,
    ) {
        span.bytes(TRACE_ID, &self.context.trace_id);
        span.bytes(SPAN_ID, &id);
        if let Some(parent) = parent {
            span.bytes(PARENT_SPAN_ID, &parent);
        }
        span.fixed64(START_TIME, times.start_us * 1000);
        span.fixed64(END_TIME, times.end_us * 1000);
    }

    /// Appends the spans of attempts and plugins.
    pub(super) fn write_children(
        &self,
        detail: SpanDetail,
        ex: &Exchange<'_>,
        outcome: &ExchangeOutcome<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(timeline) = ex.timeline() else { return };
        let exchange = SpanTimes::of(ex.now, outcome);
        let times = |started_ns: u64, duration_ns: u64| {
            let at = |ns: u64| exchange.at(ex.now, timeline.started.mono_us + ns / 1000);
            SpanTimes { start_us: at(started_ns), end_us: at(started_ns + duration_ns) }
        };
        for (index, (id, attempt)) in self.attempts.iter().zip(&timeline.attempts).enumerate() {
            let mut times = times(attempt.started_ns, attempt.connect_ns.unwrap_or(0) + attempt.head_ns);
            let status = self.status_of(index, timeline, outcome);
            if status.is_some() {
                // The response is the last step of the exchange.
                times.end_us = exchange.end_us;
            }
            self.write_attempt(&AttemptSpan { id: *id, attempt, times, status }, ex, out);
        }
        if detail == SpanDetail::Plugins {
            let room = CHILDREN_MAX.saturating_sub(self.attempts.len());
            let is_long = |timing: &&PluginTiming| timing.run_ns + timing.wait_ns >= PLUGIN_NS_MIN;
            for timing in timeline.plugins.iter().filter(is_long).take(room) {
                let times = times(timing.started_ns, timing.run_ns + timing.wait_ns);
                self.write_plugin(ex, timing, times, out);
            }
        }
    }

    /// Status of the attempt whose response the client received.
    fn status_of(
        &self,
        index: usize,
        timeline: &ExchangeTimeline,
        outcome: &ExchangeOutcome<'_>,
    ) -> Option<u16> {
        let is_last = index + 1 == timeline.attempts.len();
        outcome.upstream_status.filter(|_| is_last && outcome.source == ResponseSource::Upstream)
    }

    fn write_attempt(&self, of: &AttemptSpan<'_>, ex: &Exchange<'_>, out: &mut Vec<u8>) {
        let AttemptSpan { id, attempt, times, status } = *of;
        ProtobufWriter::new(out).message(SPANS, |span| {
            self.write_identity(id, Some(self.context.span_id), times, span);
            span.text(NAME, ex.request.method_name());
            span.varint(KIND, SpanKind::Client as u64);
            let mut attributes = AttributeWriter::of_span(span);
            attributes.text("http.request.method", ex.request.method_name());
            attributes.text("server.address", attempt.endpoint.ip().to_string());
            attributes.integer("server.port", attempt.endpoint.port().into());
            if let Some(connect_ns) = attempt.connect_ns {
                attributes.integer("yumen.connect_us", (connect_ns / 1000) as i64);
            }
            if let Some(status) = status {
                attributes.integer("http.response.status_code", status.into());
            }
            if !attempt.fault.is_empty() {
                attributes.text("error.type", attempt.fault);
                write_error(attempt.fault, span);
            }
        });
    }

    fn write_plugin(&self, ex: &Exchange<'_>, timing: &PluginTiming, times: SpanTimes, out: &mut Vec<u8>) {
        ProtobufWriter::new(out).message(SPANS, |span| {
            self.write_identity(new_span_id(ex.host), Some(self.context.span_id), times, span);
            span.text(NAME, format!("{} {}", timing.name, timing.phase.name()));
            span.varint(KIND, SpanKind::Internal as u64);
            let mut attributes = AttributeWriter::of_span(span);
            attributes.text("yumen.plugin", timing.name);
            if timing.answered {
                attributes.flag("yumen.plugin.responded", true);
            }
        });
    }
}

fn write_error(message: &str, span: &mut ProtobufWriter<'_>) {
    span.message(STATUS, |status| {
        status.text(STATUS_MESSAGE, message);
        status.varint(STATUS_CODE, STATUS_ERROR);
    });
}
