//! Indexes that a standalone tool gives its items: an item with the index of the last document stays as it is.
//!
//! Stored beside the resources and written in the same transaction.

use std::collections::BTreeMap;

use serde_json::Value;
use yumen_config::Kind;
use yumen_store::{Draft, ResourceKey, StoreEntry, StoreState};

use super::items::{DocumentItem, DocumentSection};

const SETTING: &str = "standalone_indexes";
/// A value of etcd has 1.5 MiB at most. Without their indexes, items are compared by content.
const INDEXES_BYTES_MAX: usize = 1024 * 1024;

/// The indexes of items by key, each with the hash of its object. Revisions would not do, since those of etcd are known
/// only after the write.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ItemIndexes(BTreeMap<String, (i64, u64)>);

impl ItemIndexes {
    pub(super) fn of(state: &StoreState) -> ItemIndexes {
        let saved = state.setting(SETTING).and_then(|text| serde_json::from_str(text).ok());
        ItemIndexes(saved.unwrap_or_default())
    }

    /// Stores the indexes in the draft.
    pub(super) fn keep(&self, draft: &mut Draft) {
        let text = serde_json::to_string(&self.0).unwrap_or_default();
        let is_kept = !self.0.is_empty() && text.len() <= INDEXES_BYTES_MAX;
        draft.set(SETTING, is_kept.then_some(text.as_str()));
    }

    /// The index of a stored object; `None` if the document gave none, or another client has changed it since.
    pub(super) fn get(&self, kind: Kind, id: &str, entry: &StoreEntry) -> Option<i64> {
        let (index, hash) = self.0.get(&key(kind, id))?;
        (*hash == hash_of(&entry.json)).then_some(*index)
    }

    /// Forgets the items of a section that a document replaces.
    pub(super) fn clear(&mut self, section: DocumentSection) {
        let lists: Vec<String> = section.kinds().map(|kind| key(kind, "")).collect();
        self.0.retain(|item, _| !lists.iter().any(|list| item.starts_with(list.as_str())));
    }

    /// Records the index of an item, whose stored text is `text`.
    pub(super) fn record(&mut self, item: &DocumentItem, index: i64, text: &str) {
        self.0.insert(key(item.kind, &item.id), (index, hash_of(text)));
    }
}

/// FNV-1a, the same in every version of the gateway.
fn hash_of(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn key(kind: Kind, id: &str) -> String {
    ResourceKey::new(kind, id).to_string()
}

/// The index of an item; an error for a value that is no whole number.
pub(super) fn read(item: &Value) -> Result<Option<i64>, String> {
    let Some(written) = item.get("modifiedIndex") else { return Ok(None) };
    let whole = written.as_i64().or_else(|| {
        // `3.0` is a whole number for clients with one number type.
        let float = written.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
        Some(float as i64)
    });
    match whole {
        Some(index) => Ok(Some(index)),
        None => Err(format!(
            "invalid configuration: property \"modifiedIndex\" validation failed: wrong type: expected integer, got {}",
            super::lua_type(written)
        )),
    }
}
