//! Withdrawal of expired objects, independent of their deletion from the store.
//!
//! A store deletes expired objects by a revision. If it cannot, because its disk is full or the cluster is
//! unreachable, this module stops serving them. Tracks expiry times; reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use yumen_base::Problem;
use yumen_config::Resource;
use yumen_snapshot::compile::ConfigChange;
use yumen_store::{EntryChange, ResourceKey, StoreState};

/// Time for the store to delete an expired object by a regular revision, in milliseconds.
const GRACE_MS: u64 = 1000;

/// Expiry times of a store's objects, and the objects already expired.
#[derive(Debug, Default)]
pub(super) struct ObjectLifetimes {
    by_end: BTreeSet<(u64, ResourceKey)>,
    ends: BTreeMap<ResourceKey, u64>,
    /// Expired objects that are still in the store.
    over: BTreeSet<ResourceKey>,
}

impl ObjectLifetimes {
    /// Starts from a complete state and returns the resources to serve.
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

    /// Converts a change of the store to a change of the served configuration.
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

    /// Marks objects as expired after their grace period, and returns their deletions.
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

    /// Time until the next object is due; `None` if no object expires.
    pub(super) fn until_due(&self, now_ms: u64) -> Option<Duration> {
        let (at_ms, _) = self.by_end.first()?;
        Some(Duration::from_millis(at_ms.saturating_add(GRACE_MS).saturating_sub(now_ms)))
    }

    /// Warnings for expired objects that are still in the store.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.over.iter().map(|key| {
            let message = "expired: no longer active, but not deleted from the store yet";
            Problem::warning(key.to_string(), "", message)
        })
    }

    /// Records the expiry time; returns whether the object has already expired.
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
