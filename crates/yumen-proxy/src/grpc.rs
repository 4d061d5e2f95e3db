//! gRPC over HTTP: detection of calls, refusals and trailers with a status, timeouts.
//!
//! Owns the mapping of gRPC onto HTTP/2. Must not depend on messages.

use std::borrow::Cow;

use bytes::Bytes;
use yumen_http::{Fields, HttpVersion, KnownField, RequestHead};
use yumen_plugin::{Exchange, LocalResponse, ResponseProtocol};

use crate::fault::FaultKind;

/// Placeholder for a missing status, or one that gRPC does not define.
pub(crate) const NO_STATUS: u8 = 17;

const OK: u8 = 0;
pub(crate) const UNKNOWN: u8 = 2;
const DEADLINE_EXCEEDED: u8 = 4;
const PERMISSION_DENIED: u8 = 7;
const UNIMPLEMENTED: u8 = 12;
pub(crate) const INTERNAL: u8 = 13;
pub(crate) const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;

/// Whether the request is a gRPC call, whose client requires a gRPC response.
#[inline]
pub(crate) fn is_call(ex: &Exchange<'_>) -> bool {
    // Checked for every response: HTTP/1 costs one comparison.
    let may_call = || matches!(ex.request.version, HttpVersion::Http2 | HttpVersion::Http3);
    match ex.response.protocol {
        ResponseProtocol::ByRequest => may_call() && is_grpc(&ex.request),
        ResponseProtocol::Grpc => true,
        ResponseProtocol::Http => false,
    }
}

/// Whether the content type is `application/grpc`, alone or with a message format. gRPC-Web is not a call
/// here: it needs a translator.
pub(crate) fn is_grpc(request: &RequestHead) -> bool {
    let is_grpc = |value: &[u8]| {
        value
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    };
    request.fields.known(KnownField::ContentType).is_some_and(is_grpc)
}

/// Converts a local response into a gRPC refusal: HTTP status 200 without a message, and `grpc-status` in the
/// head.
pub(crate) fn refusal(refused: LocalResponse, fault: Option<FaultKind>) -> LocalResponse {
    let status = fault.map_or_else(|| of_http(refused.status), of_fault);
    let message = match fault {
        Some(kind) => Cow::Borrowed(kind.facts().3),
        None => Cow::Owned(reason(&refused)),
    };
    // The Trailers-Only form of the gRPC protocol: status 200, with `grpc-status` in the head.
    let mut answer = refused.body(Bytes::new());
    answer.status = 200;
    answer.fields_mut().remove("content-type");
    answer
        .field("Content-Type", "application/grpc")
        .field("grpc-status", status.to_string())
        .field("grpc-message", encode(&message))
}

/// Trailers of a call that broke off after its head was sent.
pub(crate) fn abort_trailers(kind: FaultKind) -> String {
    format!("grpc-status: {}\r\ngrpc-message: {}\r\n", of_fault(kind), encode(kind.facts().3))
}

/// Message of a refusal: the message in its JSON body, or the reason phrase of its status.
fn reason(refused: &LocalResponse) -> String {
    let body: Option<serde_json::Value> = serde_json::from_slice(&refused.body).ok();
    let message =
        body.as_ref().and_then(|body| ["message", "error_msg"].iter().find_map(|key| body[key].as_str()));
    message.unwrap_or_else(|| yumen_http::encode::standard_reason(refused.status)).to_owned()
}

/// gRPC status for an HTTP status, as in the gRPC documents (`http-grpc-status-mapping.md`).
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
        FaultKind::Deadline | FaultKind::ReadTimeout | FaultKind::AttemptTimeout => DEADLINE_EXCEEDED,
        kind => of_http(kind.facts().1),
    }
}

/// Percent-encodes a `grpc-message`: all bytes except printable ASCII, and the percent sign.
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

/// Value of `grpc-timeout` in milliseconds, at least 1: at most eight digits and a unit. `None` if missing or
/// malformed.
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
    // 0 would mean no deadline.
    Some(timeout_ms.max(1))
}

/// Sets `grpc-timeout` of a call to the time left.
pub(crate) fn set_grpc_timeout(ex: &mut Exchange<'_>, left_ms: u64) {
    if is_call(ex) {
        // The format allows at most eight digits.
        let text = format!("{}m", left_ms.min(99_999_999));
        ex.request.fields.set("grpc-timeout", text.as_bytes());
    }
}

/// gRPC status in a response head, or [`NO_STATUS`] as long as it is missing; `None` if the request is not a
/// call.
pub(crate) fn status_of_answer(ex: &Exchange<'_>, fields: &Fields) -> Option<u8> {
    is_call(ex).then(|| status_of(fields).unwrap_or(NO_STATUS))
}

/// gRPC status in a response head.
pub(crate) fn status_of(fields: &Fields) -> Option<u8> {
    parse_status(fields.get("grpc-status")?)
}

/// gRPC status in trailers, given as field lines.
pub(crate) fn status_of_lines(lines: &[u8]) -> Option<u8> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.get(..12).filter(|name| name.eq_ignore_ascii_case(b"grpc-status:"))?;
        parse_status(line[value.len()..].trim_ascii())
    })
}

fn parse_status(value: &[u8]) -> Option<u8> {
    let status = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(if status < NO_STATUS { status } else { NO_STATUS })
}

#[cfg(test)]
mod tests;
