//! Common parts of the tracing plugins: formats of trace context, identifiers and samplers.
//!
//! Pure parsers of client bytes: malformed context is ignored or reported to the caller, and never a panic. Nothing
//! here knows a concrete plugin.

pub(crate) mod b3;
pub(crate) mod hex_id;
pub(crate) mod sampler;
pub(crate) mod span_times;
pub(crate) mod sw8;
pub(crate) mod w3c;

use yumen_http::Fields;
use yumen_plugin::{ExchangeOutcome, PluginHost, ResponseSource};

/// Identifier of a trace.
pub(crate) type TraceId = [u8; 16];
/// Identifier of a span.
pub(crate) type SpanId = [u8; 8];

/// A random identifier, which is never zero: zero is invalid in all formats.
pub(crate) fn new_trace_id(host: &dyn PluginHost) -> TraceId {
    // Identifiers are public, so the generator of a worker suffices.
    (u128::from(host.random()) << 64 | u128::from(host.random()).max(1)).to_be_bytes()
}

/// A random identifier, which is never zero.
pub(crate) fn new_span_id(host: &dyn PluginHost) -> SpanId {
    host.random().max(1).to_be_bytes()
}

/// The origin of a response in the words of APISIX.
pub(crate) fn response_source(outcome: &ExchangeOutcome<'_>) -> &'static str {
    match outcome.source {
        ResponseSource::Upstream => "upstream",
        ResponseSource::Gateway if outcome.fault.is_empty() => "apisix",
        ResponseSource::Gateway => "nginx",
    }
}

/// Fields with trace context.
const CONTEXT: [&str; 9] = [
    w3c::TRACEPARENT,
    w3c::TRACESTATE,
    b3::SINGLE,
    b3::TRACE_ID,
    b3::SPAN_ID,
    b3::PARENT_ID,
    b3::SAMPLED,
    b3::FLAGS,
    sw8::SW8,
];

/// Copies the trace context of a request to a subrequest, which then belongs to the same trace.
pub(crate) fn copy_context(request: &Fields, subrequest: &mut Fields) {
    for name in CONTEXT.iter().filter(|name| request.has(name)) {
        if !subrequest.has(name) {
            request.all(name).for_each(|value| subrequest.add(name, value));
        }
    }
}

#[cfg(test)]
mod tests;
