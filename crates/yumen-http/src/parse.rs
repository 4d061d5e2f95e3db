//! Strict parsing of request and response heads (RFC 9112 §2 to §6).
//!
//! Rejects everything that two parsers could interpret differently: bare line feeds, folded lines, spaces
//! before colons, repeated or conflicting lengths, codings other than `chunked`.

pub mod field_parts;

use std::sync::OnceLock;

use memchr::memchr;
use memchr::memmem::Finder;

use crate::ascii;
use crate::fields::{ByteSpan, KnownField};
use crate::head::{
    ConnectionOptions, Framing, HttpVersion, Method, RequestHead, ResponseHead, parse_content_length, tokens,
};
use crate::uri::{self, HostPart, PathPolicy};

/// Limits of a head, and the policy for request paths.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// The whole head in bytes, with its final empty line and those before it, which occupy the same buffer.
    pub head_bytes_max: usize,
    /// The request target, in bytes.
    pub target_bytes_max: usize,
    /// The number of field lines.
    pub fields_max: usize,
    /// The path forms that are accepted and forwarded.
    pub paths: PathPolicy,
}

impl Default for HeadLimits {
    fn default() -> Self {
        HeadLimits {
            head_bytes_max: 64 * 1024,
            target_bytes_max: 8 * 1024,
            fields_max: 100,
            paths: PathPolicy::default(),
        }
    }
}

/// The reason why a head was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Status 400 from a client, 502 from an upstream.
    #[error("{0}")]
    Malformed(&'static str),
    /// Status 414.
    #[error("the request target is longer than allowed")]
    TargetTooLong,
    /// Status 431 from a client, 502 from an upstream.
    #[error("the head is larger than allowed")]
    TooLarge,
    /// Status 431 from a client, 502 from an upstream.
    #[error("the head has more fields than allowed")]
    TooManyFields,
    /// Status 501.
    #[error("the transfer coding is not supported")]
    UnknownCoding,
    /// Status 505.
    #[error("the protocol version is not supported")]
    UnknownVersion,
}

/// The result of parsing received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedHead {
    /// The head is incomplete.
    Partial,
    /// The head had this number of bytes; the body follows.
    Head(usize),
}

/// The end of the head in `bytes`, with its empty line. The first `scanned` bytes were searched before.
///
/// A bare line feed counts as a line end, so that such a head is rejected at once.
pub fn head_end(bytes: &[u8], scanned: usize) -> Option<usize> {
    static END: OnceLock<Finder<'static>> = OnceLock::new();
    // The end of the head may begin in the bytes that were searched before.
    let mut from = scanned.saturating_sub(3);
    // One search covers well-formed heads; only a head without this end is scanned line by line.
    if let Some(found) = END.get_or_init(|| Finder::new(b"\r\n\r\n")).find(&bytes[from..]) {
        return Some(from + found + 4);
    }
    while let Some(found) = memchr(b'\n', &bytes[from..]) {
        let at = from + found;
        let after = &bytes[at + 1..];
        match after {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            _ => from = at + 1,
        }
    }
    None
}

/// The length of up to four empty lines before a request (RFC 9112 §2.2).
fn leading_empty_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < 8 && bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// Parses a request head at the front of `bytes` into `head`, which is empty.
///
/// `scanned` is the number of bytes that an earlier call searched without finding the end.
pub fn request(
    bytes: &[u8],
    scanned: usize,
    limits: &HeadLimits,
    head: &mut RequestHead,
) -> Result<ParsedHead, HeadError> {
    let skip = leading_empty_lines(bytes);
    let bytes = &bytes[skip..];
    // An incomplete head is parsed again only once its end has arrived: small reads cost linear time.
    if scanned > skip && head_end(bytes, scanned - skip).is_none() {
        return partial(bytes, skip, limits, true);
    }
    let lines =
        request_line(bytes, head, limits).and_then(|at| field_lines(bytes, at, &mut head.fields, limits));
    let end = match lines {
        Ok(end) if skip + end <= limits.head_bytes_max => end,
        // Nearly every head arrives complete, so its end is searched only after a failure.
        failed => {
            // The attempt may have added fields of the incomplete head.
            head.clear();
            let Some(end) = head_end(bytes, 0) else { return partial(bytes, skip, limits, true) };
            let is_large = skip + end > limits.head_bytes_max;
            return Err(failed.err().filter(|_| !is_large).unwrap_or_else(|| too_large(bytes, limits)));
        }
    };
    // The spans refer to these bytes, because the block was empty.
    head.fields.block.extend_from_slice(&bytes[..end]);
    head.received_bytes = (skip + end) as u32;
    request_rules(head, limits.paths)?;
    Ok(ParsedHead::Head(skip + end))
}

/// Parses only the request line of a rejected or incomplete head into `head`, which is empty. Used for access
/// logs. If the line itself is invalid, `head` stays empty.
#[cold]
pub fn refused_request(bytes: &[u8], limits: &HeadLimits, head: &mut RequestHead) {
    let bytes = &bytes[leading_empty_lines(bytes)..];
    let Ok(end) = request_line(bytes, head, limits) else { return head.clear() };
    head.fields.block.extend_from_slice(&bytes[..end]);
    if head.target().starts_with(b"/") {
        head.target.origin_form = head.target.received;
    }
}

/// The result for an incomplete head behind `skipped` bytes of empty lines.
fn partial(
    bytes: &[u8],
    skipped: usize,
    limits: &HeadLimits,
    is_request: bool,
) -> Result<ParsedHead, HeadError> {
    if skipped + bytes.len() < limits.head_bytes_max {
        // A target that is already too long is rejected before its end.
        // The allowance covers the method.
        if is_request && bytes.len() > limits.target_bytes_max + 32 && memchr(b'\n', bytes).is_none() {
            return Err(HeadError::TargetTooLong);
        }
        return Ok(ParsedHead::Partial);
    }
    Err(if is_request { too_large(bytes, limits) } else { HeadError::TooLarge })
}

fn too_large(bytes: &[u8], limits: &HeadLimits) -> HeadError {
    match memchr(b'\n', bytes) {
        Some(end) if end <= limits.target_bytes_max + 32 => HeadError::TooLarge,
        _ => HeadError::TargetTooLong,
    }
}

/// The line that starts at `start`: its end without CRLF, and the start of the next.
fn line(block: &[u8], start: usize) -> Result<(usize, usize), HeadError> {
    let feed = start + memchr(b'\n', &block[start..]).ok_or(HeadError::Malformed("the head has no end"))?;
    if feed == start || block[feed - 1] != b'\r' {
        return Err(HeadError::Malformed("a line ends without a carriage return"));
    }
    Ok((feed - 1, feed + 1))
}

#[inline(always)]
fn request_line(block: &[u8], head: &mut RequestHead, limits: &HeadLimits) -> Result<usize, HeadError> {
    let (method_end, target_end, next) = match usual_request_line(block) {
        Some((method, method_end, target_end)) if target_end - method_end - 1 <= limits.target_bytes_max => {
            head.version = HttpVersion::Http11;
            head.method = method;
            (method_end, target_end, target_end + USUAL_END.len())
        }
        _ => any_request_line(block, head, limits)?,
    };
    head.method_span = ByteSpan::new(0, method_end);
    head.target.received = ByteSpan::new(method_end + 1, target_end);
    Ok(next)
}

/// The end of nearly every request line.
const USUAL_END: &[u8] = b" HTTP/1.1\r\n";

/// Parses a request line of HTTP/1.1 with a known method in one pass; returns the ends of method and target.
/// Separate searches would cost more than the search itself.
#[inline(always)]
fn usual_request_line(block: &[u8]) -> Option<(Method, usize, usize)> {
    let method_end = ascii::find_in_word(block.first_chunk()?, b' ')?;
    let method = Method::of(&block[..method_end]);
    let target_end = method_end + 1 + ascii::target_len(&block[method_end + 1..]);
    let is_usual =
        method != Method::Other && target_end > method_end + 1 && block[target_end..].starts_with(USUAL_END);
    is_usual.then_some((method, method_end, target_end))
}

/// Parses any request line: the ends of method and target, and the start of the next line.
#[cold]
fn any_request_line(
    block: &[u8],
    head: &mut RequestHead,
    limits: &HeadLimits,
) -> Result<(usize, usize, usize), HeadError> {
    let (end, next) = line(block, 0)?;
    let first = memchr(b' ', &block[..end]).ok_or(HeadError::Malformed("the request line has no target"))?;
    // The last space ends the target, so that a space inside it fails the check of characters below.
    let last = block[..end]
        .iter()
        .rposition(|byte| *byte == b' ')
        .filter(|last| *last > first)
        .ok_or(HeadError::Malformed("the request line has no version"))?;
    head.version = version(&block[last + 1..end])?;
    if !ascii::is_token(&block[..first]) {
        return Err(HeadError::Malformed("the method is not a token"));
    }
    head.method = Method::of(&block[..first]);
    let target = &block[first + 1..last];
    if target.len() > limits.target_bytes_max {
        return Err(HeadError::TargetTooLong);
    }
    if !ascii::is_target(target) {
        return Err(HeadError::Malformed("the target has a character that is not allowed"));
    }
    Ok((first, last, next))
}

fn version(bytes: &[u8]) -> Result<HttpVersion, HeadError> {
    match bytes {
        b"HTTP/1.1" => Ok(HttpVersion::Http11),
        b"HTTP/1.0" => Ok(HttpVersion::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            // A higher minor version is treated as the highest known (RFC 9110 §2.5).
            if *major == b'1' { Ok(HttpVersion::Http11) } else { Err(HeadError::UnknownVersion) }
        }
        _ => Err(HeadError::Malformed("the version is not HTTP/1.x")),
    }
}

/// Parses field lines from `start` through the empty line, and returns its end.
fn field_lines(
    block: &[u8],
    start: usize,
    fields: &mut crate::fields::Fields,
    limits: &HeadLimits,
) -> Result<usize, HeadError> {
    let mut at = start;
    loop {
        let rest = &block[at..];
        if rest.starts_with(b"\r\n") {
            return Ok(at + 2);
        }
        let Some((line, known)) = field_line(rest) else { return Err(refusal(block, at)) };
        if fields.list.len() == limits.fields_max {
            return Err(HeadError::TooManyFields);
        }
        let name = ByteSpan::new(at, at + line.name_end);
        let value = ByteSpan::new(at + line.value_start, at + line.value_end);
        at += line.end;
        fields.push_received(name, value, at, known);
    }
}

/// Positions within a field line.
struct FieldLineLayout {
    name_end: usize,
    value_start: usize,
    value_end: usize,
    /// After the CRLF.
    end: usize,
}

/// Parses the field line at the front of `rest` in one pass.
fn field_line(rest: &[u8]) -> Option<(FieldLineLayout, KnownField)> {
    let name_end = ascii::find_colon(rest)?;
    let known = KnownField::of(&rest[..name_end]);
    if known == KnownField::Other && !ascii::is_token(&rest[..name_end]) {
        return None;
    }
    let mut value_start = name_end + 1;
    // Nearly always exactly one space follows.
    if rest.get(value_start) == Some(&b' ') {
        value_start += 1;
    }
    let value_end = value_start + ascii::value_len(&rest[value_start..]);
    if !rest[value_end..].starts_with(b"\r\n") {
        return None;
    }
    let line = FieldLineLayout { name_end, value_start, value_end, end: value_end + 2 };
    // Of the bytes valid in a value, only space and tab are less than or equal to a space.
    match &rest[value_start..value_end] {
        [first, .., last] if *first > b' ' && *last > b' ' => Some((line, known)),
        _ => Some((trimmed(rest, line), known)),
    }
}

/// Removes the spaces and tabs around the value (OWS, RFC 9112 §5.1).
#[cold]
fn trimmed(rest: &[u8], mut line: FieldLineLayout) -> FieldLineLayout {
    while line.value_start < line.value_end && rest[line.value_start] <= b' ' {
        line.value_start += 1;
    }
    while line.value_end > line.value_start && rest[line.value_end - 1] <= b' ' {
        line.value_end -= 1;
    }
    line
}

/// The error of the invalid line at `at`.
#[cold]
fn refusal(block: &[u8], at: usize) -> HeadError {
    let text = match line(block, at) {
        Ok((end, _)) => &block[at..end],
        Err(error) => return error,
    };
    HeadError::Malformed(match memchr(b':', text) {
        None => "a field line has no colon",
        Some(colon) if !ascii::is_token(&text[..colon]) => "a field name is not a token",
        Some(_) => "a field value has a control character",
    })
}

#[inline(always)]
fn request_rules(head: &mut RequestHead, paths: PathPolicy) -> Result<(), HeadError> {
    if head.fields.may_have(KnownField::Connection) {
        head.options = ConnectionOptions::read(&head.fields);
    }
    let authority = host_field(head)?;
    request_target(head, authority, paths)?;
    head.framing = match body_fields(&head.fields, head.version)? {
        // A request without either field has no body (RFC 9112 §6.3).
        None => Framing::None,
        // A body of length 0 needs no transfer.
        Some(Framing::Length(0)) => Framing::None,
        Some(framing) => framing,
    };
    Ok(())
}

/// The `Host` field, with its host part (RFC 9112 §3.2).
fn host_field(head: &RequestHead) -> Result<Option<(ByteSpan, HostPart)>, HeadError> {
    let only = head.fields.only(KnownField::Host);
    match only.map_err(|_| HeadError::Malformed("there is more than one Host"))? {
        // Only HTTP/1.1 requires `Host` (RFC 9112 §3.2).
        None if head.version == HttpVersion::Http11 => Err(HeadError::Malformed("there is no Host")),
        None => Ok(None),
        // A target without authority has an empty `Host` (RFC 9112 §3.2).
        Some(([], span)) => Ok(Some((span, HostPart::default()))),
        Some((value, span)) => {
            let part = uri::host_part(value).ok_or(HeadError::Malformed("the Host is not a host"))?;
            Ok(Some((span, part)))
        }
    }
}

/// Parses the four forms of a request target (RFC 9112 §3.2).
fn request_target(
    head: &mut RequestHead,
    host: Option<(ByteSpan, HostPart)>,
    paths: PathPolicy,
) -> Result<(), HeadError> {
    let target = head.target();
    let span = head.target.received;
    if target.starts_with(b"/") {
        let (host, part) = host.unwrap_or_default();
        head.set_authority(host, part);
        return head.set_origin_form(span, paths).map_err(|bad| HeadError::Malformed(bad.0));
    }
    if target == b"*" && head.method == Method::Options {
        let (host, part) = host.unwrap_or_default();
        head.set_authority(host, part);
        head.target.origin_form = span;
        head.target.path = span;
        return Ok(());
    }
    if head.method == Method::Connect {
        let part = uri::host_part(target).ok_or(HeadError::Malformed("the target is not host and port"))?;
        head.target.origin_form = span;
        head.target.path = span;
        head.set_authority(span, part);
        return Ok(());
    }
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.len() > scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme))
        .ok_or(HeadError::Malformed("the target is neither a path nor an http URL"))?;
    absolute_form(head, scheme.len(), paths)
}

/// Parses the absolute form. Its authority replaces `Host` (RFC 9112 §3.2.2).
fn absolute_form(head: &mut RequestHead, scheme_len: usize, paths: PathPolicy) -> Result<(), HeadError> {
    let target = head.target();
    let start = head.target.received.start as usize;
    let rest = &target[scheme_len..];
    let authority_len = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = &rest[..authority_len];
    let part = uri::host_part(authority).ok_or(HeadError::Malformed("the target has no valid host"))?;
    let authority_start = start + scheme_len;
    let path_start = authority_start + authority_len;
    let target_end = head.target.received.end as usize;
    let after = rest.get(authority_len);
    let has_path = after == Some(&b'/');
    // OPTIONS without path and query addresses the server as a whole (RFC 9112 §3.2.4).
    let is_server = after.is_none() && head.method == Method::Options;
    // A copy, because `set` appends to the block that contains the authority.
    let host = authority.to_vec();
    head.fields.set("Host", &host);
    head.set_authority(ByteSpan::new(authority_start, path_start), part);
    if is_server {
        let star = head.fields.append(b"*");
        head.target.origin_form = star;
        head.target.path = star;
        return Ok(());
    }
    let origin = if has_path {
        ByteSpan::new(path_start, target_end)
    } else {
        // An empty path is `/` (RFC 9110 §4.2.3).
        let query = head.fields.block[path_start..target_end].to_vec();
        let slash = head.fields.append(b"/");
        ByteSpan { start: slash.start, end: head.fields.append(&query).end }
    };
    head.set_origin_form(origin, paths).map_err(|bad| HeadError::Malformed(bad.0))
}

/// The framing by `Transfer-Encoding` or `Content-Length`. Both together are rejected (RFC 9112 §6.1).
fn body_fields(fields: &crate::fields::Fields, version: HttpVersion) -> Result<Option<Framing>, HeadError> {
    let length = fields.only(KnownField::ContentLength);
    let length = length.map_err(|_| HeadError::Malformed("there is more than one Content-Length"))?;
    if !fields.may_have(KnownField::TransferEncoding) {
        let parse = |value| {
            parse_content_length(value).ok_or(HeadError::Malformed("the Content-Length is not a number"))
        };
        return length.map(|(value, _)| parse(value).map(Framing::Length)).transpose();
    }
    if length.is_some() {
        return Err(HeadError::Malformed("there are both Content-Length and Transfer-Encoding"));
    }
    // RFC 9112 §6.1: such a message has faulty framing.
    if version == HttpVersion::Http10 {
        return Err(HeadError::Malformed("HTTP/1.0 has no Transfer-Encoding"));
    }
    let mut seen = 0;
    for coding in fields.all_known(KnownField::TransferEncoding).flat_map(tokens) {
        if !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(HeadError::UnknownCoding);
        }
        seen += 1;
    }
    match seen {
        // The chunked coding must not be applied more than once (RFC 9112 §6.1).
        1 => Ok(Some(Framing::Chunked)),
        _ => Err(HeadError::Malformed("the Transfer-Encoding is not one chunked")),
    }
}

/// Parses a response head at the front of `bytes` into `head`, which is empty. `method` is the method of its
/// request, which affects the framing.
pub fn response(
    bytes: &[u8],
    scanned: usize,
    limits: &HeadLimits,
    method: Method,
    head: &mut ResponseHead,
) -> Result<ParsedHead, HeadError> {
    if scanned > 0 && head_end(bytes, scanned).is_none() {
        return partial(bytes, 0, limits, false);
    }
    let lines = status_line(bytes, head).and_then(|at| field_lines(bytes, at, &mut head.fields, limits));
    let end = match lines {
        Ok(end) if end <= limits.head_bytes_max => end,
        failed => {
            head.clear();
            let Some(end) = head_end(bytes, 0) else { return partial(bytes, 0, limits, false) };
            let is_large = end > limits.head_bytes_max;
            return Err(failed.err().filter(|_| !is_large).unwrap_or(HeadError::TooLarge));
        }
    };
    head.fields.block.extend_from_slice(&bytes[..end]);
    response_rules(head, method)?;
    Ok(ParsedHead::Head(end))
}

#[inline(always)]
fn response_rules(head: &mut ResponseHead, method: Method) -> Result<(), HeadError> {
    if head.fields.may_have(KnownField::Connection) {
        head.options = ConnectionOptions::read(&head.fields);
    }
    head.framing = response_framing(head, method)?;
    Ok(())
}

#[inline(always)]
fn status_line(block: &[u8], head: &mut ResponseHead) -> Result<usize, HeadError> {
    if let Some(found) = usual_status_line(block) {
        head.version = HttpVersion::Http11;
        (head.status, head.reason) = found;
        return Ok(head.reason.end as usize + 2);
    }
    any_status_line(block, head)
}

/// Parses a status line of HTTP/1.1 in one pass; returns status and reason.
#[inline(always)]
fn usual_status_line(block: &[u8]) -> Option<(u16, ByteSpan)> {
    let (status, rest) = block.strip_prefix(b"HTTP/1.1 ")?.split_first_chunk()?;
    let [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9', b' '] = status else { return None };
    let status = status[..3].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let start = block.len() - rest.len();
    let end = start + ascii::value_len(rest);
    block[end..].starts_with(b"\r\n").then(|| (status, ByteSpan::new(start, end)))
}

/// Parses any status line.
#[cold]
fn any_status_line(block: &[u8], head: &mut ResponseHead) -> Result<usize, HeadError> {
    let (end, next) = line(block, 0)?;
    let text = &block[..end];
    if text.len() < 12 || text[8] != b' ' {
        return Err(HeadError::Malformed("the status line is too short"));
    }
    head.version = version(&text[..8])?;
    let digits = &text[9..12];
    if !digits.iter().all(u8::is_ascii_digit) || digits[0] == b'0' {
        return Err(HeadError::Malformed("the status is not three digits"));
    }
    let status = digits.iter().fold(0u16, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let reason = match text.get(12) {
        None => ByteSpan::default(),
        Some(b' ') => ByteSpan::new(13, end),
        Some(_) => return Err(HeadError::Malformed("the status is not three digits")),
    };
    if !ascii::is_value(reason.of(block)) {
        return Err(HeadError::Malformed("the reason phrase has a control character"));
    }
    head.status = status;
    head.reason = reason;
    Ok(next)
}

/// The framing of a response, in the order of RFC 9112 §6.3.
fn response_framing(head: &ResponseHead, method: Method) -> Result<Framing, HeadError> {
    // Conflicting lengths are rejected even in responses without a body.
    let fields = body_fields(&head.fields, head.version)?;
    let bodyless = method == Method::Head || matches!(head.status, 100..=199 | 204 | 304);
    // A 2xx response to CONNECT begins a tunnel (RFC 9112 §6.3).
    if bodyless || (method == Method::Connect && (200..300).contains(&head.status)) {
        return Ok(Framing::None);
    }
    Ok(fields.unwrap_or(Framing::Close))
}

#[cfg(test)]
mod tests;
