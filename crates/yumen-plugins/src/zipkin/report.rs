//! Spans in the JSON form of Zipkin (Zipkin API, version 2, which servers take for spans of both settings).

use std::net::IpAddr;

use yumen_plugin::{
    Exchange, ExchangeOutcome, SinkBatch, SinkEncoder, SinkFraming, SinkReply, SinkRequest, SinkVerdict,
};

use crate::logging::json_text::{ObjectWriter, write_json_text};
use crate::logging::post;
use crate::traces::b3::B3TraceId;
use crate::traces::span_times::SpanTimes;
use crate::traces::{SpanId, hex_id, response_source};

/// This service in spans.
#[derive(Debug)]
pub(super) struct LocalEndpoint {
    pub(super) service_name: String,
    /// The address; `None` for that of the connection.
    pub(super) address: Option<String>,
}

/// The trace of a sampled request, until it is sent.
pub(super) struct ZipkinTrace {
    /// The instance of the plugin.
    pub(super) plugin: usize,
    pub(super) trace_id: B3TraceId,
    pub(super) request_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    /// The span that the upstream continues.
    pub(super) proxy_id: SpanId,
    /// Tags that are known at the begin, as members without braces.
    pub(super) tags: Vec<u8>,
    /// Ends of phases in monotonic microseconds.
    pub(super) marks: Vec<(&'static str, u64)>,
}

/// Tags of the request span, before other plugins change the request.
pub(super) fn request_tags(ex: &Exchange<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut tags = ObjectWriter::begin(&mut out);
    tags.text("component", "apisix");
    tags.text("http.method", ex.request.method_name());
    tags.text("http.url", ex.request.request_uri());
    out
}

/// One span.
struct SpanParts<'a> {
    name: &'a str,
    id: SpanId,
    parent_id: Option<SpanId>,
    times: SpanTimes,
}

impl ZipkinTrace {
    /// Appends all spans, with commas between them.
    pub(super) fn write(
        &self,
        local: &LocalEndpoint,
        has_phase_spans: bool,
        ex: &Exchange<'_>,
        outcome: &ExchangeOutcome<'_>,
        out: &mut Vec<u8>,
    ) {
        let times = SpanTimes::of(ex.now, outcome);
        let request =
            SpanParts { name: "apisix.request", id: self.request_id, parent_id: self.parent_id, times };
        self.write_span(&request, local, ex, Some(outcome), out);
        let mut child = |name, id: SpanId, parent_id, times| {
            out.push(b',');
            self.write_span(&SpanParts { name, id, parent_id: Some(parent_id), times }, local, ex, None, out);
        };
        let new_id = || crate::traces::new_span_id(ex.host);
        let mark =
            |name| self.marks.iter().find(|(mark, _)| *mark == name).map(|(_, us)| times.at(ex.now, *us));
        let mut begin_us = times.start_us;
        if has_phase_spans {
            for name in ["apisix.rewrite", "apisix.access"] {
                let Some(end_us) = mark(name) else { continue };
                child(name, new_id(), self.request_id, SpanTimes { start_us: begin_us, end_us });
                begin_us = end_us;
            }
        }
        let head_us = mark("apisix.proxy");
        let proxy = SpanTimes { start_us: begin_us, end_us: head_us.unwrap_or(times.end_us) };
        child("apisix.proxy", self.proxy_id, self.request_id, proxy);
        if let Some(start_us) = head_us {
            let (name, parent_id) = match has_phase_spans {
                true => ("apisix.body_filter", self.proxy_id),
                false => ("apisix.response_span", self.request_id),
            };
            child(name, new_id(), parent_id, SpanTimes { start_us, end_us: times.end_us });
        }
    }

    /// Appends a span; the server span of the request has the outcome.
    fn write_span(
        &self,
        span: &SpanParts<'_>,
        local: &LocalEndpoint,
        ex: &Exchange<'_>,
        outcome: Option<&ExchangeOutcome<'_>>,
        out: &mut Vec<u8>,
    ) {
        let mut object = ObjectWriter::begin(out);
        self.trace_id.with_text(|text| object.text("traceId", text));
        object.text("name", span.name);
        if let Some(parent_id) = span.parent_id {
            object.text("parentId", hex_id::span_text(parent_id));
        }
        object.text("id", hex_id::span_text(span.id));
        if outcome.is_some() {
            object.text("kind", "SERVER");
        }
        object.number("timestamp", span.times.start_us);
        // Zipkin has no duration for 0: shorter ones are one microsecond (Zipkin API v2, `Span.duration`).
        object.number("duration", span.times.duration_us().max(1));
        let connection = ex.client.connection;
        let mut endpoint = ObjectWriter::begin(object.member("localEndpoint"));
        endpoint.text("serviceName", &local.service_name);
        match &local.address {
            Some(address) => endpoint.text("ipv4", address),
            None => write_address(&mut endpoint, connection.local.ip().to_canonical()),
        }
        endpoint.number("port", connection.dialed_port().into());
        endpoint.end();
        if let Some(outcome) = outcome {
            let mut endpoint = ObjectWriter::begin(object.member("remoteEndpoint"));
            write_address(&mut endpoint, ex.client.ip);
            if ex.client.port != 0 {
                endpoint.number("port", ex.client.port.into());
            }
            endpoint.end();
            self.write_tags(outcome, object.member("tags"));
        }
        object.end();
    }

    fn write_tags(&self, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tags);
        out.extend_from_slice(b",\"http.status_code\":");
        write_json_text(out, itoa::Buffer::new().format(outcome.status).as_bytes());
        out.extend_from_slice(b",\"apisix.response_source\":");
        write_json_text(out, response_source(outcome).as_bytes());
        out.push(b'}');
    }
}

fn write_address(endpoint: &mut ObjectWriter<'_>, address: IpAddr) {
    let name = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    endpoint.text(name, address.to_string());
}

/// Makes lists of spans.
#[derive(Debug)]
pub(super) struct SpanListEncoder {
    pub(super) target: String,
}

impl SinkEncoder for SpanListEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let fields = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let body = batch.framed(self.framing());
        vec![post(batch, &self.target, fields, body)]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200..300 => SinkVerdict::Sent,
            status => SinkVerdict::Retry(format!("server returned status code[{status}]")),
        }
    }
}
