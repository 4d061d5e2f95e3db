//! A full listing of the shared keys, sorted by role.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;

use super::super::layout::KeyRole;
use super::super::note::WriteNote;
use super::super::proto::KeyValue;
use super::{DeletionConfirmation, EtcdMirror, UnreadableValue};
use crate::state::{ResourceKey, StoreEntry};

/// The parsed keys of a listing.
#[derive(Default)]
pub(super) struct ParsedListing {
    pub(super) entries: BTreeMap<ResourceKey, StoreEntry>,
    pub(super) unreadable: OrdMap<ResourceKey, UnreadableValue>,
    pub(super) settings: BTreeMap<Arc<str>, KeyValue>,
    pub(super) note_at: u64,
    pub(super) confirmed_at: u64,
    pub(super) confirmation: Option<DeletionConfirmation>,
    pub(super) nonce: Option<(Arc<str>, u64)>,
}

impl ParsedListing {
    pub(super) fn put(&mut self, role: KeyRole, kv: &KeyValue, mirror: &EtcdMirror) {
        let at = kv.mod_revision.max(0) as u64;
        match role {
            KeyRole::Resource(key) => match mirror.entry(&key, kv) {
                Ok(entry) => drop(self.entries.insert(key, entry)),
                Err(unreadable) => drop(self.unreadable.insert(key, unreadable)),
            },
            KeyRole::Setting(name) => drop(self.settings.insert(name, kv.clone())),
            KeyRole::Note => {
                self.note_at = at;
                let nonce = WriteNote::parse(&kv.value).nonce;
                // The newest write may be this node's own, sent before the connection broke.
                self.nonce = (!nonce.is_empty()).then(|| (nonce.into(), at));
            }
            KeyRole::Confirmation => {
                (self.confirmed_at, self.confirmation) = (at, Some(DeletionConfirmation::parse(&kv.value)))
            }
        }
    }
}
