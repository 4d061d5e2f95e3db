//! JSON text written straight from bytes. Clients choose many of these bytes, so every text stays one valid JSON
//! string: log lines cannot be forged.

use std::io::Write;

/// Appends `bytes` as a JSON string. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn write_json_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    match std::str::from_utf8(bytes) {
        Ok(text) => write_escaped(out, text),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                write_escaped(out, chunk.valid());
                if !chunk.invalid().is_empty() {
                    out.extend_from_slice("\u{fffd}".as_bytes());
                }
            }
        }
    }
    out.push(b'"');
}

/// Appends text without its quotes, with the escapes of RFC 8259 §7.
fn write_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    // Most texts have nothing to escape and are copied at once.
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0x7f)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => write!(out, "\\u{control:04x}").expect("a vector takes every write"),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends a number.
pub(crate) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends microseconds as milliseconds with their fraction.
pub(crate) fn write_ms(out: &mut Vec<u8>, us: u64) {
    write_number(out, us / 1000);
    let fraction = us % 1000;
    if fraction > 0 {
        let text = format!(".{fraction:03}");
        out.extend_from_slice(text.trim_end_matches('0').as_bytes());
    }
}

/// Writes the members of one JSON object.
pub(crate) struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
}

impl<'o> ObjectWriter<'o> {
    /// Begins an object.
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> ObjectWriter<'o> {
        out.push(b'{');
        ObjectWriter { out, is_first: true }
    }

    /// Writes the name of the next member and returns the buffer for its value.
    pub(crate) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.separate();
        write_json_text(self.out, name.as_bytes());
        self.out.push(b':');
        self.out
    }

    /// Writes a member whose value is text.
    pub(crate) fn text(&mut self, name: &str, value: impl AsRef<[u8]>) {
        write_json_text(self.member(name), value.as_ref());
    }

    /// Writes a member whose value is a number.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        write_number(self.member(name), value);
    }

    /// Writes a member that `write` appends with its name, and a comma in front if it appends anything.
    pub(crate) fn optional(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let before = self.out.len();
        let was_first = self.is_first;
        self.separate();
        if !write(self.out) {
            self.out.truncate(before);
            self.is_first = was_first;
        }
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    /// Ends the object.
    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_one_valid_json_string() {
        fn check(bytes: &[u8], expected: &str) {
            let mut out = Vec::new();
            write_json_text(&mut out, bytes);
            let text = String::from_utf8(out).expect("UTF-8");
            assert_eq!(text, expected, "{bytes:?}");
            assert!(serde_json::from_str::<String>(&text).is_ok(), "{text}");
        }
        check(b"", r#""""#);
        check(b"plain text", r#""plain text""#);
        check(b"a\"b\\c", r#""a\"b\\c""#);
        check(b"one\r\ntwo\t\x00\x1b\x7f", r#""one\r\ntwo\t\u0000\u001b\u007f""#);
        check("gr\u{fc}n".as_bytes(), "\"gr\u{fc}n\"");
        check(b"a\xffb\xc3", "\"a\u{fffd}b\u{fffd}\"");
    }

    #[test]
    fn milliseconds_have_the_digits_that_count() {
        fn check(us: u64, expected: &str) {
            let mut out = Vec::new();
            write_ms(&mut out, us);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        check(0, "0");
        check(1, "0.001");
        check(1500, "1.5");
        check(12_000, "12");
        check(12_340, "12.34");
    }
}
