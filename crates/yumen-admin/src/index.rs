//! Who says what about whom, over all objects; follows the states writers decide on.
//!
//! It is asked only while a transaction is decided, about the very state the transaction sees.

pub(crate) mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yumen_config::Kind;
use yumen_plugin::Registry;
use yumen_store::{Key, State};

use facts::Fact;

/// The index: what it knows is of one state, and becomes that of another by their differences.
///
/// So neither a batch that is not durable yet nor one that was taken back can make it wrong.
#[derive(Default)]
pub(crate) struct Index(Mutex<Known>);

#[derive(Default)]
pub(crate) struct Known {
    of: State,
    said_by: BTreeMap<Fact, BTreeSet<Key>>,
}

impl Index {
    /// What is known, as of `state`.
    pub(crate) fn catch_up(&self, registry: &Registry, state: &State) -> MutexGuard<'_, Known> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.move_to(registry, state);
        known
    }
}

impl Known {
    fn move_to(&mut self, registry: &Registry, state: &State) {
        let from = std::mem::replace(&mut self.of, state.clone());
        for (key, before, after) in from.differences(state) {
            for fact in before.map(|entry| facts::of_text(registry, key, &entry.json)).unwrap_or_default() {
                self.forget(&fact, key);
            }
            for fact in after.map(|entry| facts::of_text(registry, key, &entry.json)).unwrap_or_default() {
                self.said_by.entry(fact).or_default().insert(key.clone());
            }
        }
    }

    fn forget(&mut self, fact: &Fact, key: &Key) {
        if let Some(keys) = self.said_by.get_mut(fact) {
            keys.remove(key);
            if keys.is_empty() {
                self.said_by.remove(fact);
            }
        }
    }

    /// How many things are said.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.said_by.len()
    }

    /// Who says so.
    pub(crate) fn who_says(&self, fact: &Fact) -> impl Iterator<Item = &Key> {
        self.said_by.get(fact).into_iter().flatten()
    }

    /// The values by which a plugin finds consumers that are references to something else, and who says so.
    pub(crate) fn found_by_references(&self, plugin: &str) -> impl Iterator<Item = (&str, &BTreeSet<Key>)> {
        let found_by = |value: &str| Fact::FoundBy { plugin: plugin.to_owned(), value: value.to_owned() };
        // All of them begin with `$`; `%` is what follows it.
        let facts = self.said_by.range(found_by("$")..found_by("%"));
        facts.filter_map(|(fact, keys)| match fact {
            Fact::FoundBy { value, .. } => Some((&**value, keys)),
            _ => None,
        })
    }

    /// The first of a kind who says so.
    pub(crate) fn first_who_says(&self, fact: &Fact, kind: Kind) -> Option<&Key> {
        let first = self.said_by.get(fact)?.range(Key::new(kind, "")..).next();
        first.filter(|key| key.kind == kind)
    }
}
