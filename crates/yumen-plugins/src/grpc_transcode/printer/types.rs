//! Message types as they are written: looked up once for a call, with those of all messages in them.

use std::collections::HashMap;

use prost_reflect::prost::encoding::WireType;
use prost_reflect::{ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use super::super::json::{Form, Place, Special};

/// A message type.
pub(super) struct Type {
    pub(super) special: Option<Special>,
    /// By number.
    pub(super) fields: Vec<Field>,
}

/// A field of a message type.
pub(super) struct Field {
    pub(super) place: Place,
    /// As JSON has it, with quotes and colon.
    pub(super) key: Box<[u8]>,
    /// Whether there being one is told apart from its default.
    pub(super) has_presence: bool,
    /// Which of the type's, where it excludes others.
    pub(super) oneof: Option<usize>,
    /// The place of its message type.
    pub(super) inner: Option<usize>,
}

impl Type {
    fn of(of: &MessageDescriptor, place: &mut impl FnMut(&MessageDescriptor) -> usize) -> Type {
        let oneofs: Vec<_> = of.oneofs().collect();
        let field = |field: FieldDescriptor| {
            let place = Place::of(&field);
            // That of an optional field of proto3 has no other.
            let oneof = place.oneof.as_ref().filter(|oneof| oneof.fields().len() > 1);
            let oneof = oneof.and_then(|oneof| oneofs.iter().position(|one| one == oneof));
            Field::new(place, field.name(), field.supports_presence(), oneof)
        };
        // One that nobody sent is not told, whatever its kind.
        let extension = |field: ExtensionDescriptor| {
            Field::new(Place::of_extension(&field), field.json_name(), true, None)
        };
        let mut fields: Vec<Field> = of.fields().map(field).chain(of.extensions().map(extension)).collect();
        fields.sort_by_key(|field| field.place.number);
        for field in &mut fields {
            let Kind::Message(of) = &field.place.kind else { continue };
            field.inner = Some(place(of));
        }
        Type { special: Special::of(of.full_name()), fields }
    }

    /// Which field has this number.
    pub(super) fn index(&self, number: u32) -> Option<u32> {
        let index = self.fields.binary_search_by_key(&number, |field| field.place.number).ok()?;
        u32::try_from(index).ok()
    }
}

impl Field {
    fn new(place: Place, name: &str, has_presence: bool, oneof: Option<usize>) -> Field {
        let key = format!("{}:", serde_json::Value::from(name)).into_bytes().into();
        Field { place, key, has_presence, oneof, inner: None }
    }

    /// Whether it may be written so.
    pub(super) fn takes(&self, wire: WireType) -> bool {
        let own = if self.place.is_group { WireType::StartGroup } else { self.place.kind.wire_type() };
        wire == own || wire == WireType::LengthDelimited && self.may_be_packed()
    }

    /// Whether it is a list of numbers, which may stand behind one key.
    pub(super) fn may_be_packed(&self) -> bool {
        matches!(self.place.form, Form::List { .. })
            && self.place.kind.wire_type() != WireType::LengthDelimited
    }
}

/// A type and all that are in its messages; what an `Any` holds is not.
#[derive(Default)]
pub(in super::super) struct Types {
    list: Vec<Type>,
    places: HashMap<String, usize>,
}

impl Types {
    /// The type itself has place 0.
    pub(in super::super) fn of(of: &MessageDescriptor) -> Types {
        let mut types = Types::default();
        let mut met = vec![of.clone()];
        types.places.insert(of.full_name().to_owned(), 0);
        while let Some(of) = met.get(types.list.len()).cloned() {
            let mut place = |inner: &MessageDescriptor| {
                if let Some(place) = types.places.get(inner.full_name()) {
                    return *place;
                }
                met.push(inner.clone());
                types.places.insert(inner.full_name().to_owned(), met.len() - 1);
                met.len() - 1
            };
            types.list.push(Type::of(&of, &mut place));
        }
        types
    }

    pub(super) fn get(&self, place: usize) -> Option<&Type> {
        self.list.get(place)
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }
}
