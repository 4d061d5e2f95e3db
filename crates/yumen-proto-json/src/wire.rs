//! Encoder of one protobuf message.

use std::fmt;

use prost_reflect::prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Deepest nesting of messages: the limit of the protobuf parsers for C++, Java, Python and Rust.
pub const DEPTH_MAX: usize = 100;

/// A message is nested deeper than [`DEPTH_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NestingTooDeep;

impl fmt::Display for NestingTooDeep {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "messages are nested more than {DEPTH_MAX} levels deep")
    }
}

/// Encoder of one message. The length of a nested message comes before it on the wire but is only known after
/// it. Lengths are stored separately and inserted at the end, so that no byte moves twice.
#[derive(Default)]
pub struct MessageWriter {
    bytes: Vec<u8>,
    /// Pending lengths in the order of their positions.
    lengths: Vec<PendingLength>,
    /// Encoded size of the known lengths.
    lengths_bytes: usize,
    depth: usize,
}

/// A length and its position. A message beyond 32 bits is refused at the end.
struct PendingLength {
    at: u32,
    bytes: u32,
}

/// A nested field that is open; [`MessageWriter::end`] closes it.
#[must_use]
pub struct OpenField(OpenRegion);

enum OpenRegion {
    /// Length-delimited.
    Sized { length: usize, lengths_bytes: usize, is_message: bool },
    /// A proto2 group, closed by an end tag.
    Group(u32),
}

impl MessageWriter {
    pub(crate) fn key(&mut self, number: u32, wire: WireType) {
        encode_key(number, wire, &mut self.bytes);
    }

    pub(crate) fn varint(&mut self, value: u64) {
        encode_varint(value, &mut self.bytes);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a field of bytes or text.
    pub(crate) fn bytes(&mut self, number: u32, value: &[u8]) {
        self.key(number, WireType::LengthDelimited);
        self.varint(value.len() as u64);
        self.raw(value);
    }

    /// Opens a nested message, or fails at [`DEPTH_MAX`].
    pub(crate) fn message(&mut self, number: u32, is_group: bool) -> Result<OpenField, NestingTooDeep> {
        if self.depth == DEPTH_MAX {
            return Err(NestingTooDeep);
        }
        self.depth += 1;
        if is_group {
            self.key(number, WireType::StartGroup);
            return Ok(OpenField(OpenRegion::Group(number)));
        }
        Ok(self.sized(number, true))
    }

    /// Opens a packed field.
    pub(crate) fn packed(&mut self, number: u32) -> OpenField {
        self.sized(number, false)
    }

    fn sized(&mut self, number: u32, is_message: bool) -> OpenField {
        self.key(number, WireType::LengthDelimited);
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.lengths.push(PendingLength { at, bytes: 0 });
        OpenField(OpenRegion::Sized {
            length: self.lengths.len() - 1,
            lengths_bytes: self.lengths_bytes,
            is_message,
        })
    }

    /// Closes the field that was opened last.
    pub fn end(&mut self, open: OpenField) {
        match open.0 {
            OpenRegion::Group(number) => {
                self.key(number, WireType::EndGroup);
                self.depth -= 1;
            }
            OpenRegion::Sized { length, lengths_bytes, is_message } => {
                // The lengths inside are not part of `bytes` yet.
                let inside = self.lengths_bytes - lengths_bytes;
                let length = &mut self.lengths[length];
                let bytes = self.bytes.len() - length.at as usize + inside;
                length.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.lengths_bytes += encoded_len_varint(length.bytes.into());
                self.depth -= usize::from(is_message);
            }
        }
    }

    /// The message in a gRPC frame; fails beyond 4 GiB.
    pub fn framed(self) -> Result<Vec<u8>, String> {
        let bytes = self.bytes.len() + self.lengths_bytes;
        let frame_bytes = u32::try_from(bytes).map_err(|_| format!("it is {bytes} bytes long"))?;
        let mut frame = Vec::with_capacity(5 + bytes);
        // The message is not compressed (gRPC over HTTP/2).
        frame.push(0);
        frame.extend_from_slice(&frame_bytes.to_be_bytes());
        let mut from = 0;
        for length in &self.lengths {
            let at = length.at as usize;
            frame.extend_from_slice(&self.bytes[from..at]);
            encode_varint(length.bytes.into(), &mut frame);
            from = at;
        }
        frame.extend_from_slice(&self.bytes[from..]);
        Ok(frame)
    }
}
