//! Values that are derived from the text of a request: its first line, its length, its user.

use base64::Engine as _;
use yumen_http::Framing;

use super::protocol;
use crate::Exchange;

pub(super) fn request_line(ex: &Exchange<'_>, out: &mut Vec<u8>) {
    let request = &ex.request;
    out.extend_from_slice(request.method_name());
    out.push(b' ');
    out.extend_from_slice(request.target());
    out.push(b' ');
    out.extend_from_slice(protocol(request.version));
}

/// Appends the user name of Basic authentication, verified or not.
pub(super) fn remote_user(ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
    let user = || {
        let (scheme, token) = ex.request.fields.get("authorization")?.split_at_checked(6)?;
        let token = scheme.eq_ignore_ascii_case(b"basic ").then(|| token.trim_ascii())?;
        let mut pair = base64::engine::general_purpose::STANDARD.decode(token).ok()?;
        // A password may contain colons, a user name may not (RFC 7617 §2).
        pair.truncate(memchr::memchr(b':', &pair)?);
        (!pair.is_empty()).then_some(pair)
    };
    let user = user();
    out.extend_from_slice(user.as_deref().unwrap_or_default());
    user.is_some()
}

/// Length of the head, calculated without optional white space, plus the announced body.
pub(super) fn request_length(ex: &Exchange<'_>) -> u64 {
    let request = &ex.request;
    let line = request.method_name().len() + request.target().len() + " HTTP/1.1\r\n".len() + 1;
    // Four bytes for the colon, the space and the line break.
    let fields: usize = request.fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let body = match (request.framing, &ex.body.buffered) {
        (Framing::Length(length), _) => length,
        (_, Some(body)) => body.len() as u64,
        _ => 0,
    };
    (line + fields + 2) as u64 + body
}
