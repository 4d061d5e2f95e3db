//! Query arguments, decoded and in their order.

use std::borrow::Cow;

use yumen_http::uri::query_arguments;
use yumen_plugin::RequestHead;

#[cfg(test)]
mod tests;

/// Result of the search for one argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueryArgument<'a> {
    /// No such argument.
    Absent,
    /// Exactly one, with a value.
    One(Cow<'a, [u8]>),
    /// Several, or one without an equals sign.
    Other,
}

/// Finds an argument. Names and values are percent-decoded, and a plus sign is a space.
pub(crate) fn argument<'a>(query: &'a [u8], name: &[u8]) -> QueryArgument<'a> {
    let mut values = query_arguments(query).filter(|(key, _)| decode(key).as_ref() == name);
    match (values.next(), values.next()) {
        (None, _) => QueryArgument::Absent,
        (Some((key, value)), None) if has_equals(query, key, value) => QueryArgument::One(decode(value)),
        _ => QueryArgument::Other,
    }
}

/// All pairs of a form or query, decoded, in order.
pub(crate) fn pairs(query: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    query_arguments(query).filter(|(key, _)| !key.is_empty()).map(|(key, value)| (decode(key), decode(value)))
}

/// Whether the pair has an equals sign; `key` and `value` are slices of `query`.
fn has_equals(query: &[u8], key: &[u8], value: &[u8]) -> bool {
    // In Lua, an argument without an equals sign is `true` and no text.
    !value.is_empty() || {
        let mut pairs = query.split(|byte| *byte == b'&');
        pairs.any(|pair| pair.strip_suffix(b"=") == Some(key))
    }
}

/// Removes all arguments with this name, so that neither later plugins nor the upstream receive them.
pub(crate) fn remove_argument(request: &mut RequestHead, name: &[u8]) {
    request.remove_arguments(|key| decode(key).as_ref() == name);
}

/// Decodes percent-encoding; a plus sign is a space.
pub(crate) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        // An invalid escape remains as it is.
        let escaped = (text[at] == b'%').then(|| hex(text.get(at + 1..at + 3)?)).flatten();
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if text[at] == b'+' { b' ' } else { text[at] });
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}
