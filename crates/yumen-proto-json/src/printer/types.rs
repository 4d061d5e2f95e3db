//! Message types as they are written: each is looked up once, when the first message of it is.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use prost_reflect::prost::encoding::WireType;
use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use crate::parser::{FieldCardinality, WellKnownType, WireField};

/// A message type.
pub(super) struct MessageType {
    pub(super) special: Option<WellKnownType>,
    /// By number.
    pub(super) fields: Vec<MessageField>,
    /// Which of them have a default that stands for those that are not there.
    pub(super) defaulted: Vec<u32>,
    /// How many sets of fields there are of which one excludes the others.
    pub(super) oneofs: usize,
}

/// A field of a message type.
pub(super) struct MessageField {
    pub(super) place: WireField,
    /// As JSON has it, with quotes and colon.
    pub(super) key: Box<[u8]>,
    /// Whether there being one is told apart from its default.
    pub(super) has_presence: bool,
    /// Which of the type's, where it excludes others.
    pub(super) oneof: Option<usize>,
    /// The place of its message type.
    inner: Option<u32>,
}

impl MessageType {
    fn of(of: &MessageDescriptor, place: impl Fn(&MessageDescriptor) -> u32) -> MessageType {
        let oneofs: Vec<_> = of.oneofs().collect();
        let field = |field: FieldDescriptor| {
            let place = WireField::of(&field);
            // That of an optional field of proto3 has no other.
            let oneof = place.oneof.as_ref().filter(|oneof| oneof.fields().len() > 1);
            let oneof = oneof.and_then(|oneof| oneofs.iter().position(|one| one == oneof));
            MessageField::new(place, field.name(), field.supports_presence(), oneof)
        };
        // One that nobody sent is not told, whatever its kind.
        let extension = |field: ExtensionDescriptor| {
            MessageField::new(WireField::of_extension(&field), field.json_name(), true, None)
        };
        let mut fields: Vec<MessageField> =
            of.fields().map(field).chain(of.extensions().map(extension)).collect();
        fields.sort_by_key(|field| field.place.number);
        for field in &mut fields {
            let Kind::Message(of) = &field.place.kind else { continue };
            field.inner = Some(place(of));
        }
        let is_defaulted = |(field, index): (&MessageField, u32)| (!field.has_presence).then_some(index);
        MessageType {
            special: WellKnownType::of(of.full_name()),
            defaulted: fields.iter().zip(0..).filter_map(is_defaulted).collect(),
            oneofs: fields.iter().filter_map(|field| field.oneof).max().map_or(0, |last| last + 1),
            fields,
        }
    }

    /// Which field has this number.
    pub(super) fn index(&self, number: u32) -> Option<u32> {
        let index = self.fields.binary_search_by_key(&number, |field| field.place.number).ok()?;
        u32::try_from(index).ok()
    }
}

impl MessageField {
    fn new(place: WireField, name: &str, has_presence: bool, oneof: Option<usize>) -> MessageField {
        let key = format!("{}:", serde_json::Value::from(name)).into_bytes().into();
        MessageField { place, key, has_presence, oneof, inner: None }
    }

    /// Whether it may be written so.
    pub(super) fn takes(&self, wire: WireType) -> bool {
        let own = if self.place.is_group { WireType::StartGroup } else { self.place.kind.wire_type() };
        wire == own || wire == WireType::LengthDelimited && self.may_be_packed()
    }

    /// Whether it is a list of numbers, which may stand behind one key.
    pub(super) fn may_be_packed(&self) -> bool {
        matches!(self.place.form, FieldCardinality::List { .. })
            && self.place.kind.wire_type() != WireType::LengthDelimited
    }
}

/// The types of a pool, as many as were met. Workers share it: what is there is read without a lock.
pub struct MessageTypeCache {
    pool: DescriptorPool,
    places: Mutex<HashMap<Box<str>, u32>>,
    /// By place; each as long as all before it and one more, so that none ever moves.
    chunks: [OnceLock<Box<[OnceLock<MessageType>]>>; 32],
}

impl MessageTypeCache {
    /// An empty cache of the types in a pool.
    pub fn of(pool: &DescriptorPool) -> MessageTypeCache {
        let chunks = [const { OnceLock::new() }; 32];
        MessageTypeCache { pool: pool.clone(), places: Mutex::default(), chunks }
    }

    pub(super) fn get(&self, of: &MessageDescriptor) -> &MessageType {
        self.at(self.place(of), of)
    }

    pub(super) fn named(&self, name: &str) -> Option<&MessageType> {
        self.pool.get_message_by_name(name).map(|of| self.get(&of))
    }

    /// That of the messages a field holds.
    pub(super) fn inner(&self, field: &MessageField) -> Option<&MessageType> {
        match (&field.place.kind, field.inner) {
            (Kind::Message(of), Some(place)) => Some(self.at(place, of)),
            _ => None,
        }
    }

    /// How many types were looked up.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.filter(|slot| slot.get().is_some()).count()
    }

    /// The place of a type, which may not be there yet.
    fn place(&self, of: &MessageDescriptor) -> u32 {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(of.full_name()) {
            return *place;
        }
        let place = places.len() as u32;
        places.insert(of.full_name().into(), place);
        place
    }

    fn at(&self, place: u32, of: &MessageDescriptor) -> &MessageType {
        let number = place as usize + 1;
        let chunk = number.ilog2() as usize;
        let first = 1 << chunk;
        let chunk = self.chunks[chunk].get_or_init(|| (0..first).map(|_| OnceLock::new()).collect());
        chunk[number - first].get_or_init(|| MessageType::of(of, |inner| self.place(inner)))
    }
}
