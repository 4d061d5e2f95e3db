//! Translates a protobuf message into JSON by the proto3 mapping. JSON is written while the message is
//! parsed, without a tree in between.
//!
//! Memory consists of the JSON, which has a bound, and of notes about runs of fields and map entries that are
//! out of order. A message with many of them needs many times its length in notes, so the notes have a bound
//! too: four times that of the JSON. Members of an object are sorted by field number, entries of a map by
//! key.

mod notes;
mod parts;
mod scalar;
mod special;
mod types;

use std::io::{self, Write};

use prost_reflect::{Kind, MessageDescriptor};

use self::notes::NoteBudget;
pub use self::parts::malformed;
use self::parts::{FieldRun, WireReader, WireSpan, WireValue, runs};
pub use self::scalar::JsonSink;
pub use self::types::MessageTypeCache;
use self::types::{MessageField, MessageType};
use crate::parser::FieldCardinality as Shape;

/// Deepest nesting of messages. Protobuf parsers have lower limits for one message, but an `Any` is parsed
/// separately and may contain another.
const DEPTH_MAX: usize = 256;

/// Writes the JSON of a message of type `of`. A malformed message is an error of kind `InvalidData`; part of
/// the JSON may be in `out` then.
pub fn write_json(
    out: &mut JsonSink,
    types: &MessageTypeCache,
    of: &MessageDescriptor,
    bytes: &[u8],
) -> io::Result<()> {
    let notes = NoteBudget::new(out.bytes_max);
    JsonPrinter { bytes, types, notes, out, depth: 0 }
        .message(types.get(of), &[WireSpan::new(0, bytes.len())])
}

/// The form of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonForm {
    /// The form of integers of 64 bits.
    pub large_integers: LargeIntegers,
    /// Whether enums are numbers and not names.
    pub enum_numbers: bool,
    /// Whether absent fields without presence are printed with their default.
    pub defaults: bool,
}

/// The form of integers of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeIntegers {
    /// Numbers.
    Numbers,
    /// Strings such as `"#123"`.
    Decimal,
    /// Strings such as `"#0x7b"`.
    Hexadecimal,
}

struct JsonPrinter<'a> {
    bytes: &'a [u8],
    types: &'a MessageTypeCache,
    notes: NoteBudget,
    out: &'a mut JsonSink,
    depth: usize,
}

/// An entry of a map, as a note.
struct PrintedMapEntry {
    /// The bits of a numeric key, or the packed span of a string key.
    key: u64,
    whole: WireSpan,
}

impl JsonPrinter<'_> {
    fn message(&mut self, of: &MessageType, parts: &[WireSpan]) -> io::Result<()> {
        if self.depth == DEPTH_MAX {
            let problem = format!("messages are nested more than {DEPTH_MAX} levels deep");
            return Err(io::Error::other(problem));
        }
        self.depth += 1;
        let runs = runs(self.bytes, parts, of, &mut self.notes)?;
        if !self.special(of, &runs)? {
            self.out.write_all(b"{")?;
            self.members(of, &runs, true)?;
            self.out.write_all(b"}")?;
        }
        self.notes.free(runs);
        self.depth -= 1;
        Ok(())
    }

    fn members(&mut self, of: &MessageType, runs: &[FieldRun], mut is_first: bool) -> io::Result<()> {
        let mut rest = runs;
        let mut defaulted = if self.out.form.defaults { &of.defaulted[..] } else { &[] };
        // Skips absent fields in bulk: a type may have thousands of them.
        while let Some(index) =
            rest.first().map(|run| run.field).into_iter().chain(defaulted.first().copied()).min()
        {
            let field = &of.fields[index as usize];
            let own;
            (own, rest) = rest.split_at(rest.iter().take_while(|run| run.field == index).count());
            let is_defaulted = defaulted.first() == Some(&index);
            defaulted = &defaulted[usize::from(is_defaulted)..];
            if !is_defaulted && !self.is_present(field, own)? {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.out.write_all(b",")?;
            }
            self.out.write_all(&field.key)?;
            self.content(field, own)?;
        }
        Ok(())
    }

    /// Whether a field is present, and not at its default if the type makes no difference between the two.
    fn is_present(&self, field: &MessageField, runs: &[FieldRun]) -> io::Result<bool> {
        if runs.is_empty() {
            return Ok(false);
        }
        match field.wire_field.form {
            Shape::One if field.has_presence => Ok(true),
            Shape::One => Ok(!self.last(runs)?.is_none_or(|value| value.is_default(&field.wire_field.kind))),
            Shape::List { .. } if field.may_be_packed() => {
                let mut filled = false;
                let is_filled = |value| !matches!(value, WireValue::Sized(packed) if packed.is_empty());
                self.each(runs, |value| filled |= is_filled(value))?;
                Ok(filled)
            }
            Shape::List { .. } | Shape::Map => Ok(true),
        }
    }

    /// Writes the value of a field, or its default if the field is absent.
    fn content(&mut self, field: &MessageField, runs: &[FieldRun]) -> io::Result<()> {
        match field.wire_field.form {
            Shape::One => self.one(field, runs),
            Shape::List { .. } => self.list(field, runs),
            Shape::Map => self.map(field, runs),
        }
    }

    fn one(&mut self, field: &MessageField, runs: &[FieldRun]) -> io::Result<()> {
        let Some(inner) = self.types.inner(field) else {
            let kind = &field.wire_field.kind;
            let value = self.last(runs)?.unwrap_or_else(|| WireValue::default_of(kind));
            return self.out.scalar(self.bytes, kind, value);
        };
        let parts = self.spans(runs)?;
        self.message(inner, &parts)?;
        self.notes.free(parts);
        Ok(())
    }

    fn list(&mut self, field: &MessageField, runs: &[FieldRun]) -> io::Result<()> {
        let kind = &field.wire_field.kind;
        let inner = self.types.inner(field);
        let mut is_first = true;
        self.out.write_all(b"[")?;
        for run in runs {
            let mut reader = WireReader::of(self.bytes, run);
            while let Some(found) = reader.next()? {
                match (found.value, inner) {
                    (value, Some(inner)) => {
                        self.out.comma(&mut is_first)?;
                        self.message(inner, &[value.span()])?;
                    }
                    (WireValue::Sized(packed), None) if field.may_be_packed() => {
                        let mut numbers = WireReader::new(self.bytes, packed);
                        while let Some(value) = numbers.next_packed(kind.wire_type())? {
                            self.out.comma(&mut is_first)?;
                            self.out.scalar(self.bytes, kind, value)?;
                        }
                    }
                    (value, None) => {
                        self.out.comma(&mut is_first)?;
                        self.out.scalar(self.bytes, kind, value)?;
                    }
                }
            }
        }
        self.out.write_all(b"]")
    }

    fn map(&mut self, field: &MessageField, runs: &[FieldRun]) -> io::Result<()> {
        let of = self.types.inner(field).ok_or_else(|| malformed("no map has such a type"))?;
        let [key, value] = &of.fields[..] else { return Err(malformed("no map has such a type")) };
        let entries = self.entries(of, &key.wire_field.kind, runs)?;
        let mut is_first = true;
        self.out.write_all(b"{")?;
        for entry in &entries {
            self.out.comma(&mut is_first)?;
            self.out.map_key(self.bytes, &key.wire_field.kind, entry.key)?;
            let runs = parts::runs(self.bytes, &[entry.whole], of, &mut self.notes)?;
            // Runs are sorted by field, and the key is the first field.
            let value_start = runs.partition_point(|run| run.field == 0);
            self.content(value, &runs[value_start..])?;
            self.notes.free(runs);
        }
        self.notes.free(entries);
        self.out.write_all(b"}")
    }

    /// Entries of a map sorted by key. The last entry of a key wins, as in every protobuf parser.
    fn entries(
        &mut self,
        of: &MessageType,
        key: &Kind,
        runs: &[FieldRun],
    ) -> io::Result<Vec<PrintedMapEntry>> {
        let bytes = self.bytes;
        let text = |key: u64| WireSpan::unpacked(key).of(bytes);
        let is_text = matches!(key, Kind::String);
        let is_same = |a: &PrintedMapEntry, b: &PrintedMapEntry| {
            a.key == b.key || is_text && text(a.key) == text(b.key)
        };
        let mut entries: Vec<PrintedMapEntry> = Vec::new();
        for run in runs {
            let mut reader = WireReader::of(bytes, run);
            while let Some(found) = reader.next()? {
                let whole = found.value.span();
                let own = parts::runs(bytes, &[whole], of, &mut self.notes)?;
                let keys = &own[..own.partition_point(|run| run.field == 0)];
                let value = self.last(keys)?;
                self.notes.free(own);
                let key = if is_text {
                    value.map_or(WireSpan::EMPTY, WireValue::span).packed()
                } else {
                    value.unwrap_or(WireValue::Varint(0)).integer(key) as u64
                };
                let entry = PrintedMapEntry { key, whole };
                match entries.last_mut() {
                    // Adjacent entries with one key are merged at once, which bounds the notes.
                    Some(last) if is_same(last, &entry) => *last = entry,
                    _ => self.notes.push(&mut entries, entry)?,
                }
            }
        }
        // The position breaks ties, so that entries with one key stay in order without the memory of a stable
        // sort.
        if is_text {
            let order = |entry: &PrintedMapEntry| (text(entry.key), entry.whole.start());
            entries.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        } else if matches!(key, Kind::Uint64 | Kind::Fixed64) {
            entries.sort_unstable_by_key(|entry| (entry.key, entry.whole.start()));
        } else {
            // The bits of signed keys are sign-extended.
            entries.sort_unstable_by_key(|entry| (entry.key as i64, entry.whole.start()));
        }
        entries.dedup_by(|later, kept| {
            let is_again = is_same(later, kept);
            if is_again {
                kept.whole = later.whole;
            }
            is_again
        });
        Ok(entries)
    }

    /// Spans of all values of a field.
    fn spans(&mut self, runs: &[FieldRun]) -> io::Result<Vec<WireSpan>> {
        let mut spans = Vec::new();
        for run in runs {
            let mut reader = WireReader::of(self.bytes, run);
            while let Some(found) = reader.next()? {
                self.notes.push(&mut spans, found.value.span())?;
            }
        }
        Ok(spans)
    }

    /// The last value of a field; it wins over earlier ones.
    fn last(&self, runs: &[FieldRun]) -> io::Result<Option<WireValue>> {
        let mut last = None;
        self.each(runs, |value| last = Some(value))?;
        Ok(last)
    }

    fn each(&self, runs: &[FieldRun], mut take: impl FnMut(WireValue)) -> io::Result<()> {
        for run in runs {
            let mut reader = WireReader::of(self.bytes, run);
            while let Some(found) = reader.next()? {
                take(found.value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
