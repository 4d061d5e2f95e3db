//! What a store holds at one revision, and what one revision changed. Plain data.
//!
//! A clone of a state is cheap and shares everything; it must not know what the texts mean.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use yumen_config::{Kind, Resource};

/// Counts the changes of one store; larger is later. Zero is the empty store nobody has written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// Names one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// What it is.
    pub kind: Kind,
    /// Its id within the kind, as in [`Resource::id`].
    pub id: Arc<str>,
}

impl ResourceKey {
    /// The key of `kind` and `id`.
    pub fn new(kind: Kind, id: impl Into<Arc<str>>) -> ResourceKey {
        ResourceKey { kind, id: id.into() }
    }
}

/// The object's name in problems and histories: `routes/1`.
impl std::fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.collection(), self.id)
    }
}

/// One text the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// Compact JSON, as in [`Resource::json`].
    pub json: Arc<str>,
    /// The revision that created it.
    pub created: Revision,
    /// The revision that wrote it last.
    pub modified: Revision,
    /// When it is deleted by itself, in milliseconds since the Unix epoch.
    pub expires_ms: Option<u64>,
}

impl StoreEntry {
    /// What of it is served, and until when.
    pub fn text_and_end(&self) -> (&Arc<str>, Option<u64>) {
        (&self.json, self.expires_ms)
    }
}

/// Everything a store holds as of one revision.
#[derive(Debug, Clone, Default)]
pub struct StoreState {
    /// The revision it is of.
    pub revision: Revision,
    entries: OrdMap<ResourceKey, StoreEntry>,
    settings: OrdMap<Arc<str>, Arc<str>>,
}

impl StoreState {
    /// A state of these entries and settings.
    pub fn new(
        revision: Revision,
        entries: impl IntoIterator<Item = (ResourceKey, StoreEntry)>,
        settings: impl IntoIterator<Item = (Arc<str>, Arc<str>)>,
    ) -> StoreState {
        StoreState {
            revision,
            entries: entries.into_iter().collect(),
            settings: settings.into_iter().collect(),
        }
    }

    /// One entry.
    pub fn get(&self, kind: Kind, id: &str) -> Option<&StoreEntry> {
        self.entries.get(&ResourceKey::new(kind, id))
    }

    /// The entries of a kind, ascending by id.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, &StoreEntry)> {
        self.starting_at(kind, "")
    }

    /// The entries of a kind from an id on, ascending by id.
    pub fn starting_at(
        &self,
        kind: Kind,
        id: &str,
    ) -> impl Iterator<Item = (&Arc<str>, &StoreEntry)> + use<'_> {
        let from = ResourceKey::new(kind, id);
        let of_kind = self.entries.range(from..).take_while(move |(key, _)| key.kind == kind);
        of_kind.map(|(key, entry)| (&key.id, entry))
    }

    /// The entries of a kind whose id begins with `prefix`, ascending by id.
    pub fn under<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a StoreEntry)> {
        let from = ResourceKey::new(kind, prefix);
        let is_under = move |key: &ResourceKey| key.kind == kind && key.id.starts_with(prefix);
        self.entries
            .range(from..)
            .take_while(move |(key, _)| is_under(key))
            .map(|(key, entry)| (&key.id, entry))
    }

    /// All entries, ascending by key.
    pub fn entries(&self) -> impl Iterator<Item = (&ResourceKey, &StoreEntry)> {
        self.entries.iter()
    }

    /// All entries as the compiler takes them.
    pub fn resources(&self) -> Vec<Resource> {
        let resource = |(key, entry): (&ResourceKey, &StoreEntry)| Resource {
            kind: key.kind,
            id: key.id.clone(),
            json: entry.json.clone(),
        };
        self.entries.iter().map(resource).collect()
    }

    /// Those that have not ended by then, and are no credentials of a consumer that has: what a store holds longer than it
    /// should, since it cannot be written, is left out.
    pub fn resources_at(&self, unix_ms: u64) -> Vec<Resource> {
        let has_ended = |entry: &StoreEntry| entry.expires_ms.is_some_and(|at_ms| at_ms <= unix_ms);
        let is_ended = |one: &Resource| match (one.kind, one.id.split_once('/')) {
            (Kind::Credentials, Some((consumer, _))) => {
                self.get(Kind::Consumers, consumer).is_some_and(has_ended)
            }
            _ => false,
        };
        let mut resources = self.resources();
        if self.entries.values().any(has_ended) {
            resources.retain(|one| !self.get(one.kind, &one.id).is_none_or(has_ended) && !is_ended(one));
        }
        resources
    }

    /// The entries that `newer` has otherwise, ascending by key, as they are here and there.
    ///
    /// Parts both states share are not visited, so of neighbours this costs about what was changed.
    pub fn differences<'a>(
        &'a self,
        newer: &'a StoreState,
    ) -> impl Iterator<Item = (&'a ResourceKey, Option<&'a StoreEntry>, Option<&'a StoreEntry>)> {
        self.entries.diff(&newer.entries).map(|item| match item {
            DiffItem::Add(key, after) => (key, None, Some(after)),
            DiffItem::Update { old: (key, before), new: (_, after) } => (key, Some(before), Some(after)),
            DiffItem::Remove(key, before) => (key, Some(before), None),
        })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A value the doors keep for themselves, such as hashed keys: no resource, without history.
    pub fn setting(&self, name: &str) -> Option<&Arc<str>> {
        self.settings.get(name)
    }

    /// All such values, ascending by name.
    pub fn settings(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.settings.iter()
    }

    /// The same with these texts and their ends put, or taken out where there is none, as of a revision of another store.
    pub fn with(
        mut self,
        revision: Revision,
        texts: impl IntoIterator<Item = (ResourceKey, Option<(Arc<str>, Option<u64>)>)>,
    ) -> StoreState {
        for (key, text) in texts {
            let before = self.entries.get(&key);
            if before.map(StoreEntry::text_and_end) == text.as_ref().map(|(json, end)| (json, *end)) {
                continue;
            }
            let created = before.map_or(revision, |entry| entry.created);
            let entry = |(json, expires_ms)| StoreEntry { json, created, modified: revision, expires_ms };
            self.replace(&key, text.map(entry));
        }
        self.revision = revision;
        self
    }

    /// Puts or deletes an entry and gives what was there.
    pub(crate) fn replace(&mut self, key: &ResourceKey, entry: Option<StoreEntry>) -> Option<StoreEntry> {
        match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(key),
        }
    }

    pub(crate) fn replace_setting(&mut self, name: &Arc<str>, value: Option<Arc<str>>) {
        match value {
            Some(value) => drop(self.settings.insert(name.clone(), value)),
            None => drop(self.settings.remove(name)),
        }
    }

    /// Takes a revision back.
    pub(crate) fn undo(&mut self, committed: &StoreCommit) {
        for changed in &committed.changes {
            self.replace(&changed.key, changed.before.clone());
        }
        self.revision = Revision(committed.revision.0.saturating_sub(1));
    }
}

/// Who wrote, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorship {
    /// The name of the key used, or of the part of the gateway that wrote.
    pub author: String,
    /// What the author gave as reason.
    pub reason: Option<String>,
}

impl Authorship {
    /// By `author`, without a reason.
    pub fn by(author: &str) -> Authorship {
        Authorship { author: author.to_owned(), reason: None }
    }
}

/// What one revision did to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    /// The key.
    pub key: ResourceKey,
    /// What was there before; `None` where it is new.
    pub before: Option<StoreEntry>,
    /// What is there now; `None` where it was deleted.
    pub after: Option<StoreEntry>,
}

/// One revision: never changed after it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCommit {
    /// Its number.
    pub revision: Revision,
    /// When it was written, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Who wrote it, and why.
    pub by: Authorship,
    /// What it changed, one item per key, ascending by key.
    pub changes: Vec<EntryChange>,
}
