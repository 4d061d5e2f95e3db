//! Segments in the JSON form of SkyWalking (SkyWalking HTTP API, "Trace Data Protocol" version 3.1).

use serde_json::json;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    Exchange, ExchangeOutcome, SinkBatch, SinkEncoder, SinkFraming, SinkHeartbeat, SinkReply, SinkRequest,
    SinkVerdict,
};

use super::{ServiceInstance, instance_json};
use crate::logging::json_text::{ObjectWriter, write_number};
use crate::traces::span_times::SpanTimes;
use crate::traces::sw8::Sw8Context;

/// Numbers of the spans in a segment.
const ENTRY_SPAN: u32 = 0;
pub(super) const EXIT_SPAN: u32 = 1;
/// APISIX among the components that SkyWalking knows.
const COMPONENT: u64 = 6002;
/// Interval of keep-alive requests in milliseconds.
const KEEP_ALIVE_MS: u64 = 20_000;

/// The spans of a sampled request, until they are sent.
pub(super) struct TraceSegment {
    /// The context that the upstream has received.
    pub(super) context: Sw8Context,
    /// The context of the caller.
    pub(super) parent: Option<Sw8Context>,
    /// Method and URL, before other plugins changed the request.
    pub(super) method: Vec<u8>,
    pub(super) url: Vec<u8>,
}

impl TraceSegment {
    /// Appends the segment as one JSON object.
    pub(super) fn write(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
        let context = &self.context;
        let mut object = ObjectWriter::begin(out);
        object.text("traceId", &context.trace_id);
        object.text("traceSegmentId", &context.segment_id);
        object.text("service", &context.service);
        object.text("serviceInstance", &context.instance);
        let times = SpanTimes::of(ex.now, outcome);
        let spans = object.member("spans");
        spans.push(b'[');
        self.write_entry(times, outcome, spans);
        if outcome.attempts > 0 {
            spans.push(b',');
            let upstream_us = outcome.upstream_us.unwrap_or(outcome.duration_us);
            let start_us = times.end_us.saturating_sub(upstream_us).max(times.start_us);
            self.write_exit(SpanTimes { start_us, ..times }, outcome, spans);
        }
        spans.push(b']');
        object.end();
    }

    fn write_entry(&self, times: SpanTimes, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
        let mut span = ObjectWriter::begin(out);
        self.write_common(&mut span, "Entry", times, outcome.status);
        span.number("spanId", ENTRY_SPAN.into());
        span.member("parentSpanId").extend_from_slice(b"-1");
        self.write_tags(&mut span, outcome.status);
        if let Some(parent) = &self.parent {
            let refs = span.member("refs");
            refs.push(b'[');
            let mut reference = ObjectWriter::begin(refs);
            reference.text("refType", "CrossProcess");
            reference.text("traceId", &parent.trace_id);
            reference.text("parentTraceSegmentId", &parent.segment_id);
            reference.number("parentSpanId", parent.span_id.into());
            reference.text("parentService", &parent.service);
            reference.text("parentServiceInstance", &parent.instance);
            reference.text("parentEndpoint", &parent.endpoint);
            reference.text("networkAddressUsedAtPeer", &parent.address);
            reference.end();
            refs.push(b']');
        }
        span.end();
    }

    fn write_exit(&self, times: SpanTimes, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
        let status = outcome.upstream_status.unwrap_or(outcome.status);
        let mut span = ObjectWriter::begin(out);
        self.write_common(&mut span, "Exit", times, status);
        span.number("spanId", EXIT_SPAN.into());
        span.number("parentSpanId", ENTRY_SPAN.into());
        span.text("peer", &self.context.address);
        self.write_tags(&mut span, status);
        span.end();
    }

    fn write_common(&self, span: &mut ObjectWriter<'_>, kind: &str, times: SpanTimes, status: u16) {
        span.text("operationName", &self.context.endpoint);
        span.number("startTime", times.start_us / 1000);
        span.number("endTime", times.end_us / 1000);
        span.text("spanType", kind);
        span.text("spanLayer", "Http");
        span.number("componentId", COMPONENT);
        span.member("isError").extend_from_slice(if status >= 500 { b"true" } else { b"false" });
    }

    fn write_tags(&self, span: &mut ObjectWriter<'_>, status: u16) {
        let tags = span.member("tags");
        tags.push(b'[');
        let mut tag = |key: &str, value: &[u8]| {
            let mut tag = ObjectWriter::begin(tags);
            tag.text("key", key);
            tag.text("value", value);
            tag.end();
            tags.push(b',');
        };
        tag("http.method", &self.method);
        tag("url", &self.url);
        let mut text = Vec::new();
        write_number(&mut text, status.into());
        tag("http.status_code", &text);
        // The comma behind the last tag.
        tags.pop();
        tags.push(b']');
    }
}

/// Makes requests to the OAP server.
#[derive(Debug)]
pub(super) struct SegmentEncoder {
    /// The path of the server's address.
    pub(super) prefix: String,
    pub(super) names: ServiceInstance,
}

impl SegmentEncoder {
    fn request(&self, path: &str, body: Vec<bytes::Bytes>, entries: usize) -> SinkRequest {
        SinkRequest {
            method: "POST",
            target: format!("{}{path}", self.prefix),
            fields: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body,
            entries,
        }
    }
}

impl SinkEncoder for SegmentEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        vec![self.request("/v3/segments", batch.framed(self.framing()), batch.entries)]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200..300 => SinkVerdict::Sent,
            status => SinkVerdict::Retry(format!("server returned status code[{status}]")),
        }
    }

    /// The server lists an instance once it has its properties, and as long as it is kept alive.
    fn heartbeat(&self, taken: u64) -> Option<SinkHeartbeat> {
        let request = match taken {
            0 => {
                let hostname = ProcessVars::current().map_or("", |node| &node.hostname);
                let properties = json!([
                    { "language": "rust", "key": "language", "value": "rust" },
                    { "key": "host", "value": hostname },
                ]);
                let body = instance_json(&self.names, Some(properties));
                self.request("/v3/management/reportProperties", vec![body.into()], 0)
            }
            _ => {
                let body = instance_json(&self.names, None);
                self.request("/v3/management/keepAlive", vec![body.into()], 0)
            }
        };
        Some(SinkHeartbeat { request, interval_ms: KEEP_ALIVE_MS })
    }
}
