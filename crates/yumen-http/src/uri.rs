//! Request targets: hosts, paths and queries.

use std::borrow::Cow;

use crate::ascii;

mod path;

pub use path::{
    DotSegmentPolicy, EncodedSlashPolicy, PathForms, PathPolicy, has_dot_segment, is_normal, normalize,
    raw_part, raw_routed_part,
};

/// The reason why a path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidPath(pub &'static str);

/// The host of an authority: its end, and whether it has capitals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostPart {
    pub(crate) end: usize,
    pub(crate) has_capitals: bool,
}

/// The host in an authority, with or without a port: a name, an IPv4 address or an IPv6 address in brackets,
/// without user information (RFC 9110 §4.2.4). `None` if the text is anything else.
pub(crate) fn host_part(bytes: &[u8]) -> Option<HostPart> {
    let host = match bytes.strip_prefix(b"[") {
        Some(inner) => {
            let end = memchr::memchr(b']', inner)?;
            // `end` excludes both brackets. Capital digits are assumed, because lowering an address is
            // harmless.
            is_ipv6(&inner[..end]).then_some(HostPart { end: end + 2, has_capitals: true })?
        }
        None => {
            let end = ascii::find_colon(bytes).unwrap_or(bytes.len());
            HostPart { end, has_capitals: ascii::host_name(&bytes[..end])? }
        }
    };
    let rest = &bytes[host.end..];
    (rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port)).then_some(host)
}

fn is_ipv6(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// An empty port is the default port of the scheme (RFC 3986 §3.2.3).
fn is_port(digits: &[u8]) -> bool {
    (0..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

/// The value of the two hexadecimal digits after a percent sign.
pub(crate) fn escaped(digits: Option<&[u8]>) -> Option<u8> {
    let [high, low] = digits? else { return None };
    let high = char::from(*high).to_digit(16)?;
    let low = char::from(*low).to_digit(16)?;
    Some((high * 16 + low) as u8)
}

/// Appends a decoded path with the percent-encoding that decoding reverses. Encodes `%`, `?`, `#`, and octets
/// that a path may not contain (RFC 3986 §3.3), except square brackets, as NGINX does.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    out.reserve(path.len());
    for &byte in path {
        if is_escaped(byte) {
            escape(byte, out);
        } else {
            out.push(byte);
        }
    }
}

/// Percent-encodes the octets of an encoded path that RFC 3986 §3.3 excludes; existing escapes stay.
pub(crate) fn encode_excluded(path: &[u8]) -> Cow<'_, [u8]> {
    let is_excluded = |byte: u8| byte != b'%' && is_escaped(byte);
    if !path.iter().any(|byte| is_excluded(*byte)) {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len() + 8);
    for &byte in path {
        if is_excluded(byte) {
            escape(byte, &mut out);
        } else {
            out.push(byte);
        }
    }
    Cow::Owned(out)
}

/// Decodes percent-escapes; octets that form no valid escape stay.
pub fn decode_escapes(text: &[u8]) -> Cow<'_, [u8]> {
    // Most texts have no escape and are not copied.
    if memchr::memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = (text[at] == b'%').then(|| escaped(text.get(at + 1..at + 3))).flatten();
        out.push(byte.unwrap_or(text[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

/// Appends text as the name or the value of one query argument: form decoding and percent-decoding return the
/// same text, and no octet of it separates arguments.
pub fn encode_query_value(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~/:@,!*()$".contains(&byte) {
            out.push(byte);
        } else {
            escape(byte, out);
        }
    }
}

/// Whether [`encode_path`] leaves `path` unchanged.
pub(crate) fn is_encoded(path: &[u8]) -> bool {
    !path.iter().any(|byte| is_escaped(*byte))
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, 0..=b' ' | 0x7f.. | b'"' | b'#' | b'%' | b'<' | b'>' | b'?' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// Appends `%XX`.
pub fn escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// The undecoded value of the first query argument called `name`.
pub fn query_argument<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query_arguments(query).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// All arguments of a query, in order, undecoded; an argument without `=` has an empty value.
pub fn query_arguments(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        match memchr::memchr(b'=', pair) {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &b""[..]),
        }
    })
}

/// A query without the arguments for which `is_removed` is true of the undecoded name; `None` if there are
/// none.
pub(crate) fn without_arguments(query: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let pairs = || query.split(|byte| *byte == b'&');
    let name = |pair: &'_ [u8]| memchr::memchr(b'=', pair).unwrap_or(pair.len());
    let pairs_left: Vec<&[u8]> = pairs().filter(|pair| !is_removed(&pair[..name(pair)])).collect();
    (pairs_left.len() < pairs().count()).then(|| pairs_left.join(&b'&'))
}

#[cfg(test)]
mod tests;
