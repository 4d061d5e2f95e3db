//! B3 trace context of Zipkin: the field `b3`, and the fields `X-B3-*` (openzipkin/b3-propagation).

use yumen_http::Fields;

use super::hex_id;
use super::{SpanId, TraceId};

pub(crate) const SINGLE: &str = "b3";
pub(crate) const TRACE_ID: &str = "x-b3-traceid";
pub(crate) const SPAN_ID: &str = "x-b3-spanid";
pub(crate) const PARENT_ID: &str = "x-b3-parentspanid";
pub(crate) const SAMPLED: &str = "x-b3-sampled";
pub(crate) const FLAGS: &str = "x-b3-flags";

/// The context of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct B3Context {
    /// Identifiers; `None` without valid ones.
    pub(crate) ids: Option<B3Ids>,
    pub(crate) sampling: B3Sampling,
}

/// Identifiers of the caller's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct B3Ids {
    pub(crate) trace_id: B3TraceId,
    /// The caller's span; the trace identifier may come without.
    pub(crate) span_id: Option<SpanId>,
    pub(crate) parent_id: Option<SpanId>,
}

/// A trace identifier of 64 or 128 bits, which keeps its length from hop to hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct B3TraceId {
    pub(crate) id: TraceId,
    pub(crate) is_short: bool,
}

/// The sampling decision of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum B3Sampling {
    #[default]
    Undecided,
    Denied,
    Accepted,
    /// Accepted by all samplers of the trace.
    Debug,
}

/// A field `b3` without a span identifier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedB3;

impl B3TraceId {
    fn parse(text: &[u8]) -> Option<B3TraceId> {
        match text.len() {
            16 => {
                let low: SpanId = hex_id::parse(text)?;
                let mut id = [0; 16];
                id[8..].copy_from_slice(&low);
                Some(B3TraceId { id, is_short: true })
            }
            _ => hex_id::parse(text).map(|id| B3TraceId { id, is_short: false }),
        }
    }

    /// Calls `with` with the digits.
    pub(crate) fn with_text<T>(self, with: impl FnOnce(&[u8]) -> T) -> T {
        let text = hex_id::trace_text(self.id);
        with(if self.is_short { &text[16..] } else { &text })
    }
}

impl B3Context {
    /// The context of a request: that of `b3` if the field is present, otherwise that of `X-B3-*`.
    pub(crate) fn of(fields: &Fields) -> Result<B3Context, MalformedB3> {
        match fields.get(SINGLE) {
            Some(text) => B3Context::parse(text),
            None => Ok(B3Context::of_several(fields)),
        }
    }

    /// Parses `TRACE-SPAN[-SAMPLED[-PARENT]]`, or a sampling decision alone. Invalid identifiers are ignored.
    pub(crate) fn parse(text: &[u8]) -> Result<B3Context, MalformedB3> {
        if matches!(text, b"0" | b"1" | b"d") {
            return Ok(B3Context { ids: None, sampling: B3Sampling::parse(text) });
        }
        let mut parts = text.splitn(4, |byte| *byte == b'-');
        let (trace_id, span_id) = (parts.next(), parts.next());
        let (Some(trace_id), Some(span_id)) = (trace_id, span_id) else { return Err(MalformedB3) };
        let sampling = parts.next().map_or(B3Sampling::Undecided, B3Sampling::parse);
        let ids = B3Ids::parse(trace_id, Some(span_id), parts.next());
        Ok(B3Context { ids, sampling })
    }

    fn of_several(fields: &Fields) -> B3Context {
        let sampling = match fields.get(FLAGS) {
            Some(b"1") => B3Sampling::Debug,
            _ => fields.get(SAMPLED).map_or(B3Sampling::Undecided, B3Sampling::parse),
        };
        let ids = fields
            .get(TRACE_ID)
            .and_then(|trace_id| B3Ids::parse(trace_id, fields.get(SPAN_ID), fields.get(PARENT_ID)));
        B3Context { ids, sampling }
    }
}

impl B3Ids {
    /// One invalid identifier makes all of them invalid.
    fn parse(trace_id: &[u8], span_id: Option<&[u8]>, parent_id: Option<&[u8]>) -> Option<B3Ids> {
        let span = |text: Option<&[u8]>| match text {
            None => Some(None),
            Some(text) => hex_id::parse(text).map(Some),
        };
        Some(B3Ids {
            trace_id: B3TraceId::parse(trace_id)?,
            span_id: span(span_id)?,
            parent_id: span(parent_id)?,
        })
    }
}

impl B3Sampling {
    fn parse(text: &[u8]) -> B3Sampling {
        match text {
            b"1" | b"true" => B3Sampling::Accepted,
            b"0" | b"false" => B3Sampling::Denied,
            b"d" => B3Sampling::Debug,
            _ => B3Sampling::Undecided,
        }
    }
}

#[cfg(test)]
mod tests;
