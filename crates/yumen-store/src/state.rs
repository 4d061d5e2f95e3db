//! The content of a store as of one revision, and the changes of one revision. Plain data.
//!
//! Clones of a state share all entries. Does not interpret the texts.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use yumen_config::{Kind, Resource};

/// Number of a change of one store, ascending; 0 is the empty store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// Kind and id of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Kind of the resource.
    pub kind: Kind,
    /// Id within the kind, as in [`Resource::id`].
    pub id: Arc<str>,
}

impl ResourceKey {
    /// Creates a key.
    pub fn new(kind: Kind, id: impl Into<Arc<str>>) -> ResourceKey {
        ResourceKey { kind, id: id.into() }
    }
}

/// Name of the object in problems and in the history, such as `routes/1`.
impl std::fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.collection(), self.id)
    }
}

/// One stored resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// Compact JSON, as in [`Resource::json`].
    pub json: Arc<str>,
    /// Revision that created the object.
    pub created: Revision,
    /// Revision of the last write.
    pub modified: Revision,
    /// Expiry in milliseconds since the Unix epoch.
    pub expires_ms: Option<u64>,
}

impl StoreEntry {
    /// Text and expiry.
    pub fn text_and_end(&self) -> (&Arc<str>, Option<u64>) {
        (&self.json, self.expires_ms)
    }
}

/// All entries and settings as of one revision.
#[derive(Debug, Clone, Default)]
pub struct StoreState {
    /// Revision of the state.
    pub revision: Revision,
    entries: OrdMap<ResourceKey, StoreEntry>,
    settings: OrdMap<Arc<str>, Arc<str>>,
}

impl StoreState {
    /// Creates a state.
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

    /// Returns one entry.
    pub fn get(&self, kind: Kind, id: &str) -> Option<&StoreEntry> {
        self.entries.get(&ResourceKey::new(kind, id))
    }

    /// Entries of a kind, ascending by id.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, &StoreEntry)> {
        self.starting_at(kind, "")
    }

    /// Entries of a kind from an id on, ascending by id.
    pub fn starting_at(
        &self,
        kind: Kind,
        id: &str,
    ) -> impl Iterator<Item = (&Arc<str>, &StoreEntry)> + use<'_> {
        let from = ResourceKey::new(kind, id);
        // Keys are ordered by kind first, so the entries of a kind are contiguous.
        let of_kind = self.entries.range(from..).take_while(move |(key, _)| key.kind == kind);
        of_kind.map(|(key, entry)| (&key.id, entry))
    }

    /// Entries of a kind with ids that begin with `prefix`, ascending by id.
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

    /// All entries as input of the compiler.
    pub fn resources(&self) -> Vec<Resource> {
        let resource = |(key, entry): (&ResourceKey, &StoreEntry)| Resource {
            kind: key.kind,
            id: key.id.clone(),
            json: entry.json.clone(),
        };
        self.entries.iter().map(resource).collect()
    }

    /// The unexpired entries as input of the compiler, without credentials of expired consumers.
    ///
    /// A store that cannot be written retains expired entries.
    pub fn resources_at(&self, unix_ms: u64) -> Vec<Resource> {
        let has_ended = |entry: &StoreEntry| entry.expires_ms.is_some_and(|at_ms| at_ms <= unix_ms);
        let is_ended = |one: &Resource| match (one.kind, one.id.split_once('/')) {
            (Kind::Credentials, Some((consumer, _))) => {
                // A credential without its consumer would be reported as an error at each compilation.
                self.get(Kind::Consumers, consumer).is_some_and(has_ended)
            }
            _ => false,
        };
        let mut resources = self.resources();
        // Usually no entry has expired, and nothing is looked up again.
        if self.entries.values().any(has_ended) {
            resources.retain(|one| !self.get(one.kind, &one.id).is_none_or(has_ended) && !is_ended(one));
        }
        resources
    }

    /// Entries that differ in `newer`, ascending by key, in both versions.
    ///
    /// Shared parts are skipped, so the cost is proportional to the change between related states.
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

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the state has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A value of the APIs, such as hashed keys; no resource and without history.
    pub fn setting(&self, name: &str) -> Option<&Arc<str>> {
        self.settings.get(name)
    }

    /// All settings, ascending by name.
    pub fn settings(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.settings.iter()
    }

    /// Returns the state with texts replaced, or removed if `None`, as of a revision of another store.
    pub fn with(
        mut self,
        revision: Revision,
        texts: impl IntoIterator<Item = (ResourceKey, Option<(Arc<str>, Option<u64>)>)>,
    ) -> StoreState {
        for (key, text) in texts {
            let before = self.entries.get(&key);
            // An unchanged text keeps its revision.
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

    /// Replaces or removes an entry; returns the previous one.
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

    /// Reverts the changes of the newest revision.
    pub(crate) fn undo(&mut self, committed: &StoreCommit) {
        for changed in &committed.changes {
            self.replace(&changed.key, changed.before.clone());
        }
        // Exact for consecutive revisions; across gaps, callers set the revision themselves.
        self.revision = Revision(committed.revision.0.saturating_sub(1));
    }
}

/// Author and reason of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorship {
    /// Name of the Admin API key, or of the writing component.
    pub author: String,
    /// Reason given by the author.
    pub reason: Option<String>,
}

impl Authorship {
    /// Creates an authorship without a reason.
    pub fn by(author: &str) -> Authorship {
        Authorship { author: author.to_owned(), reason: None }
    }
}

/// Change of one key in one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    /// Key of the entry.
    pub key: ResourceKey,
    /// Entry before the change; `None` if created.
    pub before: Option<StoreEntry>,
    /// Entry after the change; `None` if deleted.
    pub after: Option<StoreEntry>,
}

/// One committed revision; immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCommit {
    /// Number of the revision.
    pub revision: Revision,
    /// Commit time in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Author and reason.
    pub by: Authorship,
    /// Changes, one per key, ascending by key.
    pub changes: Vec<EntryChange>,
}
