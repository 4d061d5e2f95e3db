//! Scalar values as JSON, written up to a bound: numbers, strings, bytes and enum values.

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::Kind;

use super::parts::{WireSpan, WireValue, malformed};
use super::{JsonForm, LargeIntegers};
use crate::parser::NULL;

/// Bound of the discarded output as a multiple of the largest JSON.
const TAKEN_BACK_TIMES_MAX: usize = 3;

/// JSON in memory, up to a limit.
pub struct JsonSink {
    bytes: Vec<u8>,
    pub(super) bytes_max: usize,
    /// Name of the setting of `bytes_max`.
    bound: &'static str,
    bytes_taken_back: usize,
    pub(super) form: JsonForm,
}

impl Write for JsonSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            let (most, bound) = (self.bytes_max, self.bound);
            let problem = format!("its JSON is longer than the {most} bytes of {bound}");
            return Err(io::Error::other(problem));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl JsonSink {
    /// A sink of at most `bytes_max` bytes; errors name the setting `bound` of that limit.
    pub fn new(bytes_max: usize, bound: &'static str, form: JsonForm) -> JsonSink {
        JsonSink { bytes: Vec::new(), bytes_max, bound, bytes_taken_back: 0, form }
    }

    /// Returns the JSON.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes written so far.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back the bytes after `length`. Nested messages may each take back output of the messages inside them, so
    /// the total is bounded.
    pub fn cut(&mut self, length: usize) -> io::Result<()> {
        self.bytes_taken_back += self.bytes.len() - length;
        self.bytes.truncate(length);
        let (most, bound) = (self.bytes_max, self.bound);
        if self.bytes_taken_back > most.saturating_mul(TAKEN_BACK_TIMES_MAX) {
            let problem = format!("too much in it cannot be read for the {most} bytes of {bound}");
            return Err(io::Error::other(problem));
        }
        Ok(())
    }

    /// Writes a comma before all members but the first.
    pub fn comma(&mut self, is_first: &mut bool) -> io::Result<()> {
        if std::mem::take(is_first) { Ok(()) } else { self.write_all(b",") }
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        Ok(serde_json::to_writer(self, text)?)
    }

    pub(super) fn base64(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Encoded in small pieces, so that a value beyond the bound allocates nothing.
        write!(self, "\"{}\"", Base64Display::new(bytes, &STANDARD))
    }

    pub(super) fn scalar(&mut self, bytes: &[u8], kind: &Kind, value: WireValue) -> io::Result<()> {
        match kind {
            Kind::Double => self.double(value.bits()),
            Kind::Float => self.float(value.bits() as u32),
            Kind::Bool => self.write_all(if value.bits() == 0 { b"false" } else { b"true" }),
            Kind::String => self.text(text(bytes, value.span())?),
            Kind::Bytes => self.base64(value.span().of(bytes)),
            Kind::Enum(of) if of.full_name() == NULL => self.write_all(b"null"),
            Kind::Enum(of) => {
                let number = value.integer(kind);
                let named = i32::try_from(number).ok().and_then(|number| of.get_value(number));
                match named {
                    Some(named) if !self.form.enum_numbers => self.text(named.name()),
                    // A number without a name comes from a newer version of the proto.
                    _ => self.integer(number),
                }
            }
            kind => self.integer(value.integer(kind)),
        }
    }

    fn double(&mut self, bits: u64) -> io::Result<()> {
        let value = f64::from_bits(bits);
        if value.is_finite() { Ok(serde_json::to_writer(self, &value)?) } else { self.not_finite(value) }
    }

    fn float(&mut self, bits: u32) -> io::Result<()> {
        let value = f32::from_bits(bits);
        if value.is_finite() {
            Ok(serde_json::to_writer(self, &value)?)
        } else {
            self.not_finite(value.into())
        }
    }

    fn not_finite(&mut self, value: f64) -> io::Result<()> {
        // JSON numbers have no such values, so ProtoJSON writes them as strings.
        self.write_all(match value {
            f64::INFINITY => b"\"Infinity\"",
            f64::NEG_INFINITY => b"\"-Infinity\"",
            _ => b"\"NaN\"",
        })
    }

    /// Writes an integer. One beyond 32 bits takes the configured form, as text that no parser rounds.
    fn integer(&mut self, value: i128) -> io::Result<()> {
        // As in lua-protobuf, integers of up to 32 bits remain numbers.
        let is_large = !(i128::from(i32::MIN)..=i128::from(u32::MAX)).contains(&value);
        let (sign, digits) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
        match self.form.large_integers {
            LargeIntegers::Decimal if is_large => write!(self, "\"#{sign}{digits}\""),
            LargeIntegers::Hexadecimal if is_large => write!(self, "\"#{sign}0x{digits:x}\""),
            _ => self.write_all(itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    /// Writes the key of a map entry from the bits of a number or a packed span.
    pub(super) fn map_key(&mut self, bytes: &[u8], kind: &Kind, key: u64) -> io::Result<()> {
        match kind {
            Kind::String => self.text(text(bytes, WireSpan::unpacked(key))?)?,
            Kind::Bool => self.write_all(if key == 0 { b"\"false\"" } else { b"\"true\"" })?,
            Kind::Uint64 | Kind::Fixed64 => write!(self, "\"{key}\"")?,
            _ => write!(self, "\"{}\"", key as i64)?,
        }
        self.write_all(b":")
    }
}

pub(super) fn text(bytes: &[u8], span: WireSpan) -> io::Result<&str> {
    std::str::from_utf8(span.of(bytes)).map_err(|_| malformed("a text is not in UTF-8"))
}

impl WireValue {
    /// The bits of a number; 0 for other values.
    fn bits(self) -> u64 {
        match self {
            WireValue::Varint(bits) | WireValue::Fixed64(bits) => bits,
            WireValue::Fixed32(bits) => bits.into(),
            WireValue::Sized(_) | WireValue::Group(_) => 0,
        }
    }

    /// The integer value, cut to the width of the type.
    pub(super) fn integer(self, kind: &Kind) -> i128 {
        let bits = self.bits();
        match kind {
            Kind::Int32 | Kind::Sfixed32 | Kind::Enum(_) => (bits as i32).into(),
            Kind::Uint32 | Kind::Fixed32 => (bits as u32).into(),
            Kind::Int64 | Kind::Sfixed64 => (bits as i64).into(),
            Kind::Sint32 => unzigzag((bits as u32).into()).into(),
            Kind::Sint64 => unzigzag(bits).into(),
            Kind::Bool => i128::from(bits != 0),
            _ => bits.into(),
        }
    }

    /// The default value of a type: zero, or empty.
    pub(super) fn default_of(kind: &Kind) -> WireValue {
        match kind {
            Kind::Enum(of) => WireValue::Varint(i64::from(of.default_value().number()) as u64),
            _ => WireValue::Varint(0),
        }
    }

    /// Whether the value equals the default of the type.
    pub(super) fn is_default(self, kind: &Kind) -> bool {
        match kind {
            Kind::String | Kind::Bytes => self.span().is_empty(),
            // Minus zero has a sign bit and is not the default.
            Kind::Double | Kind::Float => self.bits() == 0,
            Kind::Message(_) => false,
            kind => self.integer(kind) == 0,
        }
    }
}

fn unzigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}
