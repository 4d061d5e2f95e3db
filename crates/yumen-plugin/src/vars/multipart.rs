//! Fields of a multipart form (RFC 7578), indexed once per body by a strict parser.
//!
//! Parsers disagree about forms that bend the grammar, so that a guard could see another value than the
//! upstream does. Such forms are refused.

use std::ops::Range;

/// Longest boundary (RFC 2046 §5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The reason why a form was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MultipartFault {
    /// The form violates the grammar, or uses a part of it that parsers interpret differently.
    Malformed,
    /// The form has more parts than allowed.
    TooManyParts,
}

use MultipartFault::Malformed;

/// The parts of a form, in the order of the body.
#[derive(Debug, Default)]
pub(crate) struct MultipartParts {
    /// Name and content of each part, as ranges of the body.
    parts: Vec<(Range<usize>, Range<usize>)>,
}

impl MultipartParts {
    /// Parses a form of at most `parts_max` parts.
    pub(super) fn parse(
        body: &[u8],
        content_type: &[u8],
        parts_max: usize,
    ) -> Result<MultipartParts, MultipartFault> {
        let mut delimiter = b"--".to_vec();
        delimiter.extend_from_slice(boundary(content_type)?);
        let mut form = MultipartParts::default();
        // Start of the current part.
        let mut open = None;
        let mut is_closed = false;
        for at in memchr::memmem::find_iter(body, &delimiter) {
            match &body[..at] {
                [] | [.., b'\r', b'\n'] => {}
                // Some parsers accept any line break before a delimiter.
                [.., b'\n' | b'\r'] => return Err(Malformed),
                _ => continue,
            }
            // Parsers disagree about parts after the close delimiter.
            if is_closed {
                return Err(Malformed);
            }
            if let Some(start) = open {
                if form.parts.len() == parts_max {
                    return Err(MultipartFault::TooManyParts);
                }
                // The line break before a delimiter is part of the delimiter (RFC 2046 §5.1.1).
                let end = at.checked_sub(2).filter(|end| start <= *end).ok_or(Malformed)?;
                form.parts.push(part(body, start..end)?);
            }
            let after_delimiter = at + delimiter.len();
            open = line_end(body, after_delimiter, false);
            if open.is_none() {
                let is_close = body[after_delimiter..].starts_with(b"--")
                    && line_end(body, after_delimiter + 2, true).is_some();
                is_closed = is_close.then_some(true).ok_or(Malformed)?;
            }
        }
        if is_closed { Ok(form) } else { Err(Malformed) }
    }

    /// The content of the first part with this name.
    pub(super) fn field<'a>(&self, body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        let (_, content) = self.parts.iter().find(|(part, _)| body.get(part.clone()) == Some(name))?;
        body.get(content.clone())
    }
}

/// Offset after a line that contains only the white space that may pad a delimiter.
fn line_end(body: &[u8], at: usize, may_end_body: bool) -> Option<usize> {
    let padding = body.get(at..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match body.get(at + padding..)? {
        [b'\r', b'\n', ..] => Some(at + padding + 2),
        [] if may_end_body => Some(body.len()),
        _ => None,
    }
}

/// The ranges of name and content of a part.
fn part(body: &[u8], range: Range<usize>) -> Result<(Range<usize>, Range<usize>), MultipartFault> {
    let mut at = range.start;
    let mut name = None;
    loop {
        let line = body.get(at..range.end).ok_or(Malformed)?;
        let length = memchr::memmem::find(line, b"\r\n").ok_or(Malformed)?;
        let line = &line[..length];
        let start = at;
        at += length + 2;
        if line.is_empty() {
            return Ok((name.ok_or(Malformed)?, at..range.end));
        }
        let colon = memchr::memchr(b':', line).ok_or(Malformed)?;
        // A folded line begins with white space, which is invalid in a field name.
        if !is_token(&line[..colon]) || line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(Malformed);
        }
        let value = &line[colon + 1..];
        if line[..colon].eq_ignore_ascii_case(b"content-disposition") {
            let found = disposition_name(value)?;
            let offset = start + colon + 1;
            if name.replace(found.start + offset..found.end + offset).is_some() {
                return Err(Malformed);
            }
        } else if line[..colon].eq_ignore_ascii_case(b"content-transfer-encoding")
            && ![&b"7bit"[..], b"8bit", b"binary"]
                .iter()
                .any(|plain| plain.eq_ignore_ascii_case(value.trim_ascii()))
        {
            // Some parsers decode it, although RFC 7578 §4.7 deprecates the field.
            return Err(Malformed);
        }
    }
}

/// The range of the `name` of a `Content-Disposition` (RFC 7578 §4.2).
fn disposition_name(value: &[u8]) -> Result<Range<usize>, MultipartFault> {
    let mut name = None;
    let kind = parameters(value, |key, range| {
        // Forms must not use the notation of RFC 5987 (RFC 7578 §4.2), but some parsers decode it.
        if key.len() >= 5 && key[..5].eq_ignore_ascii_case(b"name*") {
            return Err(Malformed);
        }
        if key.eq_ignore_ascii_case(b"name") {
            // Some parsers unescape a backslash, others keep it.
            let is_doubled = name.replace(range.clone()).is_some();
            if is_doubled || value[range].contains(&b'\\') {
                return Err(Malformed);
            }
        }
        Ok(())
    })?;
    if kind.eq_ignore_ascii_case(b"form-data") { name.ok_or(Malformed) } else { Err(Malformed) }
}

/// The boundary parameter of a `Content-Type` (RFC 2046 §5.1.1).
fn boundary(content_type: &[u8]) -> Result<&[u8], MultipartFault> {
    let mut boundary = None;
    parameters(content_type, |key, range| {
        let is_doubled = key.eq_ignore_ascii_case(b"boundary") && boundary.replace(range).is_some();
        if is_doubled { Err(Malformed) } else { Ok(()) }
    })?;
    let boundary = content_type.get(boundary.ok_or(Malformed)?).ok_or(Malformed)?;
    // The `bchars` of RFC 2046 §5.1.1; the last one is no space.
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    let is_boundary = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.iter().all(is_allowed)
        && !boundary.ends_with(b" ");
    if is_boundary { Ok(boundary) } else { Err(Malformed) }
}

/// Calls `visit` with name and range of each parameter; returns the text before the parameters. An escaped
/// quote is malformed, because parsers disagree where the string ends.
fn parameters<'a>(
    value: &'a [u8],
    mut visit: impl FnMut(&'a [u8], Range<usize>) -> Result<(), MultipartFault>,
) -> Result<&'a [u8], MultipartFault> {
    let mut at = memchr::memchr(b';', value).unwrap_or(value.len());
    let kind = value[..at].trim_ascii();
    while at < value.len() {
        at = after_space(value, at + 1);
        let equals = memchr::memchr(b'=', &value[at..]).ok_or(Malformed)? + at;
        let key = &value[at..equals];
        let range = match value.get(equals + 1) {
            Some(b'"') => {
                let start = equals + 2;
                let end = memchr::memchr(b'"', &value[start..]).ok_or(Malformed)? + start;
                start..end
            }
            _ => {
                let start = equals + 1;
                start..start + value[start..].iter().take_while(|byte| !b"; \t".contains(byte)).count()
            }
        };
        let is_quoted = value.get(equals + 1) == Some(&b'"');
        let text = &value[range.clone()];
        if !is_token(key) || (is_quoted && text.ends_with(b"\\")) || !(is_quoted || is_token(text)) {
            return Err(Malformed);
        }
        at = after_space(value, range.end + usize::from(is_quoted));
        visit(key, range)?;
        if !matches!(value.get(at), None | Some(b';')) {
            return Err(Malformed);
        }
    }
    Ok(kind)
}

fn after_space(value: &[u8], at: usize) -> usize {
    at + value[at.min(value.len())..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Whether the text is a `token` (RFC 9110 §5.6.2).
fn is_token(text: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_allowed)
}
