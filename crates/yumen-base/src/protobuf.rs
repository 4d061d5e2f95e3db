//! Protocol Buffers wire format, written field by field into one buffer (Protocol Buffers documentation, "Encoding").

/// Maximum length of a varint in bytes.
const VARINT_BYTES_MAX: usize = 10;

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// Appends the fields of one message.
pub struct ProtobufWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> ProtobufWriter<'o> {
    /// A writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> ProtobufWriter<'o> {
        ProtobufWriter { out }
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        write_varint(self.out, u64::from(field << 3 | wire_type));
    }

    /// Appends a field of type `uint64`, `int64`, `bool` or of an enum.
    pub fn varint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        write_varint(self.out, value);
    }

    /// Appends a field of type `fixed64` or `sfixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a field of type `double`.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// Appends a field of type `fixed32`.
    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED32);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a field of type `bytes`.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, LENGTH_DELIMITED);
        write_varint(self.out, value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// Appends a field of type `string`. Invalid UTF-8 becomes U+FFFD, since receivers refuse the whole message.
    pub fn text(&mut self, field: u32, value: impl AsRef<[u8]>) {
        self.bytes(field, String::from_utf8_lossy(value.as_ref()).as_bytes());
    }

    /// Appends a field that is a message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut ProtobufWriter<'_>)) {
        self.key(field, LENGTH_DELIMITED);
        let begin = self.out.len();
        // One byte for the length: most messages are shorter than 128 bytes.
        self.out.push(0);
        write(&mut ProtobufWriter { out: self.out });
        let length = (self.out.len() - begin - 1) as u64;
        if length < 128 {
            self.out[begin] = length as u8;
            return;
        }
        let mut prefix = Vec::with_capacity(VARINT_BYTES_MAX);
        write_varint(&mut prefix, length);
        self.out.splice(begin..=begin, prefix);
    }

    /// Appends fields that are encoded already.
    pub fn encoded(&mut self, fields: &[u8]) {
        self.out.extend_from_slice(fields);
    }
}

/// Appends the key and the length of a field of type `bytes`, `string` or of a message, whose `length` bytes follow.
pub fn write_prefix(out: &mut Vec<u8>, field: u32, length: usize) {
    write_varint(out, u64::from(field << 3 | LENGTH_DELIMITED));
    write_varint(out, length as u64);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl FnOnce(&mut ProtobufWriter<'_>), expected: &[u8]) {
        let mut out = Vec::new();
        write(&mut ProtobufWriter::new(&mut out));
        assert_eq!(out, expected);
    }

    #[test]
    fn fields_have_the_bytes_of_the_specification() {
        // The first two are examples of the documentation, "Encoding".
        check(|writer| writer.varint(1, 150), &[0x08, 0x96, 0x01]);
        check(|writer| writer.text(2, "testing"), b"\x12\x07testing");
        check(|writer| writer.varint(1, u64::MAX), b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        check(|writer| writer.fixed64(3, 1), &[0x19, 1, 0, 0, 0, 0, 0, 0, 0]);
        check(|writer| writer.fixed32(16, 1), &[0x85, 0x01, 1, 0, 0, 0]);
        check(|writer| writer.text(2, b"a\xff"), "\x12\x04a\u{fffd}".as_bytes());
        check(|writer| writer.message(3, |inner| inner.varint(1, 150)), &[0x1a, 3, 0x08, 0x96, 0x01]);
    }

    #[test]
    fn long_messages_have_longer_lengths() {
        for (length, prefix) in [(127, vec![0x7f]), (128, vec![0x80, 1]), (20_000, vec![0xa0, 0x9c, 1])] {
            let content = vec![7; length];
            let expected = [vec![0x0a], prefix, content.clone()].concat();
            check(|writer| writer.message(1, |inner| inner.encoded(&content)), &expected);
            let mut out = Vec::new();
            write_prefix(&mut out, 1, length);
            assert_eq!([out, content].concat(), expected);
        }
    }
}
