//! Message types with a special JSON form. A value that has none, such as a time after the year 9999, becomes
//! an object of its fields, and an `Any` of an unknown type its encoded bytes: a partial response is better
//! than an error.

use std::io::{self, Write};
use std::ops::RangeInclusive;

use prost_reflect::{Kind, prost_types};

use super::parts::{FieldRun, WireSpan, WireValue, malformed, runs};
use super::scalar::text;
use super::types::{MessageField, MessageType};
use super::{JsonPrinter, Shape};
use crate::parser::{FreeFormType, WellKnownType};

/// From the year 1 to the year 9999.
const TIMESTAMP_SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// About 10 000 years, the bound of `google.protobuf.Duration`.
const DURATION_SECONDS_MAX: u64 = 315_576_000_000;
const NANOS_MAX: i32 = 999_999_999;

impl JsonPrinter<'_> {
    /// Writes the special form of a message; returns false if there is none.
    pub(super) fn special(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        let Some(special) = of.special else { return Ok(false) };
        match special {
            WellKnownType::Any => self.any(of, runs),
            WellKnownType::Timestamp => self.timestamp(of, runs),
            WellKnownType::Duration => self.duration(of, runs),
            WellKnownType::FieldMask => self.field_mask(of, runs),
            WellKnownType::Wrapper => self.only(of, runs, Shape::One),
            WellKnownType::Free(FreeFormType::Struct) => self.only(of, runs, Shape::Map),
            WellKnownType::Free(FreeFormType::List) => self.only(of, runs, Shape::List { is_packed: false }),
            WellKnownType::Free(FreeFormType::Value) => self.value(of, runs),
        }
    }

    /// Writes the value of the only field.
    fn only(&mut self, of: &MessageType, runs: &[FieldRun], shape: Shape) -> io::Result<bool> {
        match &of.fields[..] {
            [field] if field.wire_field.form == shape => self.content(field, runs).map(|()| true),
            _ => Ok(false),
        }
    }

    fn value(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        let Some(field) = runs.last().and_then(|run| of.fields.get(run.field as usize)) else {
            return self.out.write_all(b"null").map(|()| true);
        };
        // JSON has no infinities and no NaN: such a value prints as an ordinary message.
        let is_number = matches!(field.wire_field.kind, Kind::Double);
        if is_number
            && !matches!(self.last(runs)?, Some(WireValue::Fixed64(bits)) if f64::from_bits(bits).is_finite())
        {
            return Ok(false);
        }
        self.content(field, runs).map(|()| true)
    }

    fn timestamp(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        let Some((seconds, nanos)) = self.seconds_and_nanos(of, runs)? else { return Ok(false) };
        if !TIMESTAMP_SECONDS.contains(&seconds) || !(0..=NANOS_MAX).contains(&nanos) {
            return Ok(false);
        }
        write!(self.out, "\"{}\"", prost_types::Timestamp { seconds, nanos }).map(|()| true)
    }

    fn duration(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        let Some((seconds, nanos)) = self.seconds_and_nanos(of, runs)? else { return Ok(false) };
        // Seconds and nanoseconds must have the same sign (`google.protobuf.Duration`).
        let is_in_range = seconds.unsigned_abs() <= DURATION_SECONDS_MAX
            && (-NANOS_MAX..=NANOS_MAX).contains(&nanos)
            && seconds.signum() * i64::from(nanos.signum()) >= 0;
        if !is_in_range {
            return Ok(false);
        }
        write!(self.out, "\"{}\"", prost_types::Duration { seconds, nanos }).map(|()| true)
    }

    /// Values of the fields 1 and 2 of a type that has exactly these.
    fn seconds_and_nanos(&self, of: &MessageType, runs: &[FieldRun]) -> io::Result<Option<(i64, i32)>> {
        let Some([seconds, nanos]) = self.pair(of, runs, [&Kind::Int64, &Kind::Int32])? else {
            return Ok(None);
        };
        let number = |value: Option<WireValue>, kind| value.map_or(0, |value| value.integer(kind));
        Ok(Some((number(seconds, &Kind::Int64) as i64, number(nanos, &Kind::Int32) as i32)))
    }

    /// Values of the two fields of a type that has exactly these.
    fn pair(
        &self,
        of: &MessageType,
        runs: &[FieldRun],
        kinds: [&Kind; 2],
    ) -> io::Result<Option<[Option<WireValue>; 2]>> {
        let is = |field: &MessageField, kind: &Kind| {
            field.wire_field.form == Shape::One && field.wire_field.kind == *kind
        };
        match &of.fields[..] {
            [first, second] if is(first, kinds[0]) && is(second, kinds[1]) => {
                let (firsts, seconds) = runs.split_at(runs.partition_point(|run| run.field == 0));
                Ok(Some([self.last(firsts)?, self.last(seconds)?]))
            }
            _ => Ok(None),
        }
    }

    fn field_mask(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        if !matches!(&of.fields[..], [field] if field.wire_field.kind == Kind::String) {
            return Ok(false);
        }
        let paths = self.spans(runs)?;
        let mut joined = String::new();
        for (index, path) in paths.iter().enumerate() {
            if index > 0 {
                joined.push(',');
            }
            if !push_in_camel_case(&mut joined, text(self.bytes, *path)?) {
                self.notes.free(paths);
                return Ok(false);
            }
        }
        self.notes.free(paths);
        self.out.text(&joined).map(|()| true)
    }

    fn any(&mut self, of: &MessageType, runs: &[FieldRun]) -> io::Result<bool> {
        let Some([url, value]) = self.pair(of, runs, [&Kind::String, &Kind::Bytes])? else {
            return Ok(false);
        };
        let span = |value: Option<WireValue>| value.map_or(WireSpan::EMPTY, WireValue::span);
        let (url, value) = (text(self.bytes, span(url))?, span(value));
        if url.is_empty() && value.is_empty() {
            return self.out.write_all(b"{}").map(|()| true);
        }
        self.out.write_all(b"{\"@type\":")?;
        self.out.text(url)?;
        // Restored for a malformed value, at which `typed` may return from any depth.
        let (written, depth, left) = (self.out.len(), self.depth, self.notes.bytes_left);
        match self.typed(url, value) {
            Ok(()) => {}
            // Only malformed values fall back to bytes; a bound that was exceeded still is.
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            Err(_) => {
                self.out.cut(written)?;
                (self.depth, self.notes.bytes_left) = (depth, left);
                self.out.write_all(b",\"value\":")?;
                self.out.base64(value.of(self.bytes))?;
            }
        }
        self.out.write_all(b"}").map(|()| true)
    }

    /// Writes the message in an `Any` after its type.
    fn typed(&mut self, url: &str, value: WireSpan) -> io::Result<()> {
        // The type name follows the last slash of the URL.
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let of = self.types.named(name).ok_or_else(|| malformed("unknown type"))?;
        // A type with a special JSON form is nested under `value`.
        if of.special.is_some() || name == "google.protobuf.Empty" {
            self.out.write_all(b",\"value\":")?;
            return self.message(of, &[value]);
        }
        let runs = runs(self.bytes, &[value], of, &mut self.notes)?;
        self.members(of, &runs, false)?;
        self.notes.free(runs);
        Ok(())
    }
}

/// Appends a path in lowerCamelCase. Returns false for a path that could not be converted back.
fn push_in_camel_case(to: &mut String, path: &str) -> bool {
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        let converted = match letter {
            '_' => letters.next().filter(char::is_ascii_lowercase).map(|letter| letter.to_ascii_uppercase()),
            'A'..='Z' => None,
            other => Some(other),
        };
        let Some(converted) = converted else { return false };
        to.push(converted);
    }
    true
}
