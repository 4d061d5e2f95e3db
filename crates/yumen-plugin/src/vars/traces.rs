//! Variables of tracing plugins.

use super::FixedVar;
use crate::Exchange;
use crate::exchange::trace::{ExchangeTrace, TracePart};

impl FixedVar {
    /// Appends a variable of a tracing plugin; false for others, and if no plugin has set it.
    pub(super) fn format_trace(self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let (plugin, part) = match self {
            FixedVar::TraceId => (None, TracePart::TraceId),
            FixedVar::OpentelemetryParent => (Some("opentelemetry"), TracePart::Parent),
            FixedVar::OpentelemetryTraceId => (Some("opentelemetry"), TracePart::TraceId),
            FixedVar::OpentelemetrySpanId => (Some("opentelemetry"), TracePart::SpanId),
            FixedVar::ZipkinParent => (Some("zipkin"), TracePart::Parent),
            FixedVar::ZipkinTraceId => (Some("zipkin"), TracePart::TraceId),
            FixedVar::ZipkinSpanId => (Some("zipkin"), TracePart::SpanId),
            _ => return false,
        };
        let has = |trace: &&ExchangeTrace| {
            plugin.is_none_or(|plugin| trace.plugin == plugin && trace.sets_variables)
        };
        let trace = ex.notes::<ExchangeTrace>().find(has);
        trace.inspect(|trace| trace.write(part, out)).is_some()
    }
}
