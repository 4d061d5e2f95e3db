//! JSON with raw control characters in strings, as APISIX accepts it.
//!
//! RFC 8259 §7 requires escapes for them, but the documents of APISIX write, for example, the line breaks of a proto
//! as they are. Every reader of JSON that people write passes this module, so all of them accept the same texts.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

/// A JSON text whose strings contain escapes in place of raw control characters.
#[derive(Debug)]
pub struct JsonText<'t> {
    written: &'t [u8],
    /// Borrowed if the text has none, as most texts.
    strict: Cow<'t, [u8]>,
}

/// A text that is not JSON. The position in the message is that of the text as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonTextError(String);

impl fmt::Display for JsonTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonTextError {}

/// Deserializes a JSON text; trailing data is an error.
pub fn from_slice<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Result<T, JsonTextError> {
    let text = JsonText::new(text);
    serde_json::from_slice(text.strict()).map_err(|error| text.error(&error))
}

impl<'t> JsonText<'t> {
    /// Reads a text. A NUL stays as it is, and so is refused, as in APISIX.
    pub fn new(written: &'t [u8]) -> JsonText<'t> {
        let strict = match first_raw(written) {
            None => Cow::Borrowed(written),
            Some(first) => Cow::Owned(escaped(written, first)),
        };
        JsonText { written, strict }
    }

    /// The text as written.
    pub fn written(&self) -> &'t [u8] {
        self.written
    }

    /// The text as RFC 8259 requires it.
    pub fn strict(&self) -> &[u8] {
        &self.strict
    }

    /// The error of a parser of the strict text, at its position in the text as written.
    pub fn error(&self, error: &serde_json::Error) -> JsonTextError {
        let message = error.to_string();
        if let Cow::Borrowed(_) = self.strict {
            return JsonTextError(message);
        }
        let place = format!(" at line {} column {}", error.line(), error.column());
        let Some(fault) = message.strip_suffix(&place) else { return JsonTextError(message) };
        let (line, column) = self.place(error);
        JsonTextError(format!("{fault} at line {line} column {column}"))
    }

    /// Line and column, from 1, in the text as written of an error of a parser of the strict text. Columns count bytes.
    pub fn place(&self, error: &serde_json::Error) -> (usize, usize) {
        let (line, column) = (error.line(), error.column());
        if let Cow::Borrowed(_) = self.strict {
            return (line, column);
        }
        // Structural line breaks are the same in both texts, so the walk needs the strict text alone.
        let (mut at, mut strict_at) = ((1, 0), (1, 0));
        let mut in_string = StringState::Outside;
        for &byte in self.written {
            if strict_at.0 > line || strict_at.0 == line && strict_at.1 >= column {
                break;
            }
            let is_raw = in_string.advance(byte);
            let length = if is_raw { escape(byte).len() } else { 1 };
            strict_at = if byte == b'\n' && !is_raw {
                (strict_at.0 + 1, 0)
            } else {
                (strict_at.0, strict_at.1 + length)
            };
            at = if byte == b'\n' { (at.0 + 1, 0) } else { (at.0, at.1 + 1) };
        }
        at
    }
}

/// The place of a byte with regard to strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StringState {
    Outside,
    Inside,
    /// Behind a backslash.
    Escaped,
}

impl StringState {
    /// Reads a byte; returns whether it is a raw control character of a string.
    fn advance(&mut self, byte: u8) -> bool {
        let (next, is_raw) = match (*self, byte) {
            (StringState::Outside, b'"') => (StringState::Inside, false),
            (StringState::Outside, _) => (StringState::Outside, false),
            (StringState::Inside, b'"') => (StringState::Outside, false),
            (StringState::Inside, b'\\') => (StringState::Escaped, false),
            // A control character behind a backslash is no escape; the parser refuses the backslash.
            (StringState::Inside, 1..0x20) => (StringState::Inside, true),
            (StringState::Inside | StringState::Escaped, _) => (StringState::Inside, false),
        };
        *self = next;
        is_raw
    }
}

/// The position of the first raw control character.
fn first_raw(text: &[u8]) -> Option<usize> {
    // Compact JSON has no control character at all, and this search is much faster than the one for strings.
    if !text.iter().any(|byte| *byte < 0x20) {
        return None;
    }
    let mut state = StringState::Outside;
    text.iter().position(|byte| state.advance(*byte))
}

fn escaped(text: &[u8], first: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 16);
    out.extend_from_slice(&text[..first]);
    let mut state = StringState::Inside;
    for &byte in &text[first..] {
        match state.advance(byte) {
            true => out.extend_from_slice(escape(byte).as_bytes()),
            false => out.push(byte),
        }
    }
    out
}

fn escape(byte: u8) -> Cow<'static, str> {
    match byte {
        b'\n' => Cow::Borrowed("\\n"),
        b'\r' => Cow::Borrowed("\\r"),
        b'\t' => Cow::Borrowed("\\t"),
        _ => Cow::Owned(format!("\\u{byte:04x}")),
    }
}

#[cfg(test)]
mod tests;
