//! W3C Trace Context: the fields `traceparent` and `tracestate` (W3C recommendation "Trace Context", sections 3 and 4).

use yumen_http::Fields;

use super::hex_id;
use super::{SpanId, TraceId};

/// Name of the field with identifiers.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// Name of the field with vendors' state.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The sampled flag (§3.2.2.5.1).
const SAMPLED: u8 = 1;
/// The flag of a trace identifier with random digits (level 2, §3.2.2.5.2).
const RANDOM: u8 = 2;
/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// Members of a `tracestate` (§3.3.1.1).
const STATE_MEMBERS_MAX: usize = 32;
/// Characters of a `tracestate` that are passed on (§3.3.1.5).
const STATE_BYTES_MAX: usize = 512;
/// Longer members are left out first when a `tracestate` is too long (§3.3.1.5).
const STATE_MEMBER_BYTES_MAX: usize = 128;

/// The span of the caller, or the span that a callee is to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: TraceId,
    pub(crate) span_id: SpanId,
    pub(crate) is_sampled: bool,
    /// Whether the digits of the trace identifier are random, by the claim of its creator.
    pub(crate) is_random: bool,
}

impl TraceParent {
    /// The caller's span; `None` without a field, with a malformed one, and with several, which are all the begin of a
    /// new trace (§4.3).
    pub(crate) fn of(fields: &Fields) -> Option<TraceParent> {
        let mut all = fields.all(TRACEPARENT);
        let first = all.next()?;
        if all.next().is_some() {
            return None;
        }
        TraceParent::parse(first)
    }

    /// Parses the value of one field (§3.2).
    pub(crate) fn parse(text: &[u8]) -> Option<TraceParent> {
        let (text, more) = text.split_at_checked(LENGTH)?;
        // Unlike other formats, this one has lower-case digits only.
        let is_lower = !text.iter().any(u8::is_ascii_uppercase);
        let has_dashes = [2, 35, 52].iter().all(|at| text[*at] == b'-');
        let is_end_valid = match hex_id::byte_of(&text[..2])? {
            0 => more.is_empty(),
            0xff => false,
            // A later version may append parts (§3.2.4).
            _ => more.first().is_none_or(|byte| *byte == b'-'),
        };
        if !is_lower || !has_dashes || !is_end_valid {
            return None;
        }
        let flags = hex_id::byte_of(&text[53..])?;
        Some(TraceParent {
            trace_id: hex_id::parse(&text[3..35])?,
            span_id: hex_id::parse(&text[36..52])?,
            is_sampled: flags & SAMPLED != 0,
            is_random: flags & RANDOM != 0,
        })
    }

    /// The value of the field, in version 00.
    pub(crate) fn text(&self) -> [u8; LENGTH] {
        let mut text = [b'-'; LENGTH];
        let rest = hex_id::write(&mut text, &[0]);
        let rest = hex_id::write(&mut rest[1..], &self.trace_id);
        let rest = hex_id::write(&mut rest[1..], &self.span_id);
        let flags = if self.is_sampled { SAMPLED } else { 0 } | if self.is_random { RANDOM } else { 0 };
        hex_id::write(&mut rest[1..], &[flags]);
        text
    }

    /// Sets the field, and removes others that an application may equate with it.
    pub(crate) fn write(&self, fields: &mut Fields) {
        fields.set_only(TRACEPARENT, &self.text());
    }
}

/// Prepares `tracestate` for the next hop. A new trace has none (§4.3), and a malformed one is dropped.
pub(crate) fn settle_state(fields: &mut Fields, has_parent: bool) {
    if !fields.has(TRACESTATE) {
        return;
    }
    let kept = if has_parent { kept_state(fields) } else { None };
    match kept {
        Some(KeptState::AsWritten) => {}
        Some(KeptState::Joined(text)) => fields.set_only(TRACESTATE, &text),
        None => drop(fields.remove_equivalent(TRACESTATE)),
    }
}

/// The value of `tracestate`, after [`settle_state`].
pub(crate) fn state(fields: &Fields) -> Option<&[u8]> {
    fields.get(TRACESTATE)
}

enum KeptState {
    /// One field within the limits.
    AsWritten,
    Joined(Vec<u8>),
}

fn kept_state(fields: &Fields) -> Option<KeptState> {
    let (mut members, mut lines, mut bytes): (Vec<&[u8]>, _, _) = (Vec::new(), 0, 0);
    for line in fields.all(TRACESTATE) {
        lines += 1;
        bytes += line.len() + 1;
        for member in line.split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            // Empty members are allowed (§3.3.1.1).
            if member.is_empty() {
                continue;
            }
            if !is_member(member) || members.len() == STATE_MEMBERS_MAX {
                return None;
            }
            members.push(member);
        }
    }
    if lines == 1 && bytes <= STATE_BYTES_MAX {
        return Some(KeptState::AsWritten);
    }
    let length = |members: &[&[u8]]| members.iter().map(|member| member.len() + 1).sum::<usize>();
    if length(&members) > STATE_BYTES_MAX {
        members.retain(|member| member.len() <= STATE_MEMBER_BYTES_MAX);
    }
    // The members at the end are the oldest.
    while length(&members) > STATE_BYTES_MAX {
        members.pop();
    }
    (!members.is_empty()).then(|| KeptState::Joined(members.join(&b","[..])))
}

/// Whether a member has the form `key=value` (§3.3.1.3).
fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..equals], &member[equals + 1..]);
    let is_key_byte = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@')
    };
    let is_key = (1..=256).contains(&key.len())
        && (key[0].is_ascii_lowercase() || key[0].is_ascii_digit())
        && key.iter().all(is_key_byte);
    let is_value_byte = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    is_key && (1..=256).contains(&value.len()) && value.iter().all(is_value_byte)
}

#[cfg(test)]
mod tests;
