//! The [`Store`] trait: read the newest state, propose a transaction, follow commits, read the history.
//!
//! Plain data only. Nothing here depends on memory, the embedded database or etcd.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use yumen_config::{Kind, Resource};

use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};

/// Error of a store operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The revision was trimmed from the history, or was never committed.
    #[error("revision {} is no longer in the history", .0.0)]
    Compacted(Revision),
    /// The store rejects writes through this API.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// The resulting configuration violates a constraint of the configuration.
    #[error("{0}")]
    Refused(String),
    /// The medium is out of space or quota, or the value exceeds its size limit.
    #[error("the disk is full: {0}")]
    Full(String),
    /// I/O error of the medium.
    #[error("the store failed: {0}")]
    Io(#[source] Arc<io::Error>),
    /// The medium holds damaged data, or data of a newer format version.
    #[error("the store cannot be read: {0}")]
    Corrupt(String),
    /// The texts are sealed with a key that the keyring lacks.
    #[error("the store cannot be opened: {0}")]
    Sealed(String),
    /// Another process has locked the store.
    #[error("{0}")]
    InUse(String),
    /// The store must exist and does not.
    #[error("the store is missing: {0}")]
    Missing(String),
    /// The etcd cluster did not answer, or answered with an error.
    #[error("{0}")]
    Unreachable(String),
    /// A successor is taking over the store. A retry succeeds once the handover has ended.
    #[error("the store changes hands: {0}")]
    HandoverInProgress(&'static str),
    /// The operation is not supported by this kind of store.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The writer thread of the store has ended.
    #[error("the store has ended")]
    Ended,
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        match error.kind() {
            // Errors of space have a kind of their own: the remedy is the operator's, and nothing is damaged.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreError::Full(error.to_string())
            }
            _ => StoreError::Io(Arc::new(error)),
        }
    }
}

/// Reads the newest state and writes the next one into a draft; `false` discards the draft.
///
/// The store calls the function again, with a newer state, after a concurrent write. The function must not
/// block.
pub type DecideFn = Box<dyn FnMut(&mut Draft) -> bool + Send>;

/// Called once with the outcome of a proposal; `None` if the proposal changed nothing.
pub type DoneFn = Box<dyn FnOnce(Result<Option<Arc<StoreCommit>>, StoreError>) + Send>;

/// A transaction to be decided by the writer of the store.
pub struct Proposal {
    /// Author and reason that the history records.
    pub by: Authorship,
    /// Function that decides on the newest state.
    pub decide: DecideFn,
    /// Callback for the outcome.
    pub done: DoneFn,
}

/// Called for every revision in order, on a thread of the store. The function must not block.
pub type FollowerFn = Box<dyn FnMut(&Arc<StoreCommit>) + Send>;

/// Called once with the number of deletions that were released.
pub type ConfirmFn = Box<dyn FnOnce(Result<usize, StoreError>) + Send>;

/// A versioned store of resources.
pub trait Store: Send + Sync {
    /// Returns the newest state without waiting for the medium.
    fn state(&self) -> StoreState;

    /// Queues a transaction. Proposals are decided in order.
    ///
    /// `done` is called once the revision is durable, that is, survives a crash.
    fn propose(&self, proposal: Proposal);

    /// Registers `follower` for every revision after the returned state.
    fn follow(&self, follower: FollowerFn) -> StoreState;

    /// Returns at most `limit` revisions older than `before`, newest first. May wait for the medium.
    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError>;

    /// Writes a consistent copy, history included, to the file `to`. May wait for the medium.
    fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        Err(StoreError::Unsupported("this store does not support backups"))
    }

    /// Checks that a write made now would be found after a restart, as far as the medium shows.
    ///
    /// Without a default, so that a wrapper cannot hide the medium beneath it.
    fn check(&self) -> Result<(), StoreError>;

    /// Returns the error of the newest write; `None` if it succeeded or if the store reports failures
    /// elsewhere.
    fn failure(&self) -> Option<StoreError>;

    /// Releases deletions that the store holds because there are many of them. Most stores hold none.
    fn confirm(&self, _by: Authorship, done: ConfirmFn) {
        done(Ok(0));
    }

    /// Returns the state as of a revision in the history. May wait for the medium.
    fn state_at(&self, revision: Revision) -> Result<StoreState, StoreError> {
        const PAGE: usize = 256;
        let mut state = self.state();
        let mut leapt = false;
        while state.revision > revision || leapt {
            // The newest revision included, whose changes are undone first.
            let page = self.history(Some(Revision(state.revision.0 + 1)), PAGE)?;
            // The history was trimmed above the revision.
            if page.is_empty() {
                return Err(StoreError::Compacted(revision));
            }
            for committed in page {
                if leapt {
                    state.revision = committed.revision;
                }
                // A gap in the history: its changes are unknown, so the state cannot be derived.
                if committed.revision != state.revision {
                    return Err(StoreError::Compacted(revision));
                }
                // An empty revision is written by a restore. Lower numbers belong to the replaced history, so
                // the revision number jumps to the next one found.
                leapt = committed.revision > revision && committed.changes.is_empty();
                if committed.revision <= revision {
                    break;
                }
                state.undo(&committed);
            }
        }
        match state.revision == revision {
            true => Ok(state),
            false => Err(StoreError::Compacted(revision)),
        }
    }
}

/// The closure's value, and the revision if one was written.
pub type CommitOutcome<T> = (T, Option<Arc<StoreCommit>>);

/// Proposes `decide` and waits until the result is durable. An `Err` of the closure writes nothing.
pub async fn commit<T, E>(
    store: &dyn Store,
    by: Authorship,
    mut decide: impl FnMut(&mut Draft) -> Result<T, E> + Send + 'static,
) -> Result<Result<CommitOutcome<T>, E>, StoreError>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let verdict = Arc::new(Mutex::new(None));
    let (sender, receiver) = oneshot::channel();
    let result_slot = verdict.clone();
    let decide: DecideFn = Box::new(move |draft| {
        let result = decide(draft);
        let is_accepted = result.is_ok();
        // Overwritten: the store may decide again after a conflict, and the last decision counts.
        *result_slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        is_accepted
    });
    // A caller that was cancelled has dropped the receiver; the outcome is discarded.
    let done: DoneFn = Box::new(move |result| drop(sender.send(result)));
    store.propose(Proposal { by, decide, done });
    // A dropped callback means that the writer has ended.
    let committed = receiver.await.map_err(|_| StoreError::Ended)??;
    let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(verdict.ok_or(StoreError::Ended)?.map(|value| (value, committed)))
}

/// The next state during a decision.
pub struct Draft {
    state: StoreState,
    touched: BTreeMap<ResourceKey, Option<StoreEntry>>,
    settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
    now_ms: u64,
    differs: Option<DifferenceFn>,
    removed: BTreeSet<ResourceKey>,
    written_before: Arc<BTreeSet<ResourceKey>>,
}

/// Difference between the store's content and the served state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreDifference {
    /// The store has deleted the object; the deletion is held.
    Held,
    /// The store's value under this key is not a valid object.
    Unreadable,
}

type DifferenceFn = Box<dyn Fn(&ResourceKey) -> Option<StoreDifference> + Send>;

impl Draft {
    /// Creates a draft on top of `state`, written at `now_ms` milliseconds since the Unix epoch.
    pub(crate) fn new(state: StoreState, now_ms: u64) -> Draft {
        let (touched, settings) = (BTreeMap::new(), BTreeMap::new());
        Draft {
            state,
            touched,
            settings,
            now_ms,
            differs: None,
            removed: BTreeSet::new(),
            written_before: Arc::default(),
        }
    }

    /// Adds the function that reports differences between store and served state.
    pub(crate) fn knowing(
        mut self,
        differs: impl Fn(&ResourceKey) -> Option<StoreDifference> + Send + 'static,
    ) -> Draft {
        self.differs = Some(Box::new(differs));
        self
    }

    /// Adds the keys that earlier parts of the same proposal have written.
    pub(crate) fn following(mut self, written_before: Arc<BTreeSet<ResourceKey>>) -> Draft {
        self.written_before = written_before;
        self
    }

    /// Keys that earlier parts of the same proposal put or deleted.
    ///
    /// A change that exceeds one etcd transaction is written in parts. Other writers may commit between the
    /// parts.
    pub fn written_before(&self) -> &BTreeSet<ResourceKey> {
        &self.written_before
    }

    /// Whether the object is served although the store has deleted it. Writing it unchanged restores it.
    pub fn is_held(&self, key: &ResourceKey) -> bool {
        // A write by this draft restores or deletes the object, so the hold has ended for later steps.
        !self.touched.contains_key(key) && self.difference(key) == Some(StoreDifference::Held)
    }

    /// Removes an invalid value from the store; returns whether one was present.
    pub fn remove_unreadable(&mut self, key: &ResourceKey) -> bool {
        let exists = self.difference(key) == Some(StoreDifference::Unreadable);
        exists && self.removed.insert(key.clone())
    }

    fn difference(&self, key: &ResourceKey) -> Option<StoreDifference> {
        self.differs.as_ref().and_then(|differs| differs(key))
    }

    /// The base state with the writes of this draft.
    pub fn state(&self) -> &StoreState {
        &self.state
    }

    /// The revision that a commit of this draft creates.
    pub fn revision(&self) -> Revision {
        Revision(self.state.revision.0 + 1)
    }

    /// Commit time in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Creates or replaces an object. With `expires_ms`, the store deletes the object at that time.
    pub fn put(&mut self, key: ResourceKey, json: Arc<str>, expires_ms: Option<u64>) {
        let revision = self.revision();
        // An object that is replaced keeps its creation, as in etcd.
        let created = self.state.get(key.kind, &key.id).map_or(revision, |entry| entry.created);
        self.write(key, Some(StoreEntry { json, created, modified: revision, expires_ms }));
    }

    /// Deletes an object; returns whether it existed.
    ///
    /// Deleting a consumer deletes its credentials too. Otherwise the next consumer of that name would
    /// inherit them.
    pub fn delete(&mut self, kind: Kind, id: &str) -> bool {
        if kind == Kind::Consumers {
            let prefix = format!("{id}/credentials/");
            let credentials: Vec<Arc<str>> =
                self.state.under(Kind::Credentials, &prefix).map(|(id, _)| id.clone()).collect();
            for credential in credentials {
                self.write(ResourceKey::new(Kind::Credentials, credential), None);
            }
        }
        let exists = self.state.get(kind, id).is_some();
        if exists {
            self.write(ResourceKey::new(kind, id), None);
        }
        exists
    }

    /// Puts all `resources`, and deletes every other object except those of the kinds `retained`.
    pub fn replace_all(&mut self, resources: &[Resource], retained: &[Kind]) {
        let named: HashSet<(Kind, &str)> = resources.iter().map(|one| (one.kind, &*one.id)).collect();
        let deleted: Vec<ResourceKey> = self
            .state
            .entries()
            .map(|(key, _)| key)
            .filter(|key| !retained.contains(&key.kind) && !named.contains(&(key.kind, &*key.id)))
            .cloned()
            .collect();
        for key in deleted {
            self.delete(key.kind, &key.id);
        }
        for one in resources {
            // Unchanged objects keep their revision and cost no compilation.
            if self.state.get(one.kind, &one.id).is_none_or(|entry| entry.json != one.json) {
                self.put(ResourceKey::new(one.kind, one.id.clone()), one.json.clone(), None);
            }
        }
    }

    /// Sets or removes a value of the APIs; see [`StoreState::setting`].
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        let (name, value): (Arc<str>, Option<Arc<str>>) = (name.into(), value.map(Arc::from));
        // Into the state as well, so that later proposals of the batch see the value.
        self.state.replace_setting(&name, value.clone());
        self.settings.insert(name, value);
    }

    fn write(&mut self, key: ResourceKey, entry: Option<StoreEntry>) {
        let before = self.state.replace(&key, entry);
        // The first state before the draft counts, however often the draft writes the key.
        self.touched.entry(key).or_insert(before);
    }

    /// Returns the resulting state, the revision if any entry changed, and the settings.
    pub(crate) fn finish(self, by: Authorship) -> FinishedDraft {
        let Draft { mut state, touched, settings, now_ms, removed, .. } = self;
        let revision = Revision(state.revision.0 + 1);
        // A key created and deleted within one draft has neither value and is no change.
        let changed = |(key, before): (ResourceKey, Option<StoreEntry>)| {
            let after = state.get(key.kind, &key.id).cloned();
            (before.is_some() || after.is_some()).then_some(EntryChange { key, before, after })
        };
        let changes: Vec<EntryChange> = touched.into_iter().filter_map(changed).collect();
        let committed = (!changes.is_empty()).then(|| {
            // Only with changes: settings alone make no revision.
            state.revision = revision;
            Arc::new(StoreCommit { revision, time_ms: now_ms, by, changes })
        });
        FinishedDraft { state, committed, settings, removed }
    }
}

/// Result of a draft.
pub(crate) struct FinishedDraft {
    pub(crate) state: StoreState,
    pub(crate) committed: Option<Arc<StoreCommit>>,
    pub(crate) settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Keys of invalid values to remove from the store.
    pub(crate) removed: BTreeSet<ResourceKey>,
}
