//! Mirror of the keys in etcd: listings and events in, revisions out. Pure.
//!
//! Owns the served state. Never serves a state that no revision had, and never drops most objects at once
//! without confirmation. Independent of sockets, clocks and threads.

mod confirmation;
mod deletion_hold;
mod listing;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde_json::{Map, Value};
use yumen_base::Problem;
use yumen_config::json_text;

use super::client::{ClusterHead, KeyListing};
use super::layout::{KeyLayout, KeyRole};
use super::note::WriteNote;
use super::proto::{KeyEvent, KeyValue};
use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};
use crate::store::StoreDifference;

pub(super) use confirmation::DeletionConfirmation;
pub(super) use deletion_hold::DeletionHold;
use deletion_hold::{DeletionVerdict, Moment};
use listing::ParsedListing;

/// Author of revisions without a note by a writer.
pub const FOREIGN: &str = "etcd";
/// Setting with the prefix in etcd that a saved state came from.
pub(super) const FROM: &str = "etcd.prefix";
/// Setting with the revision of the newest confirmation. Kept for older versions, which compare it.
const CONFIRMED: &str = "etcd.confirmed";
/// Setting with the nonces of used confirmations, separated by spaces.
const SPENT: &str = "etcd.spent";
/// Maximum number of used nonces.
const SPENT_MAX: usize = 64;
/// Maximum number of recognized writes of this node.
const NONCES: usize = 1024;

/// Next step to bring the mirror up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MirrorNeed {
    /// List all keys.
    List,
    /// Watch all events from this revision on.
    Watch(u64),
}

/// Result of a listing or of events.
#[derive(Debug, Default)]
pub(super) struct MirrorUpdate {
    /// New revisions, ascending.
    pub(super) commits: Vec<Arc<StoreCommit>>,
    /// Events are missing; a listing is needed.
    pub(super) is_out_of_step: bool,
}

/// A value that is not a JSON object.
#[derive(Debug, Clone)]
struct UnreadableValue {
    at: u64,
    found: String,
}

/// The mirror. Clones share their data and are consistent.
#[derive(Debug, Clone)]
pub(super) struct EtcdMirror {
    layout: KeyLayout,
    served: StoreState,
    /// Last revision of the cluster that is fully processed.
    seen: ClusterHead,
    /// Newest revision known to have changed an object.
    changed_at: u64,
    /// Whether the cluster was listed by this process.
    is_listed: bool,
    settings_at: OrdMap<Arc<str>, u64>,
    note_at: u64,
    confirmed_at: u64,
    /// Nonces of used confirmations, which must not take effect again.
    used_nonces: Vector<Arc<str>>,
    unreadable: OrdMap<ResourceKey, UnreadableValue>,
    /// Keys among objects that name no object.
    strays: OrdSet<Arc<str>>,
    hold: DeletionHold,
    /// Writes of this node that the watch delivered: nonce and revision.
    nonces: Vector<(Arc<str>, u64)>,
    /// Expiry of this node's leases in milliseconds since the Unix epoch.
    leases: OrdMap<i64, u64>,
}

impl EtcdMirror {
    /// Creates a mirror that serves `served` and holds deletions of more than `hold_percent` of the objects.
    pub(super) fn new(layout: KeyLayout, served: StoreState, hold_percent: u32) -> EtcdMirror {
        // Saved settings survive a restart: a confirmation that was used must not take effect again.
        let confirmed_at = served.setting(CONFIRMED).and_then(|at| at.parse().ok()).unwrap_or(0);
        let nonces = served.setting(SPENT).map(|nonces| nonces.split(' ').map(Arc::from).collect());
        EtcdMirror {
            layout,
            seen: ClusterHead { cluster_id: 0, revision: served.revision.0 },
            changed_at: newest_of(served.entries().map(|(_, entry)| entry)),
            served,
            is_listed: false,
            settings_at: OrdMap::new(),
            note_at: 0,
            confirmed_at,
            used_nonces: nonces.unwrap_or_default(),
            unreadable: OrdMap::new(),
            strays: OrdSet::new(),
            hold: DeletionHold::new(hold_percent),
            nonces: Vector::new(),
            leases: OrdMap::new(),
        }
    }

    /// The served state.
    pub(super) fn state(&self) -> &StoreState {
        &self.served
    }

    /// Whether the cluster was listed by this process.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Last revision of the cluster that is fully processed.
    pub(super) fn seen(&self) -> u64 {
        self.seen.revision
    }

    /// Newest revision known to have changed an object. Listings omit deletions, so the value may be too low.
    pub(super) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// Number of held deletions.
    pub(super) fn held(&self) -> usize {
        self.hold.len()
    }

    /// Names that a confirmation of all held deletions must contain.
    pub(super) fn held_names(&self) -> Vec<String> {
        let name = |key: &ResourceKey| Some(confirmation::name_of(key, self.served.get(key.kind, &key.id)?));
        self.hold.keys().filter_map(name).collect()
    }

    /// Whether the deletion of a key is held.
    pub(super) fn holds(&self, key: &ResourceKey) -> bool {
        self.hold.holds(key)
    }

    /// Whether etcd differs from the served state under any key.
    pub(super) fn differs(&self) -> bool {
        self.hold.len() > 0 || !self.unreadable.is_empty()
    }

    /// Difference between etcd and the served state under one key.
    pub(super) fn difference(&self, key: &ResourceKey) -> Option<StoreDifference> {
        match (self.hold.holds(key), self.unreadable.contains_key(key)) {
            (true, _) => Some(StoreDifference::Held),
            (_, true) => Some(StoreDifference::Unreadable),
            _ => None,
        }
    }

    /// Next request to a cluster at `head`.
    pub(super) fn need(&self, head: ClusterHead) -> MirrorNeed {
        match self.is_listed && self.is_same(head) {
            // etcd redelivers from here on after a reconnect, so no event is missed or applied twice.
            true => MirrorNeed::Watch(self.seen.revision + 1),
            false => MirrorNeed::List,
        }
    }

    /// Whether `head` continues this mirror. Otherwise `head` belongs to another cluster or to a restored
    /// older copy, and revisions are not comparable.
    fn is_same(&self, head: ClusterHead) -> bool {
        // A lower revision means that the cluster was restored from an older copy.
        head.cluster_id == self.seen.cluster_id && head.revision >= self.seen.revision
    }

    /// Revision of a key in etcd according to this mirror; 0 if absent. Transactions compare it.
    pub(super) fn expected(&self, role: &KeyRole) -> u64 {
        match role {
            KeyRole::Note => self.note_at,
            KeyRole::Confirmation => self.confirmed_at,
            KeyRole::Setting(name) => self.settings_at.get(name).copied().unwrap_or(0),
            KeyRole::Resource(key) => {
                if let Some(unreadable) = self.unreadable.get(key) {
                    // The key exists in etcd although no object is served for it.
                    return unreadable.at;
                }
                // etcd no longer has the key of a held deletion.
                let entry = self.served.get(key.kind, &key.id).filter(|_| !self.hold.holds(key));
                entry.map_or(0, |entry| entry.modified.0)
            }
        }
    }

    /// Revision of the write with this nonce, if the watch delivered it.
    pub(super) fn revision_of(&self, nonce: &str) -> Option<u64> {
        self.nonces.iter().rev().find(|(known, _)| **known == *nonce).map(|(_, revision)| *revision)
    }

    /// Records the expiry of a lease and drops expired ones.
    pub(super) fn note_lease(&mut self, lease: i64, expires_ms: u64, now_ms: u64) {
        self.leases =
            // Expired leases are dropped here, so the map is bounded by the leases that are alive.
            self.leases.iter().filter(|(_, at_ms)| **at_ms > now_ms).map(|(id, at)| (*id, *at)).collect();
        self.leases.insert(lease, expires_ms);
    }

    /// Problems of the data in etcd.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let unreadable = |(key, unreadable): (&ResourceKey, &UnreadableValue)| {
            let at = self.layout.path(&KeyRole::Resource(key.clone()));
            Problem::error(
                key.to_string(),
                "",
                format!("the value of {at} in etcd is not a JSON object: {}", unreadable.found),
            )
        };
        let mut problems: Vec<Problem> = self.unreadable.iter().map(unreadable).collect();
        problems.extend(self.stray_keys_problem());
        problems.extend(self.hold.problem());
        problems
    }

    /// One problem for all stray keys, whatever their number.
    fn stray_keys_problem(&self) -> Option<Problem> {
        let first = self.strays.get_min()?;
        let found = match self.strays.len() - 1 {
            0 => format!("the key {first} in etcd names no object, so its value has no effect"),
            more => format!(
                "the key {first} in etcd, and {more} more like it, name no object, so their values have no effect"
            ),
        };
        Some(
            Problem::warning("store", "", found)
                .hint("an id must not contain a slash, except `manager/id` of a secret"),
        )
    }

    fn add_stray_key(&mut self, path: &[u8], is_delete: bool) {
        // Keys outside the directories of resources belong to other programs and are no mistake.
        if self.layout.is_stray(path) {
            let path = String::from_utf8_lossy(path);
            match is_delete {
                true => drop(self.strays.remove(&*path)),
                false => drop(self.strays.insert(path.into())),
            }
        }
    }

    /// Processes all keys as of one revision. All differences form one revision.
    pub(super) fn take_list(&mut self, listing: &KeyListing, now_ms: u64) -> MirrorUpdate {
        let mut listed = ParsedListing::default();
        // The listing is complete, so every stray key is found again.
        self.strays.clear();
        for kv in &listing.kvs {
            match self.layout.role(&kv.key) {
                Some(role) => listed.put(role, kv, self),
                None => self.add_stray_key(&kv.key, false),
            }
        }
        // An unreadable object is not gone: its last readable text stays in force.
        let deleted: Vec<ResourceKey> = self
            .served
            .entries()
            .map(|(key, _)| key)
            .filter(|key| !listed.entries.contains_key(*key) && !listed.unreadable.contains_key(*key))
            .cloned()
            .collect();
        // An object that exists again is no longer held.
        listed.entries.keys().for_each(|key| self.hold.release(key));
        // Names are required here: a listing may stem from another cluster, where an unnamed confirmation
        // would cover unrelated objects.
        let confirmation = listed.confirmation.filter(|confirmation| self.spend(&confirmation.note.nonce));
        let names = confirmation.as_ref().and_then(DeletionConfirmation::names).unwrap_or_default();
        let verdict = self.pass(deleted, &names, Moment { revision: listing.head.revision, now_ms });
        let is_held = self.hold.len() > 0;
        // Revisions of another cluster are not comparable.
        if !self.is_same(listing.head) {
            self.changed_at = 0;
        }
        self.changed_at = self.changed_at.max(newest_of(listed.entries.values()));
        let mut after: BTreeMap<ResourceKey, Option<StoreEntry>> =
            listed.entries.into_iter().map(|(key, entry)| (key, Some(entry))).collect();
        after.extend(verdict.changes());
        let changes = self.apply(after);
        self.replace_settings(listed.settings, is_held);
        listed.unreadable.keys().for_each(|key| self.hold.release(key));
        self.unreadable = listed.unreadable;
        self.note_at = listed.note_at;
        // A deleted confirmation keeps its revision, as in `take_revision`.
        self.note_confirmed(listed.confirmed_at.max(self.confirmed_at));
        self.nonces.extend(listed.nonce);
        // Unchanged content keeps its revision, but the first listing needs one.
        let is_first = self.served.revision == Revision::default();
        if is_first || !changes.is_empty() {
            self.served.revision = Revision(listing.head.revision);
        }
        (self.seen, self.is_listed) = (listing.head, true);
        let commit = (!changes.is_empty()).then(|| {
            let by = Authorship { author: FOREIGN.into(), reason: Some("full listing".into()) };
            Arc::new(StoreCommit { revision: self.served.revision, time_ms: now_ms, by, changes })
        });
        // A listing is complete by definition.
        MirrorUpdate { commits: commit.into_iter().collect(), is_out_of_step: false }
    }

    /// Processes events of a watch. Each revision with changes becomes one revision here.
    pub(super) fn take_events(&mut self, events: Vec<KeyEvent>, now_ms: u64) -> MirrorUpdate {
        // Events of one revision are one transaction and must become visible together.
        let mut by_revision: BTreeMap<u64, Vec<(KeyRole, KeyValue, bool)>> = BTreeMap::new();
        let mut taken = MirrorUpdate::default();
        for event in events {
            let is_delete = event.is_delete();
            // Without a key there is no place to apply the event to.
            let Some(kv) = event.kv else { continue };
            let revision = kv.mod_revision.max(0) as u64;
            // Revisions without keys of this store advance `seen` too.
            let group = by_revision.entry(revision).or_default();
            match self.layout.role(&kv.key) {
                Some(role) => group.push((role, kv, is_delete)),
                None => self.add_stray_key(&kv.key, is_delete),
            }
        }
        for (revision, group) in by_revision {
            let is_missed = match revision <= self.seen.revision {
                true => group.iter().any(|(role, _, is_delete)| self.is_news(role, revision, *is_delete)),
                false => group.iter().any(|(role, kv, is_delete)| self.shows_a_gap(role, kv, *is_delete)),
            };
            // Revisions before the gap stay applied; the listing corrects the rest.
            if is_missed {
                taken.is_out_of_step = true;
                return taken;
            }
            // After a reconnect etcd may deliver a revision that was processed already.
            if revision > self.seen.revision {
                taken.commits.extend(self.take_revision(revision, group, now_ms));
                self.seen.revision = revision;
            }
        }
        taken
    }

    /// Whether an event of a processed revision is unknown here. A key deleted since looks the same; the
    /// listing decides.
    fn is_news(&self, role: &KeyRole, revision: u64, is_delete: bool) -> bool {
        let KeyRole::Resource(_) = role else { return false };
        match (self.expected(role), is_delete) {
            (0, is_delete) => !is_delete,
            (known, _) => known < revision,
        }
    }

    /// Whether an event proves that an earlier event of its key was missed.
    fn shows_a_gap(&self, role: &KeyRole, kv: &KeyValue, is_delete: bool) -> bool {
        let KeyRole::Resource(_) = role else { return false };
        let is_unknown = self.expected(role) == 0;
        // A key created before `seen` must have been known, unless its event was lost.
        is_unknown && (is_delete || kv.create_revision.max(0) as u64 <= self.seen.revision)
    }

    /// Records the nonce of a write, so that a writer without a response can detect that its transaction was
    /// applied.
    fn record_nonce(&mut self, nonce: &str, revision: u64) {
        // Notes of older versions and of other tools have no nonce.
        if nonce.is_empty() {
            return;
        }
        self.nonces.push_back((nonce.into(), revision));
        // The writer has one transaction in flight, so the bound is ample.
        if self.nonces.len() > NONCES {
            self.nonces.pop_front();
        }
    }

    fn take_revision(
        &mut self,
        revision: u64,
        group: Vec<(KeyRole, KeyValue, bool)>,
        now_ms: u64,
    ) -> Option<Arc<StoreCommit>> {
        let mut after: BTreeMap<ResourceKey, Option<StoreEntry>> = BTreeMap::new();
        let (mut deleted, mut note, mut lost_settings) = (Vec::new(), None, Vec::new());
        let at = Moment { revision, now_ms };
        for (role, kv, is_delete) in group {
            match (role, is_delete) {
                (KeyRole::Resource(key), false) => match self.entry(&key, &kv) {
                    Ok(entry) => {
                        self.unreadable.remove(&key);
                        self.hold.release(&key);
                        after.insert(key, Some(entry));
                    }
                    Err(unreadable) => {
                        self.hold.release(&key);
                        // The last readable text stays in force, as for a broken object (decision 3).
                        self.unreadable.insert(key, unreadable);
                    }
                },
                (KeyRole::Resource(key), true) => {
                    self.unreadable.remove(&key);
                    deleted.push(key);
                }
                (KeyRole::Setting(name), false) => self.put_setting(name, &kv),
                (KeyRole::Setting(name), true) => lost_settings.push(name),
                (KeyRole::Note, false) => {
                    self.note_at = revision;
                    note = Some(WriteNote::parse(&kv.value));
                }
                (KeyRole::Note, true) => self.note_at = 0,
                (KeyRole::Confirmation, false) => {
                    self.note_confirmed(revision);
                    after.extend(
                        self.release_deletions(&DeletionConfirmation::parse(&kv.value), at).changes(),
                    );
                }
                // A confirmation takes effect once, so its deletion changes nothing.
                (KeyRole::Confirmation, true) => {}
            }
        }
        // An object with an unreadable first value was never served.
        deleted.retain(|key| self.served.get(key.kind, &key.id).is_some());
        let held_count_before = self.hold.len();
        let verdict = match &note {
            // A note marks a write through a gateway, which confirms large deletions itself.
            Some(_) => DeletionVerdict { passing: deleted, ..DeletionVerdict::default() },
            None => self.pass(deleted, &BTreeSet::new(), at),
        };
        self.remove_settings(&lost_settings, self.hold.len() > held_count_before);
        after.extend(verdict.changes());
        let changes = self.apply(after);
        // Tools such as `etcdctl` leave no note.
        let note = note.unwrap_or_else(|| WriteNote { author: FOREIGN.into(), ..WriteNote::default() });
        // Recorded even without a change of objects: the writer waits for its nonce.
        self.record_nonce(&note.nonce, revision);
        if changes.is_empty() {
            // Node records and other keys must not appear as revisions of the configuration.
            return None;
        }
        (self.served.revision, self.changed_at) = (Revision(revision), revision);
        // The time of the writer, so that all nodes report the same history.
        let time_ms = if note.time_ms > 0 { note.time_ms } else { now_ms };
        Some(Arc::new(StoreCommit { revision: Revision(revision), time_ms, by: note.authorship(), changes }))
    }

    /// Removes settings that the store has deleted.
    fn remove_settings(&mut self, names: &[Arc<str>], are_objects_held: bool) {
        // Settings deleted together with held objects are retained: the same mistake may have deleted them.
        if !are_objects_held {
            names.iter().for_each(|name| self.served.replace_setting(name, None));
        }
        for name in names {
            self.settings_at.remove(name);
        }
    }

    /// Decides which deletions pass: expired objects, objects named by a confirmation, and the rest unless
    /// they exceed the hold threshold.
    fn pass(&mut self, deleted: Vec<ResourceKey>, names: &BTreeSet<&[u8]>, at: Moment) -> DeletionVerdict {
        let entry_of = |key: &ResourceKey| self.served.get(key.kind, &key.id);
        // An expired object is meant to vanish, whatever else was deleted.
        let has_ended = |key: &ResourceKey| {
            entry_of(key).and_then(|entry| entry.expires_ms).is_some_and(|end| end <= at.now_ms)
        };
        let is_named = |key: &ResourceKey| {
            let entry = entry_of(key).filter(|_| !names.is_empty());
            entry.is_some_and(|entry| names.contains(confirmation::name_of(key, entry).as_bytes()))
        };
        let (mut passing, deleted): (Vec<ResourceKey>, Vec<ResourceKey>) =
            deleted.into_iter().partition(has_ended);
        let (named, rest): (Vec<ResourceKey>, Vec<ResourceKey>) = deleted.into_iter().partition(is_named);
        let rest = rest.into_iter().filter_map(|key| entry_of(&key).cloned().map(|entry| (key, entry)));
        let rest = rest.collect();
        if !named.is_empty() {
            // The remaining deletions are judged as a batch of their own, without the window.
            self.hold.release_all();
        }
        passing.extend(named);
        passing.iter().for_each(|key| self.hold.release(key));
        // Objects that pass anyhow must not enlarge the base of the threshold.
        let mut verdict = self.hold.admit(rest, self.served.len() - passing.len(), at);
        verdict.passing.append(&mut passing);
        verdict
    }

    /// Releases the held deletions that a new confirmation covers.
    fn release_deletions(&mut self, confirmation: &DeletionConfirmation, at: Moment) -> DeletionVerdict {
        match confirmation.names() {
            // A used nonce stems from a restored copy or another cluster (decision 28).
            _ if !self.spend(&confirmation.note.nonce) => DeletionVerdict::default(),
            Some(names) => self.pass(self.hold.keys().cloned().collect(), &names, at),
            // Older versions confirm without names, and only while their deletions are held.
            None => DeletionVerdict { passing: self.hold.release_all(), ..DeletionVerdict::default() },
        }
    }

    /// Marks a confirmation as used; returns whether it was unused.
    fn spend(&mut self, nonce: &str) -> bool {
        // Confirmations of older versions have no nonce and cannot be marked.
        if nonce.is_empty() {
            return true;
        }
        let is_fresh = !self.used_nonces.iter().any(|used| **used == *nonce);
        if is_fresh {
            self.used_nonces.push_back(nonce.into());
            // Bounded, since the list is stored with every state.
            if self.used_nonces.len() > SPENT_MAX {
                self.used_nonces.pop_front();
            }
            let joined: Vec<&str> = self.used_nonces.iter().map(|nonce| &**nonce).collect();
            // Stored as a setting, so that the mark survives a restart with the last good state.
            self.served.replace_setting(&SPENT.into(), Some(joined.join(" ").into()));
        }
        is_fresh
    }

    /// Applies changes to the served state; returns the effective ones, ascending by key.
    fn apply(&mut self, after: BTreeMap<ResourceKey, Option<StoreEntry>>) -> Vec<EntryChange> {
        let mut changes = Vec::new();
        for (key, after) in after {
            // Writes that change nothing make no revision.
            if self.served.get(key.kind, &key.id) != after.as_ref() {
                let before = self.served.replace(&key, after.clone());
                changes.push(EntryChange { key, before, after });
            }
        }
        changes
    }

    fn note_confirmed(&mut self, at: u64) {
        self.confirmed_at = at;
        self.served.replace_setting(&CONFIRMED.into(), (at > 0).then(|| at.to_string().into()));
    }

    fn put_setting(&mut self, name: Arc<str>, kv: &KeyValue) {
        // The revision counts even if the value is not UTF-8: transactions compare it.
        self.settings_at.insert(name.clone(), kv.mod_revision.max(0) as u64);
        if let Ok(value) = std::str::from_utf8(&kv.value) {
            self.served.replace_setting(&name, Some(value.into()));
        }
    }

    /// Replaces the settings with the listed ones. While deletions are held, missing settings are retained:
    /// the same event may have deleted them.
    fn replace_settings(&mut self, listed: BTreeMap<Arc<str>, KeyValue>, is_held: bool) {
        let known: Vec<Arc<str>> = self.served.settings().map(|(name, _)| name.clone()).collect();
        // Settings of the mirror itself are not in etcd.
        let is_own = |name: &str| [FROM, CONFIRMED, SPENT].contains(&name);
        let lost = known.iter().filter(|name| !is_own(name) && !listed.contains_key(*name));
        lost.filter(|_| !is_held).for_each(|name| self.served.replace_setting(name, None));
        self.settings_at.clear();
        listed.into_iter().for_each(|(name, kv)| self.put_setting(name, &kv));
        self.served.replace_setting(&FROM.into(), Some(self.layout.root().into()));
    }

    fn entry(&self, key: &ResourceKey, kv: &KeyValue) -> Result<StoreEntry, UnreadableValue> {
        let object: Map<String, Value> = json_text::from_slice(&kv.value).map_err(|error| {
            UnreadableValue { at: kv.mod_revision.max(0) as u64, found: error.to_string() }
        })?;
        let modified = Revision(kv.mod_revision.max(0) as u64);
        // etcd delivers the id of a lease without its expiry. It is known for leases of this process, and
        // from before if the value is unchanged.
        let known = self.served.get(key.kind, &key.id).filter(|known| known.modified == modified);
        let expires_ms = match kv.lease {
            0 => None,
            lease => self.leases.get(&lease).copied().or(known.and_then(|known| known.expires_ms)),
        };
        Ok(StoreEntry {
            json: Value::Object(object).to_string().into(),
            created: Revision(kv.create_revision.max(0) as u64),
            modified,
            expires_ms,
        })
    }
}

fn newest_of<'a>(entries: impl Iterator<Item = &'a StoreEntry>) -> u64 {
    entries.map(|entry| entry.modified.0).max().unwrap_or(0)
}
