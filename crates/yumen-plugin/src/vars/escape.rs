//! Percent-encoding of text for URLs.

/// Appends text as one query argument: only unreserved octets stay (RFC 3986 §2.3).
pub fn escape_argument(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => yumen_http::uri::escape(byte, out),
        }
    }
}
