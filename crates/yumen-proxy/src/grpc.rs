//! What gRPC makes of HTTP: which requests are calls, how an answer of ours tells a call's status, and how
//! long a client waits.
//!
//! Knows the protocol's mapping onto HTTP/2 and no message.

use std::borrow::Cow;

use bytes::Bytes;
use yumen_http::{Fields, HttpVersion, KnownField, RequestHead};
use yumen_plugin::{Exchange, LocalResponse};

use crate::fault::FaultKind;

/// Stands for a status that was not told, or is none of the protocol's.
pub(crate) const UNTOLD: u8 = 17;

const OK: u8 = 0;
pub(crate) const UNKNOWN: u8 = 2;
const DEADLINE_EXCEEDED: u8 = 4;
const PERMISSION_DENIED: u8 = 7;
const UNIMPLEMENTED: u8 = 12;
pub(crate) const INTERNAL: u8 = 13;
pub(crate) const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

/// Whether the client made a call, and so understands no other answer.
#[inline]
pub(crate) fn is_call(ex: &Exchange<'_>) -> bool {
    // Asked for every answer there is: one comparison for HTTP/1.
    let may_call = || matches!(ex.request.version, HttpVersion::Http2 | HttpVersion::Http3);
    ex.is_call.unwrap_or_else(|| may_call() && is_grpc(&ex.request))
}

/// Whether the request says it is a call: `application/grpc`, alone or with a message format behind it.
/// gRPC-Web is not, it is meant for a translator.
pub(crate) fn is_grpc(request: &RequestHead) -> bool {
    let is_grpc = |value: &[u8]| {
        value
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    };
    request.fields.known(KnownField::ContentType).is_some_and(is_grpc)
}

/// Our refusal of a call, as the client's library understands it: a success of HTTP that has no message and
/// tells the status in its head.
pub(crate) fn refusal(refused: LocalResponse, fault: Option<FaultKind>) -> LocalResponse {
    let status = fault.map_or_else(|| of_http(refused.status), of_fault);
    let message = match fault {
        Some(kind) => Cow::Borrowed(kind.facts().3),
        None => Cow::Owned(reason(&refused)),
    };
    let mut answer = refused.body(Bytes::new());
    answer.status = 200;
    answer.fields_mut().remove("content-type");
    answer
        .field("Content-Type", "application/grpc")
        .field("grpc-status", status.to_string())
        .field("grpc-message", encode(&message))
}

/// The trailers of a call that broke off after its head was sent.
pub(crate) fn abort_trailers(kind: FaultKind) -> String {
    format!("grpc-status: {}\r\ngrpc-message: {}\r\n", of_fault(kind), encode(kind.facts().3))
}

/// What a refusal says: the message in its JSON, else the name of its status.
fn reason(refused: &LocalResponse) -> String {
    let body: Option<serde_json::Value> = serde_json::from_slice(&refused.body).ok();
    let told =
        body.as_ref().and_then(|body| ["message", "error_msg"].iter().find_map(|key| body[key].as_str()));
    told.unwrap_or_else(|| yumen_http::encode::standard_reason(refused.status)).to_owned()
}

/// The status a client reads from an HTTP status, as the protocol's documents map them.
fn of_http(status: u16) -> u8 {
    match status {
        200..=299 => OK,
        400 | 431 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

fn of_fault(kind: FaultKind) -> u8 {
    match kind {
        FaultKind::Deadline | FaultKind::ReadTimeout => DEADLINE_EXCEEDED,
        kind => of_http(kind.facts().1),
    }
}

/// Percent-encoded as `grpc-message` is: all but printable ASCII, and the percent sign itself.
fn encode(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// How long the client waits for the end of its call, in milliseconds, if it says: at most eight digits
/// and a unit. Less than a millisecond counts as one.
pub(crate) fn timeout_ms(request: &RequestHead) -> Option<u64> {
    let value = request.fields.get("grpc-timeout")?;
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let timeout_ms = match unit {
        b'H' => count * 3_600_000,
        b'M' => count * 60_000,
        b'S' => count * 1000,
        b'm' => count,
        b'u' => count / 1000,
        b'n' => count / 1_000_000,
        _ => return None,
    };
    Some(timeout_ms.max(1))
}

/// Tells an endpoint how long the client of a call still waits.
pub(crate) fn set_grpc_timeout(ex: &mut Exchange<'_>, left_ms: u64) {
    if is_call(ex) {
        // At most eight digits.
        let text = format!("{}m", left_ms.min(99_999_999));
        ex.request.fields.set("grpc-timeout", text.as_bytes());
    }
}

/// The status the head of a call's answer tells, or that it does not tell it yet; `None` where the request
/// is no call.
pub(crate) fn status_of_answer(ex: &Exchange<'_>, fields: &Fields) -> Option<u8> {
    is_call(ex).then(|| status_of(fields).unwrap_or(UNTOLD))
}

/// The status an answer's head tells, if it tells one.
pub(crate) fn status_of(fields: &Fields) -> Option<u8> {
    parse_status(fields.get("grpc-status")?)
}

/// The status trailers tell, given as field lines.
pub(crate) fn status_of_lines(lines: &[u8]) -> Option<u8> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.get(..12).filter(|name| name.eq_ignore_ascii_case(b"grpc-status:"))?;
        parse_status(line[value.len()..].trim_ascii())
    })
}

fn parse_status(value: &[u8]) -> Option<u8> {
    let status = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(if status < UNTOLD { status } else { UNTOLD })
}

#[cfg(test)]
mod tests;
