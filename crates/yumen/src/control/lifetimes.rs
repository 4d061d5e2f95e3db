//! Objects whose end has come are served no more, whatever becomes of their deletion.
//!
//! A store deletes them by itself, by a revision; where it cannot, since its disk is full, it is not open or its
//! cluster is away, they would go on. Knows what a store holds and until when; reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use yumen_base::Problem;
use yumen_config::Resource;
use yumen_snapshot::compile::ConfigChange;
use yumen_store::{EntryChange, ResourceKey, StoreState};

/// A store is given so long to delete what has ended: then it is one revision as any other.
const GRACE_MS: u64 = 1000;

/// What of a store's objects ends, and what has ended already.
#[derive(Debug, Default)]
pub(super) struct ObjectLifetimes {
    by_end: BTreeSet<(u64, ResourceKey)>,
    ends: BTreeMap<ResourceKey, u64>,
    /// Held by the store still.
    over: BTreeSet<ResourceKey>,
}

impl ObjectLifetimes {
    /// Begins with a store's state; gives what of it is to be served.
    pub(super) fn begin(&mut self, state: &StoreState, now_ms: u64) -> Vec<Resource> {
        *self = ObjectLifetimes::default();
        for (key, entry) in state.entries() {
            self.note(key, entry.expires_ms, now_ms);
        }
        let mut resources = state.resources();
        if !self.over.is_empty() {
            resources.retain(|one| !self.over.contains(&ResourceKey::new(one.kind, one.id.clone())));
        }
        resources
    }

    /// What a store's change is for what is served.
    pub(super) fn change(&mut self, changed: &EntryChange, now_ms: u64) -> ConfigChange {
        let key = &changed.key;
        self.forget(key);
        let after = changed.after.as_ref();
        let is_over = self.note(key, after.and_then(|entry| entry.expires_ms), now_ms);
        match after.filter(|_| !is_over) {
            Some(entry) => {
                ConfigChange::Put(Resource { kind: key.kind, id: key.id.clone(), json: entry.json.clone() })
            }
            None => delete(key),
        }
    }

    /// Takes out what should have been deleted by now.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<ConfigChange> {
        let is_due = |(at_ms, _): &&(u64, ResourceKey)| at_ms.saturating_add(GRACE_MS) <= now_ms;
        let due: Vec<ResourceKey> =
            self.by_end.iter().take_while(is_due).map(|(_, key)| key.clone()).collect();
        for key in &due {
            self.forget(key);
            self.over.insert(key.clone());
        }
        due.iter().map(delete).collect()
    }

    /// How long nothing is due.
    pub(super) fn until_due(&self, now_ms: u64) -> Option<Duration> {
        let (at_ms, _) = self.by_end.first()?;
        Some(Duration::from_millis(at_ms.saturating_add(GRACE_MS).saturating_sub(now_ms)))
    }

    /// What the store holds and is not served.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.over.iter().map(|key| {
            let message = "expired: no longer active, but not deleted from the store yet";
            Problem::warning(key.to_string(), "", message)
        })
    }

    /// Whether it has ended.
    fn note(&mut self, key: &ResourceKey, expires_ms: Option<u64>, now_ms: u64) -> bool {
        match expires_ms {
            Some(at_ms) if at_ms <= now_ms => self.over.insert(key.clone()),
            Some(at_ms) => {
                self.by_end.insert((at_ms, key.clone()));
                self.ends.insert(key.clone(), at_ms);
                false
            }
            None => false,
        }
    }

    fn forget(&mut self, key: &ResourceKey) {
        self.over.remove(key);
        if let Some(at_ms) = self.ends.remove(key) {
            self.by_end.remove(&(at_ms, key.clone()));
        }
    }
}

fn delete(key: &ResourceKey) -> ConfigChange {
    ConfigChange::Delete(key.kind, Box::from(&*key.id))
}

#[cfg(test)]
mod tests;
