//! Positions of the fields of a message in its bytes. Nothing is copied, and adjacent fields share one note.

use std::io;

use prost_reflect::prost::DecodeError;
use prost_reflect::prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::notes::NoteBudget;
use super::types::MessageType;

/// A range of the bytes. 32 bits suffice, because the length in a gRPC frame has 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireSpan {
    start: u32,
    end: u32,
}

/// A value on the wire; strings, bytes, messages and groups by their span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Sized(WireSpan),
    Group(WireSpan),
}

/// Adjacent fields with one number.
#[derive(Debug)]
pub(super) struct FieldRun {
    /// Index of the field in its message type.
    pub(super) field: u32,
    span: WireSpan,
}

/// A parsed field with its position.
pub(super) struct ParsedField {
    number: u32,
    start: usize,
    pub(super) value: WireValue,
}

/// An error of kind `InvalidData`: the bytes are no message of the type.
pub fn malformed(problem: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_string())
}

impl WireSpan {
    pub(super) const EMPTY: WireSpan = WireSpan { start: 0, end: 0 };

    pub(super) fn new(start: usize, end: usize) -> WireSpan {
        let offset = |at| u32::try_from(at).unwrap_or(u32::MAX);
        WireSpan { start: offset(start), end: offset(end) }
    }

    pub(super) fn start(self) -> u32 {
        self.start
    }

    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Both ends in one number, for [`PrintedMapEntry::key`](super::PrintedMapEntry).
    pub(super) fn packed(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }

    pub(super) fn unpacked(number: u64) -> WireSpan {
        WireSpan { start: (number >> 32) as u32, end: number as u32 }
    }
}

impl WireValue {
    fn wire_type(self) -> WireType {
        match self {
            WireValue::Varint(_) => WireType::Varint,
            WireValue::Fixed64(_) => WireType::SixtyFourBit,
            WireValue::Fixed32(_) => WireType::ThirtyTwoBit,
            WireValue::Sized(_) => WireType::LengthDelimited,
            WireValue::Group(_) => WireType::StartGroup,
        }
    }

    /// Span of a string, bytes or message; empty for a number.
    pub(super) fn span(self) -> WireSpan {
        match self {
            WireValue::Sized(span) | WireValue::Group(span) => span,
            WireValue::Varint(_) | WireValue::Fixed64(_) | WireValue::Fixed32(_) => WireSpan::EMPTY,
        }
    }
}

/// Parses a span of the bytes.
pub(super) struct WireReader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> WireReader<'a> {
    pub(super) fn new(bytes: &'a [u8], span: WireSpan) -> WireReader<'a> {
        WireReader { bytes, at: span.start as usize, end: (span.end as usize).min(bytes.len()) }
    }

    pub(super) fn of(bytes: &'a [u8], run: &FieldRun) -> WireReader<'a> {
        WireReader::new(bytes, run.span)
    }

    /// Runs `read` on the rest and advances by the bytes that it consumed.
    fn take<T>(&mut self, read: impl FnOnce(&mut &'a [u8]) -> Result<T, DecodeError>) -> io::Result<T> {
        let mut rest = &self.bytes[self.at..self.end];
        let taken = read(&mut rest).map_err(malformed)?;
        self.at = self.end - rest.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (taken, _) = self.bytes[self.at..self.end]
            .split_first_chunk::<N>()
            .ok_or_else(|| malformed("a value breaks off"))?;
        self.at += N;
        Ok(*taken)
    }

    /// Returns the next field; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<ParsedField>> {
        if self.at == self.end {
            return Ok(None);
        }
        let start = self.at;
        let (number, wire) = self.take(decode_key)?;
        let value = self.value(number, wire)?;
        Ok(Some(ParsedField { number, start, value }))
    }

    /// The next value of a packed field; `None` at the end.
    pub(super) fn next_packed(&mut self, wire: WireType) -> io::Result<Option<WireValue>> {
        if self.at == self.end { Ok(None) } else { self.value(0, wire).map(Some) }
    }

    fn value(&mut self, number: u32, wire: WireType) -> io::Result<WireValue> {
        Ok(match wire {
            WireType::Varint => WireValue::Varint(self.take(decode_varint)?),
            WireType::SixtyFourBit => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
            WireType::ThirtyTwoBit => WireValue::Fixed32(u32::from_le_bytes(self.array()?)),
            WireType::LengthDelimited => {
                let length = self.take(decode_varint)?;
                let left = self.end - self.at;
                let length = usize::try_from(length).ok().filter(|length| *length <= left);
                let start = self.at;
                self.at += length.ok_or_else(|| malformed("a field is longer than its message"))?;
                WireValue::Sized(WireSpan::new(start, self.at))
            }
            WireType::StartGroup => WireValue::Group(self.group(number)?),
            WireType::EndGroup => return Err(malformed("group end without a start")),
        })
    }

    fn group(&mut self, number: u32) -> io::Result<WireSpan> {
        let start = self.at;
        loop {
            let before = self.at;
            match self.take(decode_key)? {
                (ended, WireType::EndGroup) if ended == number => return Ok(WireSpan::new(start, before)),
                (other, wire) => {
                    self.take(|rest| skip_field(wire, other, rest, DecodeContext::default()))?;
                }
            }
        }
    }
}

/// The fields of a message in the order of its type. The spans of a message that is split into several fields
/// are merged. Of a oneof only the last field remains. A field with the wrong wire type is unknown, as in
/// every protobuf parser.
pub(super) fn runs(
    bytes: &[u8],
    parts: &[WireSpan],
    of: &MessageType,
    notes: &mut NoteBudget,
) -> io::Result<Vec<FieldRun>> {
    let mut runs: Vec<FieldRun> = Vec::new();
    // By oneof: the field that is set, and the position since which it is.
    let mut chosen: Vec<Option<(u32, u32)>> = Vec::new();
    for part in parts {
        let mut reader = WireReader::new(bytes, *part);
        while let Some(found) = reader.next()? {
            let Some(index) = of.index(found.number) else { continue };
            let field = &of.fields[index as usize];
            if !field.takes(found.value.wire_type()) {
                continue;
            }
            let span = WireSpan::new(found.start, reader.at);
            if let Some(oneof) = field.oneof {
                chosen.resize(of.oneofs, None);
                if chosen[oneof].is_none_or(|(field, _)| field != index) {
                    chosen[oneof] = Some((index, span.start));
                }
            }
            match runs.last_mut() {
                Some(last) if last.field == index && last.span.end == span.start => last.span.end = span.end,
                _ => notes.push(&mut runs, FieldRun { field: index, span })?,
            }
        }
    }
    let is_chosen = |run: &FieldRun| {
        let oneof = of.fields[run.field as usize].oneof;
        let chosen_member = oneof.and_then(|oneof| chosen[oneof]);
        chosen_member.is_none_or(|(field, since)| run.field == field && run.span.start >= since)
    };
    if !chosen.is_empty() {
        runs.retain(is_chosen);
    }
    // Encoders usually write fields in the order of their numbers.
    if !runs.is_sorted_by_key(|run| run.field) {
        runs.sort_unstable_by_key(|run| (run.field, run.span.start));
    }
    Ok(runs)
}
