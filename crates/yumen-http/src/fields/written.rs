//! Fields of heads that the gateway has written itself.

use super::{ByteSpan, FieldLine, Fields, KnownField};

impl Fields {
    /// The fields of a written head, for readers of the sent response. Its lines are copied as one block and not checked
    /// again; `keeps` selects fields.
    pub fn of_written_head(head: &[u8], keeps: impl Fn(KnownField) -> bool) -> Fields {
        let start = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
        let block = head[start..].to_vec();
        let (mut list, mut seen, mut at) = (Vec::with_capacity(16), 0, 0);
        while let Some(length) = memchr::memchr(b'\n', &block[at..]) {
            let line = &block[at..at + length];
            let line_end = at + length + 1;
            if let Some(colon) = memchr::memchr(b':', line) {
                let known = KnownField::of(&line[..colon]);
                if keeps(known) {
                    let value = line[colon + 1..].trim_ascii_start();
                    let begin = at + length - value.len();
                    seen |= known.bit();
                    list.push(FieldLine {
                        name: ByteSpan::new(at, at + colon),
                        value: ByteSpan::new(begin, begin + value.trim_ascii_end().len()),
                        line_end: line_end as u32,
                        known,
                        is_received: false,
                    });
                }
            }
            at = line_end;
        }
        Fields { block, list, seen, repeated: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_head_has_the_fields_that_are_kept() {
        let head = b"HTTP/1.1 200 OK\r\nServer: up\r\nX-Empty:\r\nSet-Cookie: a=b\r\nSet-Cookie:  c=d \r\nConnection: close\r\n\r\n";
        let fields = Fields::of_written_head(head, |known| known != KnownField::Connection);
        let found: Vec<(&[u8], &[u8])> = fields.iter().collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"Server", b"up"), (b"X-Empty", b""), (b"Set-Cookie", b"a=b"), (b"Set-Cookie", b"c=d")];
        assert_eq!(found, expected);
        assert_eq!(fields.get("server"), Some(&b"up"[..]));
        assert_eq!(fields.all("set-cookie").count(), 2);
        assert!(!fields.has("connection"));
        assert!(Fields::of_written_head(b"", |_| true).is_empty());
    }
}
