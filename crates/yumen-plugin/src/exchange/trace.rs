//! The trace that an exchange belongs to, as a tracing plugin leaves it for variables and exemplars.

use std::io::Write;

/// The trace and the server span of an exchange; a note of the plugin that made the span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeTrace {
    /// Name of the plugin.
    pub plugin: &'static str,
    /// The trace.
    pub trace_id: [u8; 16],
    /// Length of the trace identifier: 16, or 8 for the lower half.
    pub trace_id_bytes: usize,
    /// The server span.
    pub span_id: [u8; 8],
    /// Whether the spans are exported.
    pub is_sampled: bool,
    /// Whether the plugin sets its variables, such as `opentelemetry_trace_id`.
    pub sets_variables: bool,
}

/// A part of an [`ExchangeTrace`] that a variable has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TracePart {
    /// The value of `traceparent` (W3C Trace Context §3.2).
    Parent,
    TraceId,
    SpanId,
}

impl ExchangeTrace {
    /// Appends the digits of the trace identifier.
    pub fn write_trace_id(&self, out: &mut Vec<u8>) {
        write_hex(out, &self.trace_id[16usize.saturating_sub(self.trace_id_bytes)..]);
    }

    pub(crate) fn write(&self, part: TracePart, out: &mut Vec<u8>) {
        match part {
            TracePart::TraceId => self.write_trace_id(out),
            TracePart::SpanId => write_hex(out, &self.span_id),
            TracePart::Parent => {
                out.extend_from_slice(b"00-");
                write_hex(out, &self.trace_id);
                out.push(b'-');
                write_hex(out, &self.span_id);
                out.extend_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
            }
        }
    }
}

fn write_hex(out: &mut Vec<u8>, id: &[u8]) {
    for byte in id {
        write!(out, "{byte:02x}").expect("a vector takes every write");
    }
}
