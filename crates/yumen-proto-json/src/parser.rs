//! Translates JSON into a protobuf message by the proto3 mapping. Values are encoded while they are parsed,
//! without a tree in between.
//!
//! [`MessageWriter`] bounds the nesting of messages, and the JSON parser has a bound of its own.

mod free;
mod scalar;

use std::fmt;

use prost_reflect::prost::Message as _;
use prost_reflect::{
    DeserializeOptions, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    OneofDescriptor,
};
use serde::de::{
    self, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use self::free::FreeFormSeed;
pub use self::free::FreeFormType;
pub(crate) use self::scalar::NULL;
use self::scalar::ScalarSeed;
use crate::wire::MessageWriter;

/// A field as it is encoded.
#[derive(Debug, Clone)]
pub struct WireField {
    /// Number of the field.
    pub number: u32,
    /// Type of the value.
    pub kind: Kind,
    /// Number of values.
    pub form: FieldCardinality,
    pub(crate) is_group: bool,
    /// The oneof that the field belongs to.
    pub oneof: Option<OneofDescriptor>,
}

/// Cardinality of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldCardinality {
    /// At most one value.
    One,
    /// A list.
    List {
        /// Whether the numbers follow one key (packed encoding).
        is_packed: bool,
    },
    /// A map.
    Map,
}

impl WireField {
    /// The field with this name or JSON name, or the extension with this name in brackets.
    pub fn named(of: &MessageDescriptor, name: &str) -> Option<WireField> {
        // Parsers accept both names (ProtoJSON).
        let field = of.get_field_by_name(name).or_else(|| of.get_field_by_json_name(name));
        if let Some(field) = field {
            return Some(WireField::of(&field));
        }
        let field = name.starts_with('[').then(|| of.get_extension_by_json_name(name)).flatten()?;
        Some(WireField::of_extension(&field))
    }

    pub(crate) fn of_extension(field: &ExtensionDescriptor) -> WireField {
        let form = FieldCardinality::of(field.is_map(), field.is_list(), field.is_packed());
        let (number, kind, is_group) = (field.number(), field.kind(), field.is_group());
        WireField { number, kind, form, is_group, oneof: None }
    }

    pub(crate) fn of(field: &FieldDescriptor) -> WireField {
        WireField {
            number: field.number(),
            kind: field.kind(),
            form: FieldCardinality::of(field.is_map(), field.is_list(), field.is_packed()),
            is_group: field.is_group(),
            oneof: field.containing_oneof(),
        }
    }

    /// Opens a message value of this field; [`MessageWriter::end`] closes it.
    pub fn begin<E: de::Error>(&self, to: &mut MessageWriter) -> Result<crate::wire::OpenField, E> {
        to.message(self.number, self.is_group).map_err(E::custom)
    }
}

impl FieldCardinality {
    fn of(is_map: bool, is_list: bool, is_packed: bool) -> FieldCardinality {
        match (is_map, is_list) {
            (true, _) => FieldCardinality::Map,
            (false, true) => FieldCardinality::List { is_packed },
            (false, false) => FieldCardinality::One,
        }
    }
}

/// Message types with a special JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WellKnownType {
    /// A message with one field; its JSON is the value of the field.
    Wrapper,
    /// Any JSON value.
    Free(FreeFormType),
    /// A message with the URL of its type.
    Any,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.FieldMask`.
    FieldMask,
}

impl WellKnownType {
    /// Returns the well-known type of this full name.
    pub fn of(name: &str) -> Option<WellKnownType> {
        Some(match name.strip_prefix("google.protobuf.")? {
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => WellKnownType::Wrapper,
            "Struct" => WellKnownType::Free(FreeFormType::Struct),
            "ListValue" => WellKnownType::Free(FreeFormType::List),
            "Value" => WellKnownType::Free(FreeFormType::Value),
            "Any" => WellKnownType::Any,
            "Timestamp" => WellKnownType::Timestamp,
            "Duration" => WellKnownType::Duration,
            "FieldMask" => WellKnownType::FieldMask,
            _ => return None,
        })
    }
}

/// Encodes the members of a JSON object as fields of the open message.
pub struct MembersSeed<'a> {
    /// Type of the message.
    pub of: &'a MessageDescriptor,
    /// Destination.
    pub to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for MembersSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MembersSeed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "an object for {}", self.of.full_name())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen: Vec<u32> = Vec::new();
        let mut chosen: Vec<OneofDescriptor> = Vec::new();
        while let Some(found) = members.next_key_seed(NameSeed(self.of))? {
            // Unknown fields are ignored: they may belong to a newer version of the proto.
            let Some(field) = found else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            // Parsers differ in which duplicate they use, so duplicates are refused (RFC 8259 §4).
            if seen.contains(&field.number) {
                let name =
                    self.of.get_field(field.number).map_or_else(String::new, |field| field.name().into());
                return Err(de::Error::custom(format!("the field {name} is there twice")));
            }
            seen.push(field.number);
            let is_present = members.next_value_seed(OptionalSeed { field: &field, to: &mut *self.to })?;
            // A null member counts as absent, so it does not choose its oneof.
            let Some(oneof) = field.oneof.filter(|_| is_present) else { continue };
            if chosen.contains(&oneof) {
                let name = oneof.name();
                return Err(de::Error::custom(format!("the oneof {name} has more than one of its fields")));
            }
            chosen.push(oneof);
        }
        Ok(())
    }
}

/// Looks up the field of a member by its name.
struct NameSeed<'a>(&'a MessageDescriptor);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Option<WireField>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<WireField>, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Option<WireField>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Option<WireField>, E> {
        Ok(WireField::named(self.0, name))
    }
}

/// Encodes a field unless its value is null; returns whether it did.
pub struct OptionalSeed<'a> {
    /// The field.
    pub field: &'a WireField,
    /// Destination.
    pub to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for OptionalSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for OptionalSeed<'_> {
    type Value = bool;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<bool, E> {
        // For these two types null is a value.
        let is_value = match &self.field.kind {
            Kind::Message(of) => of.full_name() == "google.protobuf.Value",
            Kind::Enum(of) => of.full_name() == scalar::NULL,
            _ => false,
        };
        if is_value && self.field.form == FieldCardinality::One {
            SingularSeed { field: self.field, to: self.to }.deserialize(().into_deserializer())?;
        }
        Ok(is_value)
    }

    fn visit_none<E: de::Error>(self) -> Result<bool, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        FieldSeed { field: self.field, to: self.to }.deserialize(json).map(|()| true)
    }
}

/// Encodes a field with all its values.
pub struct FieldSeed<'a> {
    /// The field.
    pub field: &'a WireField,
    /// Destination.
    pub to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.field.form {
            FieldCardinality::One => SingularSeed { field: self.field, to: self.to }.deserialize(json),
            FieldCardinality::List { .. } => json.deserialize_seq(self),
            FieldCardinality::Map => json.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.field.form == FieldCardinality::Map { "an object" } else { "a list" })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let FieldSeed { field, to } = self;
        if field.form == (FieldCardinality::List { is_packed: true }) {
            // Packed elements share one record and have no field numbers of their own.
            let open = to.packed(field.number);
            while values
                .next_element_seed(ScalarSeed { kind: &field.kind, number: None, to: &mut *to })?
                .is_some()
            {}
            to.end(open);
            return Ok(());
        }
        while values.next_element_seed(SingularSeed { field, to: &mut *to })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let FieldSeed { field, to } = self;
        let Kind::Message(entry) = &field.kind else {
            return Err(de::Error::custom("no map has such a type"));
        };
        let (key, value) =
            (entry.map_entry_key_field().kind(), WireField::of(&entry.map_entry_value_field()));
        while let Some(open) =
            entries.next_key_seed(scalar::MapEntrySeed { field, key: &key, to: &mut *to })?
        {
            entries.next_value_seed(FieldSeed { field: &value, to: &mut *to })?;
            to.end(open);
        }
        Ok(())
    }
}

/// Encodes one value with its key.
pub struct SingularSeed<'a> {
    /// The field.
    pub field: &'a WireField,
    /// Destination.
    pub to: &'a mut MessageWriter,
}

impl<'de> DeserializeSeed<'de> for SingularSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let SingularSeed { field, to } = self;
        let Kind::Message(of) = &field.kind else {
            return ScalarSeed { kind: &field.kind, number: Some(field.number), to }.deserialize(json);
        };
        let special = WellKnownType::of(of.full_name());
        let open = field.begin(to)?;
        match special {
            None => MembersSeed { of, to }.deserialize(json)?,
            Some(WellKnownType::Wrapper) => {
                // All wrappers have their value in field 1 (google/protobuf/wrappers.proto).
                let value = of.get_field(1).ok_or_else(|| de::Error::custom("it wraps nothing"))?;
                SingularSeed { field: &WireField::of(&value), to }.deserialize(json)?;
            }
            Some(WellKnownType::Free(free)) => FreeFormSeed { is: free, to }.deserialize(json)?,
            Some(
                WellKnownType::Any
                | WellKnownType::Timestamp
                | WellKnownType::Duration
                | WellKnownType::FieldMask,
            ) => {
                // `prost-reflect` implements the special JSON forms of these types.
                // Unknown fields are ignored, as in all other messages.
                let lenient = DeserializeOptions::new().deny_unknown_fields(false);
                let message = DynamicMessage::deserialize_with_options(of.clone(), json, &lenient)?;
                to.raw(&message.encode_to_vec());
            }
        }
        to.end(open);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
