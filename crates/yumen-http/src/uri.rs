//! Request targets: the path that routing sees.

use crate::ascii;

/// Why a path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPath(pub &'static str);

/// The host of an authority: where it ends, and whether it has capitals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostPart {
    pub(crate) end: usize,
    pub(crate) has_capitals: bool,
}

/// The host in an authority, with or without a port: a name, an IPv4 address or an IPv6 address in
/// brackets; without user information (RFC 9110 §4.2.4). `None` where it is none.
pub(crate) fn host_part(bytes: &[u8]) -> Option<HostPart> {
    let host = match bytes.strip_prefix(b"[") {
        Some(inner) => {
            let end = memchr::memchr(b']', inner)?;
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

/// None at all is the scheme's own (RFC 3986 §3.2.3).
fn is_port(digits: &[u8]) -> bool {
    (0..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

/// Whether a raw path already stands in the form [`normalize`] would give it.
pub fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0u8;
    for &byte in path {
        match byte {
            b'%' => return false,
            b'/' | b'.' if previous == b'/' => return false,
            _ => {}
        }
        previous = byte;
    }
    true
}

/// Decodes `%XX`, merges slashes and resolves dot segments (RFC 3986 §5.2.4), appending to `out`.
///
/// Routing and plugins look at this form, so that no spelling of a path goes around a rule; the
/// upstream receives the target as it came unless a plugin rewrites it.
///
/// Refused: a bad escape, an encoded NUL, a path that climbs above its root.
pub fn normalize(path: &[u8], out: &mut Vec<u8>) -> Result<(), BadPath> {
    let start = out.len();
    let mut at = 0;
    while at < path.len() {
        let mut byte = path[at];
        at += 1;
        if byte == b'%' {
            byte = escaped(path.get(at..at + 2)).ok_or(BadPath("the target has a bad percent escape"))?;
            if byte == 0 {
                return Err(BadPath("the target has an encoded NUL"));
            }
            at += 2;
        }
        if byte == b'/' {
            end_segment(out, start)?;
            if out[start..].last() == Some(&b'/') {
                continue;
            }
        }
        out.push(byte);
    }
    let is_dots = matches!(last_segment(out, start), b"." | b"..");
    if is_dots {
        end_segment(out, start)?;
    }
    Ok(())
}

/// Takes a dot segment that has just ended off the output, which then ends with a slash.
fn end_segment(out: &mut Vec<u8>, start: usize) -> Result<(), BadPath> {
    match last_segment(out, start) {
        b"." => out.truncate(out.len() - 1),
        b".." => {
            out.truncate(out.len() - 3);
            let parent = out[start..].iter().rposition(|byte| *byte == b'/');
            match parent {
                Some(slash) => out.truncate(start + slash + 1),
                None => return Err(BadPath("the path climbs above its root")),
            }
        }
        _ => {}
    }
    Ok(())
}

fn last_segment(out: &[u8], start: usize) -> &[u8] {
    let written = &out[start..];
    match written.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &written[slash + 1..],
        None => b"",
    }
}

fn escaped(digits: Option<&[u8]>) -> Option<u8> {
    let [high, low] = digits? else { return None };
    let high = char::from(*high).to_digit(16)?;
    let low = char::from(*low).to_digit(16)?;
    Some((high * 16 + low) as u8)
}

/// Appends a decoded path, percent-encoded so that decoding gives it back: `%`, `?`, `#`, and what may
/// not stand in a path (RFC 3986 §3.3), of which square brackets alone stay, as in NGINX.
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

/// Whether [`encode_path`] would leave `path` as it is.
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

/// The value of the first query argument called `name`, as it stands in the query.
pub fn query_argument<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query_arguments(query).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// All arguments of a query, in order, undecoded; one without `=` has an empty value.
pub fn query_arguments(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        match memchr::memchr(b'=', pair) {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &b""[..]),
        }
    })
}

/// A query without the arguments whose names, as they stand in it, `is_removed` tells; `None` where it has none
/// of them.
pub(crate) fn without_arguments(query: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let pairs = || query.split(|byte| *byte == b'&');
    let name = |pair: &'_ [u8]| memchr::memchr(b'=', pair).unwrap_or(pair.len());
    let kept: Vec<&[u8]> = pairs().filter(|pair| !is_removed(&pair[..name(pair)])).collect();
    (kept.len() < pairs().count()).then(|| kept.join(&b'&'))
}

#[cfg(test)]
mod tests;
