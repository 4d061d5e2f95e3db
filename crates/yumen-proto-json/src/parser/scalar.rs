//! Scalar values: numbers, strings, bytes, enum values, and keys of maps.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::Kind;
use prost_reflect::prost::encoding::WireType;
use serde::de::{self, DeserializeSeed, Deserializer, Unexpected, Visitor};

use super::WireField;
use crate::wire::{MessageWriter, OpenField};

/// The enum with the one value that JSON represents as null.
pub(crate) const NULL: &str = "google.protobuf.NullValue";

/// Encodes a value, with a key if `number` is set.
pub(crate) struct ScalarSeed<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) number: Option<u32>,
    pub(crate) to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl Visitor<'_> for ScalarSeed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Bytes => to.write_str("bytes in base64"),
            Kind::Enum(of) => write!(to, "a value of {}", of.full_name()),
            kind => write!(to, "a value of type {}", name(kind)),
        }
    }

    fn visit_bool<E: de::Error>(mut self, value: bool) -> Result<(), E> {
        match self.kind {
            Kind::Bool => self.varint(value.into()),
            _ => return Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: de::Error>(mut self, value: f64) -> Result<(), E> {
        match self.kind {
            Kind::Double => self.double(value),
            // A finite number beyond the range of `float` must not become infinite.
            Kind::Float if value.is_finite() && value.abs() > f32::MAX.into() => {
                return Err(E::invalid_value(Unexpected::Float(value), &self));
            }
            Kind::Float => self.float(value as f32),
            // `1e3` is an integer too. A value beyond `i128` saturates, and is out of range for every type.
            _ if value.fract() == 0.0 => return self.integer(value as i128),
            _ => return Err(E::invalid_value(Unexpected::Float(value), &self)),
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(mut self, text: &str) -> Result<(), E> {
        let refused = |seed: &Self| E::invalid_value(Unexpected::Str(text), seed);
        match self.kind {
            Kind::String => self.bytes(text.as_bytes()),
            Kind::Bytes => match base64(text) {
                Some(bytes) => self.bytes(&bytes),
                None => return Err(refused(&self)),
            },
            Kind::Enum(of) => match of.get_value_by_name(text) {
                Some(value) => return self.integer(value.number().into()),
                None => return Err(refused(&self)),
            },
            // Also `NaN`, `Infinity` and `-Infinity`, which ProtoJSON writes as strings.
            Kind::Double | Kind::Float => match text.parse() {
                Ok(value) => return self.visit_f64(value),
                Err(_) => return Err(refused(&self)),
            },
            Kind::Bool | Kind::Message(_) => return Err(E::invalid_type(Unexpected::Str(text), &self)),
            kind => {
                // APISIX (lua-protobuf) marks 64-bit integers in strings with `#`.
                let marked = if is_wide(kind) { text.strip_prefix('#') } else { None };
                return match marked.map_or_else(|| text.parse().ok(), number) {
                    Some(value) => self.integer(value),
                    None => Err(refused(&self)),
                };
            }
        }
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        match self.kind {
            Kind::Enum(of) if of.full_name() == NULL => self.integer(0),
            _ => Err(E::invalid_type(Unexpected::Unit, &self)),
        }
    }
}

impl ScalarSeed<'_> {
    fn integer<E: de::Error>(mut self, value: i128) -> Result<(), E> {
        if self.write_integer(value).is_none() {
            let text = value.to_string();
            return Err(E::invalid_value(Unexpected::Other(&text), &self));
        }
        Ok(())
    }

    /// `None` if the value is out of range of the type.
    fn write_integer(&mut self, value: i128) -> Option<()> {
        match self.kind {
            // Negative 32-bit values are sign-extended to ten bytes, as in every protobuf encoder.
            Kind::Int32 | Kind::Enum(_) => self.varint(i64::from(i32::try_from(value).ok()?) as u64),
            Kind::Int64 => self.varint(i64::try_from(value).ok()? as u64),
            Kind::Uint32 => self.varint(u32::try_from(value).ok()?.into()),
            Kind::Uint64 => self.varint(u64::try_from(value).ok()?),
            Kind::Sint32 => self.varint(zigzag(i32::try_from(value).ok()?.into())),
            Kind::Sint64 => self.varint(zigzag(i64::try_from(value).ok()?)),
            Kind::Fixed32 => self.fixed32(u32::try_from(value).ok()?.to_le_bytes()),
            Kind::Sfixed32 => self.fixed32(i32::try_from(value).ok()?.to_le_bytes()),
            Kind::Fixed64 => self.fixed64(u64::try_from(value).ok()?.to_le_bytes()),
            Kind::Sfixed64 => self.fixed64(i64::try_from(value).ok()?.to_le_bytes()),
            Kind::Double => self.double(value as f64),
            Kind::Float => self.float(value as f32),
            Kind::Bool | Kind::String | Kind::Bytes | Kind::Message(_) => return None,
        }
        Some(())
    }

    fn key(&mut self, wire: WireType) {
        if let Some(number) = self.number {
            self.to.key(number, wire);
        }
    }

    fn varint(&mut self, value: u64) {
        self.key(WireType::Varint);
        self.to.varint(value);
    }

    fn fixed32(&mut self, bytes: [u8; 4]) {
        self.key(WireType::ThirtyTwoBit);
        self.to.raw(&bytes);
    }

    fn fixed64(&mut self, bytes: [u8; 8]) {
        self.key(WireType::SixtyFourBit);
        self.to.raw(&bytes);
    }

    fn double(&mut self, value: f64) {
        self.fixed64(value.to_le_bytes());
    }

    fn float(&mut self, value: f32) {
        self.fixed32(value.to_le_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.key(WireType::LengthDelimited);
        self.to.varint(value.len() as u64);
        self.to.raw(value);
    }
}

/// Name of the type in the proto language.
fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Sfixed32 => "sfixed32",
        Kind::Sfixed64 => "sfixed64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Message(_) => "message",
        Kind::Enum(_) => "enum",
    }
}

fn is_wide(kind: &Kind) -> bool {
    matches!(kind, Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Parses the text form of a large integer without its `#`: `123`, `-0x7b`.
fn number(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let number: i128 = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => i128::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    // Refuses a second sign, as in `--1`.
    (number >= 0).then_some(if negative { -number } else { number })
}

/// Decodes Base64 of either alphabet; padding is optional.
fn base64(text: &str) -> Option<Vec<u8>> {
    const INDIFFERENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const PLAIN: GeneralPurpose = GeneralPurpose::new(&STANDARD, INDIFFERENT);
    const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, INDIFFERENT);
    let engine = if text.contains(['-', '_']) { FOR_URLS } else { PLAIN };
    engine.decode(text).ok()
}

/// Opens the entry of a map and encodes its key.
pub(super) struct MapEntrySeed<'a> {
    pub(super) field: &'a WireField,
    pub(super) key: &'a Kind,
    pub(super) to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for MapEntrySeed<'_> {
    type Value = OpenField;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<OpenField, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for MapEntrySeed<'_> {
    type Value = OpenField;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OpenField, E> {
        let open = self.field.begin(self.to)?;
        // A map entry is a message with the key as field 1 and the value as field 2.
        let seed = ScalarSeed { kind: self.key, number: Some(1), to: self.to };
        // Names of JSON members are strings, also for keys of the type bool.
        match (self.key, text) {
            (Kind::Bool, "true") => seed.visit_bool(true)?,
            (Kind::Bool, "false") => seed.visit_bool(false)?,
            _ => seed.visit_str(text)?,
        }
        Ok(open)
    }
}
