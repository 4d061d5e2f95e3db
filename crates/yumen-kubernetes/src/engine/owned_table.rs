//! A table of values that units own, which records the values that a batch of runs changes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::unit::TranslationUnit;

#[derive(Debug, Clone)]
pub(super) struct OwnedTable<K, V> {
    entries: HashMap<K, OwnedEntry<V>>,
    /// Values before the batch, by key that the batch changed.
    previous: BTreeMap<K, Option<V>>,
}

#[derive(Debug, Clone)]
struct OwnedEntry<V> {
    owner: TranslationUnit,
    value: V,
}

impl<K, V> Default for OwnedTable<K, V> {
    fn default() -> Self {
        OwnedTable { entries: HashMap::new(), previous: BTreeMap::new() }
    }
}

impl<K: Ord + Hash + Clone, V: PartialEq + Clone> OwnedTable<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// All values, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// Sets a value. Returns whether it differs from the previous one.
    pub(super) fn put(&mut self, owner: &TranslationUnit, key: K, value: V) -> bool {
        match self.entries.get_mut(&key) {
            Some(entry) if entry.value == value => {
                // The unit that wrote last owns the key, so that the previous owner does not remove it.
                entry.owner = owner.clone();
                false
            }
            Some(entry) => {
                let before = std::mem::replace(&mut entry.value, value);
                entry.owner = owner.clone();
                self.previous.entry(key).or_insert(Some(before));
                true
            }
            None => {
                self.previous.entry(key.clone()).or_insert(None);
                self.entries.insert(key, OwnedEntry { owner: owner.clone(), value });
                true
            }
        }
    }

    /// Removes a value unless another unit wrote it since. Returns whether it was removed.
    pub(super) fn remove(&mut self, owner: &TranslationUnit, key: &K) -> bool {
        if self.entries.get(key).is_none_or(|entry| entry.owner != *owner) {
            return false;
        }
        let before = self.entries.remove(key).map(|entry| entry.value);
        self.previous.entry(key.clone()).or_insert(before);
        true
    }

    /// The value of a key, if the unit wrote it last.
    pub(super) fn of_owner(&self, owner: &TranslationUnit, key: &K) -> Option<&V> {
        self.entries.get(key).filter(|entry| entry.owner == *owner).map(|entry| &entry.value)
    }

    /// The keys whose values differ from those before the batch, with the new values; ends the batch.
    pub(super) fn take_changes(&mut self) -> Vec<(K, Option<V>)> {
        self.take_transitions().into_iter().map(|(key, _, after)| (key, after)).collect()
    }

    /// The keys whose values differ from those before the batch, with the values before and after it; ends the batch.
    pub(super) fn take_transitions(&mut self) -> Vec<(K, Option<V>, Option<V>)> {
        let previous = std::mem::take(&mut self.previous);
        let with_value = previous.into_iter().map(|(key, before)| {
            let after = self.get(&key).cloned();
            (key, before, after)
        });
        with_value.filter(|(_, before, after)| before != after).collect()
    }
}
