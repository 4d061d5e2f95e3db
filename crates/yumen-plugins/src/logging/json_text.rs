//! JSON text written straight from bytes. Clients choose many of these bytes, so every text stays one valid JSON
//! string: log lines cannot be forged.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// Whether a byte is printable ASCII without a meaning in JSON strings.
fn is_plain_byte(byte: u8) -> bool {
    // Without a branch, so that the loop over a block becomes vector instructions.
    (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\')
}

/// Whether all bytes are plain. Nearly all texts of requests are, and need no parsing as UTF-8.
fn is_plain(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks_exact(16);
    let blocks_are_plain =
        blocks.by_ref().all(|block| block.iter().fold(true, |all, byte| all & is_plain_byte(*byte)));
    blocks_are_plain && blocks.remainder().iter().all(|byte| is_plain_byte(*byte))
}

/// Appends `bytes` as a JSON string. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn write_json_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    write_json_part(out, bytes);
    out.push(b'"');
}

/// Appends a part of a JSON string, whose quotes the caller writes.
pub(crate) fn write_json_part(out: &mut Vec<u8>, bytes: &[u8]) {
    if is_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
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
        let digit = |value: u64| b'0' + (value % 10) as u8;
        let digits = [b'.', digit(fraction / 100), digit(fraction / 10), digit(fraction)];
        let length = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        out.extend_from_slice(&digits[..length]);
    }
}

/// Appends an address.
pub(crate) fn write_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        // Formatting takes several times as long as the digits.
        IpAddr::V4(ip) => {
            let [first, rest @ ..] = ip.octets();
            write_number(out, first.into());
            for octet in rest {
                out.push(b'.');
                write_number(out, octet.into());
            }
        }
        IpAddr::V6(ip) => write!(out, "{ip}").expect("a vector takes every write"),
    }
}

/// Appends an address with its port.
pub(crate) fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(address) => {
            write_ip(out, (*address.ip()).into());
            out.push(b':');
            write_number(out, address.port().into());
        }
        SocketAddr::V6(address) => write!(out, "{address}").expect("a vector takes every write"),
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

    /// Writes a name of the form itself, which needs no escapes, and returns the buffer for its value.
    pub(crate) fn known(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a name in lower case and returns the buffer for its value.
    pub(crate) fn lower_case(&mut self, name: &[u8]) -> &mut Vec<u8> {
        self.separate();
        let begin = self.out.len();
        write_json_text(self.out, name);
        // Escapes may be in lower case too.
        self.out[begin..].make_ascii_lowercase();
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
        // Longer than a block, with a special byte at each place.
        for at in 0..40 {
            let mut text = [b'a'; 40];
            text[at] = b'"';
            check(&text, &format!("\"{}\\\"{}\"", "a".repeat(at), "a".repeat(39 - at)));
            text[at] = 0xff;
            check(&text, &format!("\"{}\u{fffd}{}\"", "a".repeat(at), "a".repeat(39 - at)));
        }
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
        check(7_900, "7.9");
    }

    #[test]
    fn addresses_are_written_as_their_formatting_does() {
        for address in ["192.0.2.7:80", "[2001:db8::1]:65535", "[::ffff:1.2.3.4]:1", "255.255.255.255:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let (mut whole, mut ip) = (Vec::new(), Vec::new());
            write_address(&mut whole, address);
            write_ip(&mut ip, address.ip());
            assert_eq!(whole, address.to_string().as_bytes());
            assert_eq!(ip, address.ip().to_string().as_bytes());
        }
    }

    #[test]
    fn names_in_lower_case_stay_valid() {
        for name in [&b"X-Name"[..], b"A\x1bB", b"\xffN"] {
            let mut out = Vec::new();
            let mut object = ObjectWriter::begin(&mut out);
            write_number(object.lower_case(name), 1);
            object.end();
            let read: std::collections::BTreeMap<String, u64> = serde_json::from_slice(&out).unwrap();
            let expected = String::from_utf8_lossy(name).to_ascii_lowercase();
            assert_eq!(read.into_keys().collect::<Vec<_>>(), [expected]);
        }
    }
}
