//! Who says what about whom, over all objects; follows the states writers decide on.
//!
//! It is asked only while a transaction is decided, about the very state the transaction sees.

pub(crate) mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yumen_config::Kind;
use yumen_plugin::PluginRegistry;
use yumen_store::{ResourceKey, StoreState};

use facts::ObjectFact;

/// The index: what it knows is of one state, and becomes that of another by their differences.
///
/// So neither a batch that is not durable yet nor one that was taken back can make it wrong.
#[derive(Default)]
pub(crate) struct FactIndex(Mutex<IndexedState>);

#[derive(Default)]
pub(crate) struct IndexedState {
    of: StoreState,
    by_fact: BTreeMap<ObjectFact, BTreeSet<ResourceKey>>,
}

impl FactIndex {
    /// What is known, as of `state`.
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
            if keys.is_empty() {
                self.by_fact.remove(fact);
            }
        }
    }

    /// How many things are said.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_fact.len()
    }

    /// Who says so.
    pub(crate) fn stating(&self, fact: &ObjectFact) -> impl Iterator<Item = &ResourceKey> {
        self.by_fact.get(fact).into_iter().flatten()
    }

    /// The values by which a plugin finds consumers that are references to something else, and who says so.
    pub(crate) fn found_by_references(
        &self,
        plugin: &str,
    ) -> impl Iterator<Item = (&str, &BTreeSet<ResourceKey>)> {
        let found_by =
            |value: &str| ObjectFact::FoundBy { plugin: plugin.to_owned(), value: value.to_owned() };
        // All of them begin with `$`; `%` is what follows it.
        let facts = self.by_fact.range(found_by("$")..found_by("%"));
        facts.filter_map(|(fact, keys)| match fact {
            ObjectFact::FoundBy { value, .. } => Some((&**value, keys)),
            _ => None,
        })
    }

    /// The first of a kind who says so.
    pub(crate) fn first_stating(&self, fact: &ObjectFact, kind: Kind) -> Option<&ResourceKey> {
        let first = self.by_fact.get(fact)?.range(ResourceKey::new(kind, "")..).next();
        first.filter(|key| key.kind == kind)
    }
}
