//! What a node knows of the keys in etcd: lists and events go in, revisions come out. Pure.
//!
//! Owns which state is served, and so what is never served: a state that no revision had, and the loss of most objects at
//! once without anybody's word. Must not know sockets, clocks or threads.

mod confirmation;
mod deletion_hold;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde_json::{Map, Value};
use yumen_base::Problem;

use super::client::{ClusterHead, KeyListing};
use super::layout::{KeyLayout, KeyRole};
use super::note::WriteNote;
use super::proto::{KeyEvent, KeyValue};
use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};
use crate::store::StoreDifference;

pub(super) use confirmation::DeletionConfirmation;
pub(super) use deletion_hold::DeletionHold;
use deletion_hold::{Moment, Verdict};

/// The author of what no writer left a note about.
pub const FOREIGN: &str = "etcd";
/// Settings of a state that this node keeps for itself: where in etcd it is from.
pub(super) const FROM: &str = "etcd.prefix";
/// The revision of the newest confirmation that was seen: a version that goes by it may run here again.
const CONFIRMED: &str = "etcd.confirmed";
/// And the nonces of those that are used up, with a space between them.
const SPENT: &str = "etcd.spent";
/// So many of these.
const SPENT_MAX: usize = 64;
/// So many of one's own writes are known again.
const NONCES: usize = 1024;

/// What has to be done before the mirror is in step again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MirrorNeed {
    /// All keys are to be listed.
    List,
    /// All events from this revision on are to be told.
    Watch(u64),
}

/// What came of news.
#[derive(Debug, Default)]
pub(super) struct MirrorUpdate {
    /// What is in force now, ascending.
    pub(super) commits: Vec<Arc<StoreCommit>>,
    /// Something was missed: only a list can tell what.
    pub(super) is_out_of_step: bool,
}

/// A value that is no object in JSON.
#[derive(Debug, Clone)]
struct UnreadableValue {
    at: u64,
    found: String,
}

/// The mirror. A clone is cheap, and is of one moment.
#[derive(Debug, Clone)]
pub(super) struct EtcdMirror {
    layout: KeyLayout,
    served: StoreState,
    /// Everything up to this revision of the cluster was taken in.
    seen: ClusterHead,
    /// The newest revision that is known to have changed an object.
    changed_at: u64,
    /// Whether the cluster has spoken since this process began.
    is_listed: bool,
    settings_at: OrdMap<Arc<str>, u64>,
    note_at: u64,
    confirmed_at: u64,
    /// Confirmations that confirm nothing any more, wherever they turn up again.
    used_nonces: Vector<Arc<str>>,
    unreadable: OrdMap<ResourceKey, UnreadableValue>,
    /// Keys among objects that name none.
    strays: OrdSet<Arc<str>>,
    hold: DeletionHold,
    /// Own writes that came back: nonce and revision.
    nonces: Vector<(Arc<str>, u64)>,
    /// When leases of this node's writes end, in milliseconds since the Unix epoch.
    leases: OrdMap<i64, u64>,
}

impl EtcdMirror {
    /// A mirror that begins with what was served last, and lets no more than so many percent go at once.
    pub(super) fn new(layout: KeyLayout, served: StoreState, hold_percent: u32) -> EtcdMirror {
        let confirmed_at = served.setting(CONFIRMED).and_then(|at| at.parse().ok()).unwrap_or(0);
        let used_nonces =
            served.setting(SPENT).map(|used_nonces| used_nonces.split(' ').map(Arc::from).collect());
        EtcdMirror {
            layout,
            seen: ClusterHead { cluster_id: 0, revision: served.revision.0 },
            changed_at: newest_of(served.entries().map(|(_, entry)| entry)),
            served,
            is_listed: false,
            settings_at: OrdMap::new(),
            note_at: 0,
            confirmed_at,
            used_nonces: used_nonces.unwrap_or_default(),
            unreadable: OrdMap::new(),
            strays: OrdSet::new(),
            hold: DeletionHold::new(hold_percent),
            nonces: Vector::new(),
            leases: OrdMap::new(),
        }
    }

    /// What is served.
    pub(super) fn state(&self) -> &StoreState {
        &self.served
    }

    /// Whether the cluster has been listed since this process began.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The revision of the cluster up to which all was taken in.
    pub(super) fn seen(&self) -> u64 {
        self.seen.revision
    }

    /// The newest revision that is known to have changed an object. A list does not tell of deletions: it may be too low.
    pub(super) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// Deletions that wait for somebody's word.
    pub(super) fn held(&self) -> usize {
        self.hold.len()
    }

    /// What a word about all that is held has to name.
    pub(super) fn held_names(&self) -> Vec<String> {
        let name = |key: &ResourceKey| Some(confirmation::name_of(key, self.served.get(key.kind, &key.id)?));
        self.hold.keys().filter_map(name).collect()
    }

    /// Whether the deletion of a key waits.
    pub(super) fn holds(&self, key: &ResourceKey) -> bool {
        self.hold.holds(key)
    }

    /// Whether what lies in etcd is otherwise than what is served, anywhere.
    pub(super) fn differs(&self) -> bool {
        self.hold.len() > 0 || !self.unreadable.is_empty()
    }

    /// How it is under one key.
    pub(super) fn difference(&self, key: &ResourceKey) -> Option<StoreDifference> {
        match (self.hold.holds(key), self.unreadable.contains_key(key)) {
            (true, _) => Some(StoreDifference::Held),
            (_, true) => Some(StoreDifference::Unreadable),
            _ => None,
        }
    }

    /// What to ask a cluster that stands at `head`.
    pub(super) fn need(&self, head: ClusterHead) -> MirrorNeed {
        match self.is_listed && self.is_same(head) {
            true => MirrorNeed::Watch(self.seen.revision + 1),
            false => MirrorNeed::List,
        }
    }

    /// Otherwise it is another cluster, or an older copy of this one: revisions of the one say nothing of the other.
    fn is_same(&self, head: ClusterHead) -> bool {
        head.cluster_id == self.seen.cluster_id && head.revision >= self.seen.revision
    }

    /// The revision a key in etcd must be of for this mirror to be right about it; 0 is absent.
    pub(super) fn expected(&self, place: &KeyRole) -> u64 {
        match place {
            KeyRole::Note => self.note_at,
            KeyRole::Confirmation => self.confirmed_at,
            KeyRole::Setting(name) => self.settings_at.get(name).copied().unwrap_or(0),
            KeyRole::Resource(key) => {
                if let Some(unreadable) = self.unreadable.get(key) {
                    return unreadable.at;
                }
                let entry = self.served.get(key.kind, &key.id).filter(|_| !self.hold.holds(key));
                entry.map_or(0, |entry| entry.modified.0)
            }
        }
    }

    /// The revision that made the write of this nonce, if it was seen.
    pub(super) fn revision_of(&self, nonce: &str) -> Option<u64> {
        self.nonces.iter().rev().find(|(known, _)| **known == *nonce).map(|(_, revision)| *revision)
    }

    /// Remembers when what is bound to a lease ends.
    pub(super) fn note_lease(&mut self, lease: i64, expires_ms: u64, now_ms: u64) {
        self.leases =
            self.leases.iter().filter(|(_, at_ms)| **at_ms > now_ms).map(|(id, at)| (*id, *at)).collect();
        self.leases.insert(lease, expires_ms);
    }

    /// What is wrong with what lies in etcd.
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

    /// One for all keys that are astray, however many another tool writes.
    fn stray_keys_problem(&self) -> Option<Problem> {
        let first = self.strays.get_min()?;
        let found = match self.strays.len() - 1 {
            0 => format!("the key {first} in etcd names no object, so nothing serves what it says"),
            more => format!(
                "the key {first} in etcd, and {more} more like it, name no object, so nothing serves what they say"
            ),
        };
        Some(
            Problem::warning("store", "", found)
                .hint("an id must not contain a slash, except `manager/id` of a secret"),
        )
    }

    fn add_stray_key(&mut self, path: &[u8], is_delete: bool) {
        if self.layout.is_stray(path) {
            let path = String::from_utf8_lossy(path);
            match is_delete {
                true => drop(self.strays.remove(&*path)),
                false => drop(self.strays.insert(path.into())),
            }
        }
    }

    /// Takes in all keys as of one revision; what differs is one revision.
    pub(super) fn take_list(&mut self, listing: &KeyListing, now_ms: u64) -> MirrorUpdate {
        let mut listed = ParsedListing::default();
        self.strays.clear();
        for kv in &listing.kvs {
            match self.layout.place(&kv.key) {
                Some(place) => listed.put(place, kv, self),
                None => self.add_stray_key(&kv.key, false),
            }
        }
        let gone: Vec<ResourceKey> = self
            .served
            .entries()
            .map(|(key, _)| key)
            .filter(|key| !listed.entries.contains_key(*key) && !listed.unreadable.contains_key(*key))
            .cloned()
            .collect();
        listed.entries.keys().for_each(|key| self.hold.release(key));
        // In a list a word that names nothing may be about anything, in another cluster even.
        let word = listed.word.filter(|word| self.spend(&word.note.nonce));
        let names = word.as_ref().and_then(DeletionConfirmation::names).unwrap_or_default();
        let verdict = self.pass(gone, &names, Moment { revision: listing.head.revision, now_ms });
        let is_held = self.hold.len() > 0;
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
        self.note_confirmed(listed.confirmed_at.max(self.confirmed_at));
        self.nonces.extend(listed.nonce);
        let is_first = self.served.revision == Revision::default();
        if is_first || !changes.is_empty() {
            self.served.revision = Revision(listing.head.revision);
        }
        (self.seen, self.is_listed) = (listing.head, true);
        let commit = (!changes.is_empty()).then(|| {
            let by = Authorship { author: FOREIGN.into(), reason: Some("listed anew".into()) };
            Arc::new(StoreCommit { revision: self.served.revision, time_ms: now_ms, by, changes })
        });
        MirrorUpdate { commits: commit.into_iter().collect(), is_out_of_step: false }
    }

    /// Takes in what a watch told: each revision in it is one revision here.
    pub(super) fn take_events(&mut self, events: Vec<KeyEvent>, now_ms: u64) -> MirrorUpdate {
        let mut by_revision: BTreeMap<u64, Vec<(KeyRole, KeyValue, bool)>> = BTreeMap::new();
        let mut taken = MirrorUpdate::default();
        for event in events {
            let is_delete = event.is_delete();
            let Some(kv) = event.kv else { continue };
            let revision = kv.mod_revision.max(0) as u64;
            // A revision of none of our keys is one seen all the same.
            let group = by_revision.entry(revision).or_default();
            match self.layout.place(&kv.key) {
                Some(place) => group.push((place, kv, is_delete)),
                None => self.add_stray_key(&kv.key, is_delete),
            }
        }
        for (revision, group) in by_revision {
            let is_missed = match revision <= self.seen.revision {
                true => group.iter().any(|(place, _, is_delete)| self.is_news(place, revision, *is_delete)),
                false => group.iter().any(|(place, kv, is_delete)| self.shows_a_gap(place, kv, *is_delete)),
            };
            if is_missed {
                taken.is_out_of_step = true;
                return taken;
            }
            if revision > self.seen.revision {
                taken.commits.extend(self.take_revision(revision, group, now_ms));
                self.seen.revision = revision;
            }
        }
        taken
    }

    /// Whether something from before what was seen is not known. What was deleted since looks the same: a list tells.
    fn is_news(&self, place: &KeyRole, revision: u64, is_delete: bool) -> bool {
        let KeyRole::Resource(_) = place else { return false };
        match (self.expected(place), is_delete) {
            (0, is_delete) => !is_delete,
            (known, _) => known < revision,
        }
    }

    /// Whether an event tells of a past that should have been told before.
    fn shows_a_gap(&self, place: &KeyRole, kv: &KeyValue, is_delete: bool) -> bool {
        let KeyRole::Resource(_) = place else { return false };
        let is_unknown = self.expected(place) == 0;
        is_unknown && (is_delete || kv.create_revision.max(0) as u64 <= self.seen.revision)
    }

    /// Records the nonce of a write, so that a writer without a response learns that its transaction was applied.
    fn record_nonce(&mut self, nonce: &str, revision: u64) {
        if nonce.is_empty() {
            return;
        }
        self.nonces.push_back((nonce.into(), revision));
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
        let (mut gone, mut note, mut lost_settings) = (Vec::new(), None, Vec::new());
        let at = Moment { revision, now_ms };
        for (place, kv, is_delete) in group {
            match (place, is_delete) {
                (KeyRole::Resource(key), false) => match self.entry(&key, &kv) {
                    Ok(entry) => {
                        self.unreadable.remove(&key);
                        self.hold.release(&key);
                        after.insert(key, Some(entry));
                    }
                    Err(unreadable) => {
                        self.hold.release(&key);
                        self.unreadable.insert(key, unreadable);
                    }
                },
                (KeyRole::Resource(key), true) => {
                    self.unreadable.remove(&key);
                    gone.push(key);
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
                (KeyRole::Confirmation, true) => {}
            }
        }
        gone.retain(|key| self.served.get(key.kind, &key.id).is_some());
        let held_before = self.hold.len();
        let verdict = match &note {
            // Whoever writes through a gateway was asked whether it is meant.
            Some(_) => Verdict { passing: gone, ..Verdict::default() },
            None => self.pass(gone, &BTreeSet::new(), at),
        };
        if self.hold.len() == held_before {
            lost_settings.iter().for_each(|name| self.served.replace_setting(name, None));
        }
        for name in &lost_settings {
            self.settings_at.remove(name);
        }
        after.extend(verdict.changes());
        let changes = self.apply(after);
        let note = note.unwrap_or_else(|| WriteNote { author: FOREIGN.into(), ..WriteNote::default() });
        self.record_nonce(&note.nonce, revision);
        if changes.is_empty() {
            return None;
        }
        (self.served.revision, self.changed_at) = (Revision(revision), revision);
        let time_ms = if note.time_ms > 0 { note.time_ms } else { now_ms };
        Some(Arc::new(StoreCommit { revision: Revision(revision), time_ms, by: note.authorship(), changes }))
    }

    /// What of these deletions is let through: what was to end by now, what a word names, and the rest unless that is
    /// much.
    fn pass(&mut self, gone: Vec<ResourceKey>, names: &BTreeSet<&[u8]>, at: Moment) -> Verdict {
        let entry_of = |key: &ResourceKey| self.served.get(key.kind, &key.id);
        let has_ended = |key: &ResourceKey| {
            entry_of(key).and_then(|entry| entry.expires_ms).is_some_and(|end| end <= at.now_ms)
        };
        let is_named = |key: &ResourceKey| {
            let entry = entry_of(key).filter(|_| !names.is_empty());
            entry.is_some_and(|entry| names.contains(confirmation::name_of(key, entry).as_bytes()))
        };
        let (mut passing, gone): (Vec<ResourceKey>, Vec<ResourceKey>) = gone.into_iter().partition(has_ended);
        let (named, rest): (Vec<ResourceKey>, Vec<ResourceKey>) = gone.into_iter().partition(is_named);
        let rest = rest.into_iter().filter_map(|key| entry_of(&key).cloned().map(|entry| (key, entry)));
        let rest = rest.collect();
        if !named.is_empty() {
            // What this node alone lost besides is judged by itself.
            self.hold.release_all();
        }
        passing.extend(named);
        passing.iter().for_each(|key| self.hold.release(key));
        let mut verdict = self.hold.admit(rest, self.served.len() - passing.len(), at);
        verdict.passing.append(&mut passing);
        verdict
    }

    /// What of the held deletions a word lets through that was just given.
    fn release_deletions(&mut self, word: &DeletionConfirmation, at: Moment) -> Verdict {
        match word.names() {
            _ if !self.spend(&word.note.nonce) => Verdict::default(),
            Some(names) => self.pass(self.hold.keys().cloned().collect(), &names, at),
            None => Verdict { passing: self.hold.release_all(), ..Verdict::default() },
        }
    }

    /// Whether a confirmation confirms anything yet; from now on it does not.
    fn spend(&mut self, nonce: &str) -> bool {
        if nonce.is_empty() {
            return true;
        }
        let is_fresh = !self.used_nonces.iter().any(|used_nonces| **used_nonces == *nonce);
        if is_fresh {
            self.used_nonces.push_back(nonce.into());
            if self.used_nonces.len() > SPENT_MAX {
                self.used_nonces.pop_front();
            }
            let used_nonces: Vec<&str> = self.used_nonces.iter().map(|nonce| &**nonce).collect();
            self.served.replace_setting(&SPENT.into(), Some(used_nonces.join(" ").into()));
        }
        is_fresh
    }

    /// Writes into what is served and gives what changed by it, ascending by key.
    fn apply(&mut self, after: BTreeMap<ResourceKey, Option<StoreEntry>>) -> Vec<EntryChange> {
        let mut changes = Vec::new();
        for (key, after) in after {
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
        self.settings_at.insert(name.clone(), kv.mod_revision.max(0) as u64);
        if let Ok(value) = std::str::from_utf8(&kv.value) {
            self.served.replace_setting(&name, Some(value.into()));
        }
    }

    /// What the doors keep is as precious as what they serve: it is not lost while anything is held.
    fn replace_settings(&mut self, listed: BTreeMap<Arc<str>, KeyValue>, is_held: bool) {
        let known: Vec<Arc<str>> = self.served.settings().map(|(name, _)| name.clone()).collect();
        let is_own = |name: &str| [FROM, CONFIRMED, SPENT].contains(&name);
        let lost = known.iter().filter(|name| !is_own(name) && !listed.contains_key(*name));
        lost.filter(|_| !is_held).for_each(|name| self.served.replace_setting(name, None));
        self.settings_at.clear();
        listed.into_iter().for_each(|(name, kv)| self.put_setting(name, &kv));
        self.served.replace_setting(&FROM.into(), Some(self.layout.root().into()));
    }

    fn entry(&self, key: &ResourceKey, kv: &KeyValue) -> Result<StoreEntry, UnreadableValue> {
        let object: Map<String, Value> = serde_json::from_slice(&kv.value).map_err(|error| {
            UnreadableValue { at: kv.mod_revision.max(0) as u64, found: error.to_string() }
        })?;
        let modified = Revision(kv.mod_revision.max(0) as u64);
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

/// A list, taken apart.
#[derive(Default)]
struct ParsedListing {
    entries: BTreeMap<ResourceKey, StoreEntry>,
    unreadable: OrdMap<ResourceKey, UnreadableValue>,
    settings: BTreeMap<Arc<str>, KeyValue>,
    note_at: u64,
    confirmed_at: u64,
    word: Option<DeletionConfirmation>,
    nonce: Option<(Arc<str>, u64)>,
}

impl ParsedListing {
    fn put(&mut self, place: KeyRole, kv: &KeyValue, mirror: &EtcdMirror) {
        let at = kv.mod_revision.max(0) as u64;
        match place {
            KeyRole::Resource(key) => match mirror.entry(&key, kv) {
                Ok(entry) => drop(self.entries.insert(key, entry)),
                Err(unreadable) => drop(self.unreadable.insert(key, unreadable)),
            },
            KeyRole::Setting(name) => drop(self.settings.insert(name, kv.clone())),
            KeyRole::Note => {
                self.note_at = at;
                let nonce = WriteNote::parse(&kv.value).nonce;
                self.nonce = (!nonce.is_empty()).then(|| (nonce.into(), at));
            }
            KeyRole::Confirmation => {
                (self.confirmed_at, self.word) = (at, Some(DeletionConfirmation::parse(&kv.value)))
            }
        }
    }
}
