//! From a message to JSON, by the rules of the proto3 mapping: what stands in the bytes is written at once, and no
//! tree of values stands between.
//!
//! Memory is what the JSON takes, which has a bound, and notes of where fields stand that do not follow each other
//! in the order of their type: at most six times the message. The members of an object come by number, the entries
//! of a map by key.

mod parts;
mod scalar;
mod special;
mod types;

use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

use prost_reflect::{DescriptorPool, Kind};

pub(super) use self::parts::malformed;
use self::parts::{Reader, Run, Span, Wire, runs};
use self::scalar::Sink;
pub(super) use self::types::Types;
use self::types::{Field, Type};
use super::Form;
use super::json::Form as Shape;

/// Messages may stand in each other so deep. Those of one answer in readers of protobuf have fewer; but an `Any` is
/// a message that is read for itself, and may hold another.
const DEPTH_MAX: usize = 256;

/// The JSON of a message, of at most `bytes_max` bytes; `types` are those of its type, which is of the pool. What is
/// no such message is an error of kind `InvalidData`.
pub(super) fn to_json(
    form: Form,
    (types, pool): (&Types, &DescriptorPool),
    bytes: &[u8],
    bytes_max: usize,
) -> io::Result<Vec<u8>> {
    let out = Sink::new(bytes_max, form);
    let mut printer = Printer { bytes, pool, form, others: HashMap::new(), out, depth: 0 };
    printer.message(types, 0, &[Span::new(0, bytes.len())])?;
    Ok(printer.out.into_bytes())
}

struct Printer<'a> {
    bytes: &'a [u8],
    pool: &'a DescriptorPool,
    form: Form,
    /// Of messages in an `Any`, by their type.
    others: HashMap<String, Rc<Types>>,
    out: Sink,
    depth: usize,
}

/// An entry of a map.
struct Entry {
    /// The bits of a number, or where the text stands.
    key: u64,
    whole: Span,
}

impl Printer<'_> {
    fn message(&mut self, types: &Types, place: usize, parts: &[Span]) -> io::Result<()> {
        if self.depth == DEPTH_MAX {
            let problem = format!("its messages stand in each other more than {DEPTH_MAX} deep");
            return Err(io::Error::other(problem));
        }
        let of = types.get(place).ok_or_else(|| malformed("its type is not known"))?;
        self.depth += 1;
        let runs = runs(self.bytes, parts, of)?;
        if !self.special(types, of, &runs)? {
            self.out.write_all(b"{")?;
            self.members(types, of, &runs, true)?;
            self.out.write_all(b"}")?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn members(&mut self, types: &Types, of: &Type, runs: &[Run], mut is_first: bool) -> io::Result<()> {
        let mut rest = runs;
        for (field, index) in of.fields.iter().zip(0..) {
            let own;
            (own, rest) = rest.split_at(rest.iter().take_while(|run| run.field == index).count());
            let is_told = self.is_there(field, own)? || self.form.defaults && !field.has_presence;
            if !is_told {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.out.write_all(b",")?;
            }
            self.out.write_all(&field.key)?;
            self.content(types, field, own)?;
        }
        Ok(())
    }

    /// Whether a field is there and, where that is all the same, other than its default.
    fn is_there(&self, field: &Field, runs: &[Run]) -> io::Result<bool> {
        if runs.is_empty() {
            return Ok(false);
        }
        match field.place.form {
            Shape::One if field.has_presence => Ok(true),
            Shape::One => Ok(!self.last(runs)?.is_none_or(|value| value.is_default(&field.place.kind))),
            Shape::List { .. } if field.may_be_packed() => {
                let mut filled = false;
                let is_filled = |value| !matches!(value, Wire::Sized(packed) if packed.is_empty());
                self.each(runs, |value| filled |= is_filled(value))?;
                Ok(filled)
            }
            Shape::List { .. } | Shape::Map => Ok(true),
        }
    }

    /// All values of a field, the default where it has one and is not there.
    fn content(&mut self, types: &Types, field: &Field, runs: &[Run]) -> io::Result<()> {
        match field.place.form {
            Shape::One => self.one(types, field, runs),
            Shape::List { .. } => self.list(types, field, runs),
            Shape::Map => self.map(types, field, runs),
        }
    }

    fn one(&mut self, types: &Types, field: &Field, runs: &[Run]) -> io::Result<()> {
        let Some(place) = field.inner else {
            let kind = &field.place.kind;
            let value = self.last(runs)?.unwrap_or_else(|| Wire::default_of(kind));
            return self.out.scalar(self.bytes, kind, value);
        };
        let mut parts = Vec::new();
        self.each(runs, |value| parts.push(value.span()))?;
        self.message(types, place, &parts)
    }

    fn list(&mut self, types: &Types, field: &Field, runs: &[Run]) -> io::Result<()> {
        let kind = &field.place.kind;
        let mut is_first = true;
        self.out.write_all(b"[")?;
        for run in runs {
            let mut reader = Reader::of(self.bytes, run);
            while let Some(found) = reader.next()? {
                match (found.value, field.inner) {
                    (value, Some(place)) => {
                        self.out.comma(&mut is_first)?;
                        self.message(types, place, &[value.span()])?;
                    }
                    (Wire::Sized(packed), None) if field.may_be_packed() => {
                        let mut numbers = Reader::new(self.bytes, packed);
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

    fn map(&mut self, types: &Types, field: &Field, runs: &[Run]) -> io::Result<()> {
        let of = field.inner.and_then(|place| types.get(place));
        let of = of.ok_or_else(|| malformed("no map has such a type"))?;
        let [key, value] = &of.fields[..] else { return Err(malformed("no map has such a type")) };
        let entries = self.entries(of, &key.place.kind, runs)?;
        let mut is_first = true;
        self.out.write_all(b"{")?;
        for entry in &entries {
            self.out.comma(&mut is_first)?;
            self.out.map_key(self.bytes, &key.place.kind, entry.key)?;
            let runs = parts::runs(self.bytes, &[entry.whole], of)?;
            let behind_keys = runs.partition_point(|run| run.field == 0);
            self.content(types, value, &runs[behind_keys..])?;
        }
        self.out.write_all(b"}")
    }

    /// The entries of a map by key, the last of each.
    fn entries(&self, of: &Type, key: &Kind, runs: &[Run]) -> io::Result<Vec<Entry>> {
        let bytes = self.bytes;
        let text = |key: u64| Span::unpacked(key).of(bytes);
        let is_text = matches!(key, Kind::String);
        let is_same = |a: &Entry, b: &Entry| a.key == b.key || is_text && text(a.key) == text(b.key);
        let mut entries: Vec<Entry> = Vec::new();
        for run in runs {
            let mut reader = Reader::of(bytes, run);
            while let Some(found) = reader.next()? {
                let whole = found.value.span();
                let own = parts::runs(bytes, &[whole], of)?;
                let keys = &own[..own.partition_point(|run| run.field == 0)];
                let told = self.last(keys)?;
                let key = if is_text {
                    told.map_or(Span::EMPTY, Wire::span).packed()
                } else {
                    told.unwrap_or(Wire::Varint(0)).integer(key) as u64
                };
                let entry = Entry { key, whole };
                match entries.last_mut() {
                    // Those of one key do not pile up.
                    Some(last) if is_same(last, &entry) => *last = entry,
                    _ => entries.push(entry),
                }
            }
        }
        if is_text {
            entries.sort_by(|a, b| text(a.key).cmp(text(b.key)));
        } else {
            entries.sort_by_key(|entry| entry.key as i64);
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

    /// The last value of a field.
    fn last(&self, runs: &[Run]) -> io::Result<Option<Wire>> {
        let mut last = None;
        self.each(runs, |value| last = Some(value))?;
        Ok(last)
    }

    fn each(&self, runs: &[Run], mut take: impl FnMut(Wire)) -> io::Result<()> {
        for run in runs {
            let mut reader = Reader::of(self.bytes, run);
            while let Some(found) = reader.next()? {
                take(found.value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
