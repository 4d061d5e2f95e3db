//! Index of facts about all objects, such as references; follows the states that writers decide on.
//!
//! Used only while a transaction is decided, on the state that the transaction sees.

pub(crate) mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yumen_config::Kind;
use yumen_plugin::PluginRegistry;
use yumen_store::{ResourceKey, StoreState};

use facts::ObjectFact;

/// The index as of one state; it moves to another state by their differences.
///
/// Neither a batch that is not durable yet nor one that was rolled back can therefore leave it inconsistent.
#[derive(Default)]
pub(crate) struct FactIndex(Mutex<IndexedState>);

#[derive(Default)]
pub(crate) struct IndexedState {
    of: StoreState,
    by_fact: BTreeMap<ObjectFact, BTreeSet<ResourceKey>>,
}

impl FactIndex {
    /// The index as of `state`.
    pub(crate) fn catch_up(
        &self,
        registry: &PluginRegistry,
        state: &StoreState,
    ) -> MutexGuard<'_, IndexedState> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.move_to(registry, state);
        known
    }
}

impl IndexedState {
    fn move_to(&mut self, registry: &PluginRegistry, state: &StoreState) {
        let from = std::mem::replace(&mut self.of, state.clone());
        for (key, before, after) in from.differences(state) {
            for fact in before.map(|entry| facts::of_text(registry, key, &entry.json)).unwrap_or_default() {
                self.forget(&fact, key);
            }
            for fact in after.map(|entry| facts::of_text(registry, key, &entry.json)).unwrap_or_default() {
                self.by_fact.entry(fact).or_default().insert(key.clone());
            }
        }
    }

    fn forget(&mut self, fact: &ObjectFact, key: &ResourceKey) {
        if let Some(keys) = self.by_fact.get_mut(fact) {
            keys.remove(key);
            // Facts without objects must not accumulate.
            if keys.is_empty() {
                self.by_fact.remove(fact);
            }
        }
    }

    /// The number of distinct facts.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_fact.len()
    }

    /// The objects with this fact.
    pub(crate) fn stating(&self, fact: &ObjectFact) -> impl Iterator<Item = &ResourceKey> {
        self.by_fact.get(fact).into_iter().flatten()
    }

    /// References, such as `$env://NAME`, among the values by which a plugin finds consumers, with their
    /// objects.
    pub(crate) fn found_by_references(
        &self,
        plugin: &str,
    ) -> impl Iterator<Item = (&str, &BTreeSet<ResourceKey>)> {
        let found_by =
            |value: &str| ObjectFact::FoundBy { plugin: plugin.to_owned(), value: value.to_owned() };
        // References begin with `$`, and `%` is the next character.
        let facts = self.by_fact.range(found_by("$")..found_by("%"));
        facts.filter_map(|(fact, keys)| match fact {
            ObjectFact::FoundBy { value, .. } => Some((&**value, keys)),
            _ => None,
        })
    }

    /// The objects with limits of a group, and the settings that they share.
    pub(crate) fn limits_of(&self, group: &str) -> impl Iterator<Item = (&str, &BTreeSet<ResourceKey>)> {
        let first = ObjectFact::LimitsGroup { group: group.to_owned(), settings: String::new() };
        self.by_fact.range(first..).map_while(move |(fact, keys)| match fact {
            ObjectFact::LimitsGroup { group: other, settings } if other == group => Some((&**settings, keys)),
            _ => None,
        })
    }

    /// The first object of a kind with this fact.
    pub(crate) fn first_stating(&self, fact: &ObjectFact, kind: Kind) -> Option<&ResourceKey> {
        let first = self.by_fact.get(fact)?.range(ResourceKey::new(kind, "")..).next();
        first.filter(|key| key.kind == kind)
    }
}
