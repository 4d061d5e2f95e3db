//! Where the fields of a message stand in its bytes: nothing is copied, and what follows each other is noted once.
//!
//! Knows how protobuf writes, not what becomes of values.

use std::io;

use prost_reflect::prost::DecodeError;
use prost_reflect::prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::notes::Notes;
use super::types::Type;

/// A stretch of the bytes; a frame of gRPC tells its length in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Sized(Span),
    Group(Span),
}

/// Fields of one number that follow each other.
#[derive(Debug)]
pub(super) struct Run {
    /// Which of its type's.
    pub(super) field: u32,
    span: Span,
}

/// A field with its value, as it was found.
pub(super) struct Found {
    number: u32,
    start: usize,
    pub(super) value: Wire,
}

/// What no message of its type is.
pub(in super::super) fn malformed(problem: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_string())
}

impl Span {
    pub(super) const EMPTY: Span = Span { start: 0, end: 0 };

    pub(super) fn new(start: usize, end: usize) -> Span {
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: place(start), end: place(end) }
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

    /// As a number that stands for it.
    pub(super) fn packed(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }

    pub(super) fn unpacked(number: u64) -> Span {
        Span { start: (number >> 32) as u32, end: number as u32 }
    }
}

impl Wire {
    fn wire_type(self) -> WireType {
        match self {
            Wire::Varint(_) => WireType::Varint,
            Wire::Fixed64(_) => WireType::SixtyFourBit,
            Wire::Fixed32(_) => WireType::ThirtyTwoBit,
            Wire::Sized(_) => WireType::LengthDelimited,
            Wire::Group(_) => WireType::StartGroup,
        }
    }

    /// The stretch of a text, of bytes or of a message.
    pub(super) fn span(self) -> Span {
        match self {
            Wire::Sized(span) | Wire::Group(span) => span,
            Wire::Varint(_) | Wire::Fixed64(_) | Wire::Fixed32(_) => Span::EMPTY,
        }
    }
}

/// Reads a stretch of the bytes.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], span: Span) -> Reader<'a> {
        Reader { bytes, at: span.start as usize, end: (span.end as usize).min(bytes.len()) }
    }

    pub(super) fn of(bytes: &'a [u8], run: &Run) -> Reader<'a> {
        Reader::new(bytes, run.span)
    }

    /// What `read` takes of the rest.
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

    /// The next field; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Found>> {
        if self.at == self.end {
            return Ok(None);
        }
        let start = self.at;
        let (number, wire) = self.take(decode_key)?;
        let value = self.value(number, wire)?;
        Ok(Some(Found { number, start, value }))
    }

    /// The next of numbers that stand behind one key; `None` at the end.
    pub(super) fn next_packed(&mut self, wire: WireType) -> io::Result<Option<Wire>> {
        if self.at == self.end { Ok(None) } else { self.value(0, wire).map(Some) }
    }

    fn value(&mut self, number: u32, wire: WireType) -> io::Result<Wire> {
        Ok(match wire {
            WireType::Varint => Wire::Varint(self.take(decode_varint)?),
            WireType::SixtyFourBit => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            WireType::ThirtyTwoBit => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            WireType::LengthDelimited => {
                let length = self.take(decode_varint)?;
                let left = self.end - self.at;
                let length = usize::try_from(length).ok().filter(|length| *length <= left);
                let start = self.at;
                self.at += length.ok_or_else(|| malformed("a field is longer than what holds it"))?;
                Wire::Sized(Span::new(start, self.at))
            }
            WireType::StartGroup => Wire::Group(self.group(number)?),
            WireType::EndGroup => return Err(malformed("a group ends that did not begin")),
        })
    }

    fn group(&mut self, number: u32) -> io::Result<Span> {
        let start = self.at;
        loop {
            let before = self.at;
            match self.take(decode_key)? {
                (ended, WireType::EndGroup) if ended == number => return Ok(Span::new(start, before)),
                (other, wire) => {
                    self.take(|rest| skip_field(wire, other, rest, DecodeContext::default()))?;
                }
            }
        }
    }
}

/// The fields of a message in the order of its type; parts of a message that came more than once are one. Of
/// fields that exclude each other only the last is there. What is written as no field of its number may be is no field
/// of the type, as in other readers.
pub(super) fn runs(bytes: &[u8], parts: &[Span], of: &Type, notes: &mut Notes) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    // By oneof: the field that is set, and since where.
    let mut chosen: Vec<Option<(u32, u32)>> = Vec::new();
    for part in parts {
        let mut reader = Reader::new(bytes, *part);
        while let Some(found) = reader.next()? {
            let Some(index) = of.index(found.number) else { continue };
            let field = &of.fields[index as usize];
            if !field.takes(found.value.wire_type()) {
                continue;
            }
            let span = Span::new(found.start, reader.at);
            if let Some(oneof) = field.oneof {
                chosen.resize(of.oneofs, None);
                if chosen[oneof].is_none_or(|(field, _)| field != index) {
                    chosen[oneof] = Some((index, span.start));
                }
            }
            match runs.last_mut() {
                Some(last) if last.field == index && last.span.end == span.start => last.span.end = span.end,
                _ => notes.push(&mut runs, Run { field: index, span })?,
            }
        }
    }
    let is_chosen = |run: &Run| {
        let oneof = of.fields[run.field as usize].oneof;
        let beside = oneof.and_then(|oneof| chosen[oneof]);
        beside.is_none_or(|(field, since)| run.field == field && run.span.start >= since)
    };
    if !chosen.is_empty() {
        runs.retain(is_chosen);
    }
    if !runs.is_sorted_by_key(|run| run.field) {
        runs.sort_unstable_by_key(|run| (run.field, run.span.start));
    }
    Ok(runs)
}
