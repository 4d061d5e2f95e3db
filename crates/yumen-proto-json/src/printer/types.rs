//! Message types prepared for the printer. Each type is prepared at its first use.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use prost_reflect::prost::encoding::WireType;
use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use crate::parser::{FieldCardinality, WellKnownType, WireField};

/// A message type.
pub(super) struct MessageType {
    pub(super) special: Option<WellKnownType>,
    /// Sorted by number.
    pub(super) fields: Vec<MessageField>,
    /// Indexes of the fields that print their default when absent.
    pub(super) defaulted: Vec<u32>,
    /// Number of oneofs with more than one field.
    pub(super) oneofs: usize,
}

/// A field of a message type.
pub(super) struct MessageField {
    pub(super) wire_field: WireField,
    /// The JSON key, with quotes and colon.
    pub(super) key: Box<[u8]>,
    /// Whether an absent field differs from one at its default.
    pub(super) has_presence: bool,
    /// Index of the field's oneof in the message type.
    pub(super) oneof: Option<usize>,
    /// Slot of the field's message type.
    inner: Option<u32>,
}

impl MessageType {
    fn of(of: &MessageDescriptor, index_of: impl Fn(&MessageDescriptor) -> u32) -> MessageType {
        let oneofs: Vec<_> = of.oneofs().collect();
        let field = |field: FieldDescriptor| {
            let wire_field = WireField::of(&field);
            // The oneof of an `optional` proto3 field is synthetic and has one field.
            let oneof = wire_field.oneof.as_ref().filter(|oneof| oneof.fields().len() > 1);
            let oneof = oneof.and_then(|oneof| oneofs.iter().position(|one| one == oneof));
            MessageField::new(wire_field, field.name(), field.supports_presence(), oneof)
        };
        // Extensions have presence, so an absent one never prints a default.
        let extension = |field: ExtensionDescriptor| {
            MessageField::new(WireField::of_extension(&field), field.json_name(), true, None)
        };
        let mut fields: Vec<MessageField> =
            of.fields().map(field).chain(of.extensions().map(extension)).collect();
        fields.sort_by_key(|field| field.wire_field.number);
        for field in &mut fields {
            let Kind::Message(of) = &field.wire_field.kind else { continue };
            field.inner = Some(index_of(of));
        }
        let is_defaulted = |(field, index): (&MessageField, u32)| (!field.has_presence).then_some(index);
        MessageType {
            special: WellKnownType::of(of.full_name()),
            defaulted: fields.iter().zip(0..).filter_map(is_defaulted).collect(),
            oneofs: fields.iter().filter_map(|field| field.oneof).max().map_or(0, |last| last + 1),
            fields,
        }
    }

    /// Index of the field with this number.
    pub(super) fn index(&self, number: u32) -> Option<u32> {
        let index = self.fields.binary_search_by_key(&number, |field| field.wire_field.number).ok()?;
        u32::try_from(index).ok()
    }
}

impl MessageField {
    fn new(wire_field: WireField, name: &str, has_presence: bool, oneof: Option<usize>) -> MessageField {
        // Escaped once per type instead of once per value.
        let key = format!("{}:", serde_json::Value::from(name)).into_bytes().into();
        MessageField { wire_field, key, has_presence, oneof, inner: None }
    }

    /// Whether the field accepts a value of this wire type.
    pub(super) fn takes(&self, wire: WireType) -> bool {
        let own =
            if self.wire_field.is_group { WireType::StartGroup } else { self.wire_field.kind.wire_type() };
        wire == own || wire == WireType::LengthDelimited && self.may_be_packed()
    }

    /// Whether the field is a repeated number, which parsers accept packed and unpacked.
    pub(super) fn may_be_packed(&self) -> bool {
        matches!(self.wire_field.form, FieldCardinality::List { .. })
            && self.wire_field.kind.wire_type() != WireType::LengthDelimited
    }
}

/// Prepared types of a descriptor pool. Workers share the cache and read prepared types without a lock.
pub struct MessageTypeCache {
    pool: DescriptorPool,
    indices: Mutex<HashMap<Box<str>, u32>>,
    /// Each chunk has room for one more type than all before it, so that types never move.
    chunks: [OnceLock<Box<[OnceLock<MessageType>]>>; 32],
}

impl MessageTypeCache {
    /// An empty cache of the types in a pool.
    pub fn of(pool: &DescriptorPool) -> MessageTypeCache {
        let chunks = [const { OnceLock::new() }; 32];
        MessageTypeCache { pool: pool.clone(), indices: Mutex::default(), chunks }
    }

    pub(super) fn get(&self, of: &MessageDescriptor) -> &MessageType {
        self.at(self.index(of), of)
    }

    pub(super) fn named(&self, name: &str) -> Option<&MessageType> {
        self.pool.get_message_by_name(name).map(|of| self.get(&of))
    }

    /// The type of the messages in a field.
    pub(super) fn inner(&self, field: &MessageField) -> Option<&MessageType> {
        match (&field.wire_field.kind, field.inner) {
            (Kind::Message(of), Some(index)) => Some(self.at(index, of)),
            _ => None,
        }
    }

    /// Number of prepared types.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.filter(|slot| slot.get().is_some()).count()
    }

    /// The slot of a type, which may still be empty.
    fn index(&self, of: &MessageDescriptor) -> u32 {
        let mut indices = self.indices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = indices.get(of.full_name()) {
            return *index;
        }
        let index = indices.len() as u32;
        indices.insert(of.full_name().into(), index);
        index
    }

    fn at(&self, index: u32, of: &MessageDescriptor) -> &MessageType {
        // Chunk n has room for 2^n types, so types never move and reads need no lock.
        let number = index as usize + 1;
        let chunk = number.ilog2() as usize;
        let first = 1 << chunk;
        let chunk = self.chunks[chunk].get_or_init(|| (0..first).map(|_| OnceLock::new()).collect());
        // Inner types only get a slot here: a recursive type would never end otherwise.
        chunk[number - first].get_or_init(|| MessageType::of(of, |inner| self.index(inner)))
    }
}
