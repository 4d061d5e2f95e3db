//! JSON of any shape, as `google.protobuf.Struct`, `ListValue` and `Value`.

use std::fmt;

use prost_reflect::prost::encoding::WireType;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::wire::MessageWriter;

/// The free-form message type to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeFormType {
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.ListValue`.
    List,
    /// `google.protobuf.Value`.
    Value,
}

// Field numbers of google/protobuf/struct.proto.
const STRUCT_FIELDS: u32 = 1;
const ENTRY_KEY: u32 = 1;
const ENTRY_VALUE: u32 = 2;
const VALUE_NULL: u32 = 1;
const VALUE_NUMBER: u32 = 2;
const VALUE_TEXT: u32 = 3;
const VALUE_BOOL: u32 = 4;
const VALUE_STRUCT: u32 = 5;
const VALUE_LIST: u32 = 6;
const LIST_VALUES: u32 = 1;

/// Encodes the fields of the open free-form message.
pub(super) struct FreeFormSeed<'a> {
    pub(super) is: FreeFormType,
    pub(super) to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for FreeFormSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl FreeFormSeed<'_> {
    fn scalar<E: de::Error>(
        self,
        found: de::Unexpected<'_>,
        write: impl FnOnce(&mut MessageWriter),
    ) -> Result<(), E> {
        if self.is != FreeFormType::Value {
            return Err(E::invalid_type(found, &self));
        }
        write(self.to);
        Ok(())
    }
}

impl<'de> Visitor<'de> for FreeFormSeed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self.is {
            FreeFormType::Struct => "an object",
            FreeFormType::List => "a list",
            FreeFormType::Value => "a value",
        })
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.scalar(de::Unexpected::Unit, |to| {
            to.key(VALUE_NULL, WireType::Varint);
            // `NULL_VALUE`, the only value of the enum.
            to.varint(0);
        })
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(de::Unexpected::Bool(value), |to| {
            to.key(VALUE_BOOL, WireType::Varint);
            to.varint(value.into());
        })
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.scalar(de::Unexpected::Float(value), |to| {
            to.key(VALUE_NUMBER, WireType::SixtyFourBit);
            to.raw(&value.to_le_bytes());
        })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        // All numbers of a `Value` are doubles.
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.scalar(de::Unexpected::Str(value), |to| to.bytes(VALUE_TEXT, value.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let FreeFormSeed { is, to } = self;
        // Inside a `Value`, the list is a nested message.
        let open = match is {
            FreeFormType::List => None,
            FreeFormType::Value => Some(to.message(VALUE_LIST, false).map_err(de::Error::custom)?),
            FreeFormType::Struct => {
                return Err(de::Error::invalid_type(de::Unexpected::Seq, &FreeFormSeed { is, to }));
            }
        };
        while values.next_element_seed(ValueFieldSeed { number: LIST_VALUES, to: &mut *to })?.is_some() {}
        open.into_iter().for_each(|open| to.end(open));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let FreeFormSeed { is, to } = self;
        // Inside a `Value`, the struct is a nested message.
        let open = match is {
            FreeFormType::Struct => None,
            FreeFormType::Value => Some(to.message(VALUE_STRUCT, false).map_err(de::Error::custom)?),
            FreeFormType::List => {
                return Err(de::Error::invalid_type(de::Unexpected::Map, &FreeFormSeed { is, to }));
            }
        };
        while let Some(entry) = members.next_key_seed(StructEntrySeed { to: &mut *to })? {
            members.next_value_seed(ValueFieldSeed { number: ENTRY_VALUE, to: &mut *to })?;
            to.end(entry);
        }
        open.into_iter().for_each(|open| to.end(open));
        Ok(())
    }
}

/// Encodes a `google.protobuf.Value` as a field.
struct ValueFieldSeed<'a> {
    number: u32,
    to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for ValueFieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let ValueFieldSeed { number, to } = self;
        let open = to.message(number, false).map_err(de::Error::custom)?;
        json.deserialize_any(FreeFormSeed { is: FreeFormType::Value, to: &mut *to })?;
        to.end(open);
        Ok(())
    }
}

/// Opens the entry of a struct and encodes its key.
struct StructEntrySeed<'a> {
    to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for StructEntrySeed<'_> {
    type Value = crate::wire::OpenField;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for StructEntrySeed<'_> {
    type Value = crate::wire::OpenField;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let open = self.to.message(STRUCT_FIELDS, false).map_err(E::custom)?;
        self.to.bytes(ENTRY_KEY, name.as_bytes());
        Ok(open)
    }
}
