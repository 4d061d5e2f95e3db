//! Fields of urlencoded forms, and the media types of bodies with values.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use yumen_http::KnownField;

use crate::Exchange;

/// Whether the body has a type with values.
pub(super) fn is_looked_into(ex: &Exchange<'_>) -> bool {
    ex.has_ambiguous_content_type()
        || ex.request.fields.known(KnownField::ContentType).map(media_type).is_some_and(|media_type| {
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

/// The decoded value of the first field `name`; empty without an equals sign.
pub(super) fn form_field<'a>(form: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    yumen_http::uri::query_arguments(form)
        .find(|(key, _)| is_decoded_as(key, name))
        .map(|(_, value)| form_decode(value))
}

/// Whether form text decodes to `name`, as by [`form_decode`].
fn is_decoded_as(mut text: &[u8], name: &[u8]) -> bool {
    // Compares while it decodes, so that fields with other names need no allocation.
    for expected in name {
        let (byte, length) = match text {
            [b'+', ..] => (b' ', 1),
            [b'%', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                // An invalid escape remains as it is.
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

/// Decodes `%XX` and `+`; text without them is borrowed.
pub(super) fn form_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    // Before the escapes are decoded, so that `%2B` remains a plus sign.
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}
