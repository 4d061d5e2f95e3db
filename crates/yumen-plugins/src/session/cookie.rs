//! Cookies of sessions: attributes, and values that are split over several cookies.

use std::borrow::Cow;
use std::fmt::Write as _;

use yumen_http::KnownField;
use yumen_plugin::RequestHead;

use super::SealFault;

/// Longest value of one cookie. Browsers keep cookies of up to 4096 bytes with name and attributes.
pub(super) const CHUNK_BYTES_MAX: usize = 3900;
/// Most cookies of one value.
pub(super) const CHUNKS_MAX: usize = 8;

/// Attributes of a cookie (RFC 6265 §4.1.2).
#[derive(Debug, Clone, Default)]
pub(crate) struct LoginCookieAttributes {
    pub(crate) path: String,
    pub(crate) domain: Option<String>,
    /// Always, never, or with https only.
    pub(crate) secure: Option<bool>,
    pub(crate) is_http_only: bool,
    /// `Strict`, `Lax`, `None`; empty for no attribute.
    pub(crate) same_site: &'static str,
}

impl LoginCookieAttributes {
    /// A value of `Set-Cookie`. Without `max_age_s` the cookie ends with the browser session; 0 removes it.
    pub(crate) fn line(&self, name: &str, value: &str, max_age_s: Option<u64>, is_https: bool) -> String {
        let mut line = format!("{name}={value}; Path={}", self.path);
        if let Some(domain) = &self.domain {
            let _ = write!(line, "; Domain={domain}");
        }
        if let Some(max_age_s) = max_age_s {
            let _ = write!(line, "; Max-Age={max_age_s}");
        }
        if self.is_http_only {
            line.push_str("; HttpOnly");
        }
        // Browsers refuse `SameSite=None` without `Secure`.
        if self.secure.unwrap_or(is_https || self.same_site == "None") {
            line.push_str("; Secure");
        }
        if !self.same_site.is_empty() {
            let _ = write!(line, "; SameSite={}", self.same_site);
        }
        line
    }
}

/// Names and values of all cookies of a request.
pub(crate) fn cookies_of(request: &RequestHead) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = request.fields.all_known(KnownField::Cookie);
    lines.flat_map(|line| line.split(|byte| *byte == b';')).filter_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        Some((&pair[..equals], &pair[equals + 1..]))
    })
}

/// The name of the chunk with this number, counted from 1.
pub(super) fn chunk_name(name: &str, number: usize) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}_{number}") }
}

/// The parts of a value; `None` if it needs more than eight cookies. The first part begins with the count.
pub(super) fn split(value: &str) -> Option<Vec<String>> {
    let room = CHUNK_BYTES_MAX - 2;
    let count = value.len().div_ceil(room).max(1);
    if count > CHUNKS_MAX {
        return None;
    }
    let mut parts: Vec<String> = Vec::with_capacity(count);
    for (at, part) in value.as_bytes().chunks(room).enumerate() {
        // A sealed value is ASCII.
        let part = std::str::from_utf8(part).ok()?;
        parts.push(if at == 0 { format!("{count}.{part}") } else { part.to_owned() });
    }
    Some(parts)
}

/// A joined value, and the number of its cookies.
pub(super) type JoinedCookie<'a> = (Cow<'a, [u8]>, usize);

/// The value of the cookies called `name`, joined, and the number of its cookies; `Ok(None)` without such a cookie.
pub(super) fn join<'a>(request: &'a RequestHead, name: &str) -> Result<Option<JoinedCookie<'a>>, SealFault> {
    let Some(first) = request.cookie(name.as_bytes()) else { return Ok(None) };
    // An empty value is that of a removed cookie in some clients.
    if first.is_empty() {
        return Ok(None);
    }
    let (count, rest) = match first {
        [digit @ b'1'..=b'8', b'.', rest @ ..] => (usize::from(digit - b'0'), rest),
        _ => return Err(SealFault::Malformed),
    };
    let mut value = Cow::Borrowed(rest);
    for number in 2..=count {
        let chunk = request.cookie(chunk_name(name, number).as_bytes()).ok_or(SealFault::Incomplete)?;
        value.to_mut().extend_from_slice(chunk);
    }
    Ok(Some((value, count)))
}
