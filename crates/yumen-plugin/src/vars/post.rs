//! Fields of forms, urlencoded and multipart, and the media types whose bodies have values.
//!
//! Knows the two formats, not who buffered the body.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use yumen_http::KnownField;

use crate::Exchange;

/// Whether the body is of a type that has fields or places.
pub(super) fn is_looked_into(ex: &Exchange<'_>) -> bool {
    ex.request.fields.known(KnownField::ContentType).map(media_type).is_some_and(|media_type| {
        media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
            || media_type.eq_ignore_ascii_case(b"multipart/form-data")
            || is_json(media_type)
    })
}

/// The media type of a `Content-Type`, without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

pub(super) fn is_json(media_type: &[u8]) -> bool {
    let suffix = media_type.len().saturating_sub(b"+json".len());
    media_type.eq_ignore_ascii_case(b"application/json")
        || media_type[suffix..].eq_ignore_ascii_case(b"+json")
}

/// The decoded value of the first `name` in an urlencoded text; one without `=` is empty.
pub(super) fn form_field<'a>(form: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    yumen_http::uri::query_arguments(form)
        .find(|(key, _)| is_decoded_as(key, name))
        .map(|(_, value)| form_decode(value))
}

/// Whether a text of a form decodes to `name`, as [`form_decode`] has it.
fn is_decoded_as(mut text: &[u8], name: &[u8]) -> bool {
    for expected in name {
        let (byte, length) = match text {
            [b'+', ..] => (b' ', 1),
            [b'%', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            [byte, ..] => (*byte, 1),
            [] => return false,
        };
        if byte != *expected {
            return false;
        }
        text = &text[length..];
    }
    text.is_empty()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Decodes `%XX` and `+`; text that holds neither is borrowed.
pub(super) fn form_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// How often the boundary of a multipart body occurs in it, at most `count_max`.
pub(super) fn count_parts(body: &[u8], content_type: &[u8], count_max: usize) -> usize {
    let Some(boundary) = parameter(content_type, b"boundary").filter(|boundary| !boundary.is_empty()) else {
        return 0;
    };
    memchr::memmem::find_iter(body, boundary).take(count_max).count()
}

/// The part whose disposition names it (RFC 7578 §4.2).
pub(super) fn multipart_field<'a>(body: &'a [u8], content_type: &[u8], name: &[u8]) -> Option<&'a [u8]> {
    let boundary = parameter(content_type, b"boundary")?;
    let mut delimiter = b"\r\n--".to_vec();
    delimiter.extend_from_slice(boundary);
    // The first delimiter has no line before it where there is no preamble.
    let first = delimiter[2..].to_vec();
    let start = if body.starts_with(&first) {
        first.len()
    } else {
        memchr::memmem::find(body, &delimiter)? + delimiter.len()
    };
    let mut rest = &body[start..];
    loop {
        if rest.starts_with(b"--") {
            return None;
        }
        let line_end = memchr::memmem::find(rest, b"\r\n")?;
        let part = &rest[line_end..];
        let end = memchr::memmem::find(part, &delimiter)?;
        if let Some(value) = named_part(&part[..end], name) {
            return Some(value);
        }
        rest = &part[end + delimiter.len()..];
    }
}

/// The content of a part, which begins with the line break before its fields, if it is called `name`.
fn named_part<'a>(part: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let head_end = memchr::memmem::find(part, b"\r\n\r\n")?;
    let disposition = part[..head_end].split(|byte| *byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].eq_ignore_ascii_case(b"content-disposition").then(|| line[colon + 1..].trim_ascii())
    })?;
    (parameter(disposition, b"name")? == name).then(|| &part[head_end + 4..])
}

/// A parameter of a field value, without its quotes.
fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    value.split(|byte| *byte == b';').skip(1).find_map(|parameter| {
        let equals = memchr::memchr(b'=', parameter)?;
        let text = parameter[equals + 1..].trim_ascii();
        let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        parameter[..equals].trim_ascii().eq_ignore_ascii_case(name).then_some(text)
    })
}
