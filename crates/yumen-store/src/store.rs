//! The door to every store: read the newest state, propose a transaction, follow what was committed, look back.
//!
//! Plain data only: neither memory, the embedded store nor a cluster shows through here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use yumen_config::Kind;

use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};

/// Why a store did not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The revision is no longer kept, or was never reached.
    #[error("revision {} is no longer in the history", .0.0)]
    Compacted(Revision),
    /// The store cannot be written through this door.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// What would come of it breaks what the configuration itself demands.
    #[error("{0}")]
    Refused(String),
    /// There is no room for more.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The medium failed.
    #[error("the store failed: {0}")]
    Io(#[source] Arc<io::Error>),
    /// What is on the medium is not what was written there, or of a version from the future.
    #[error("the store cannot be read: {0}")]
    Corrupt(String),
    /// It is sealed under a key the keyring does not hold.
    #[error("the store cannot be opened: {0}")]
    Sealed(String),
    /// Another process has it.
    #[error("{0}")]
    InUse(String),
    /// There is none where one must be.
    #[error("the store is missing: {0}")]
    Missing(String),
    /// The cluster it is in gave no answer, or none that helps.
    #[error("{0}")]
    Unreachable(String),
    /// Another process is taking it over; whoever asks again soon finds one of the two.
    #[error("the store changes hands: {0}")]
    HandoverInProgress(&'static str),
    /// This kind of store does not do that.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The store has ended.
    #[error("the store has ended")]
    Ended,
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreError::Full(error.to_string())
            }
            _ => StoreError::Io(Arc::new(error)),
        }
    }
}

/// Looks at the newest state and writes into a draft of the next; `false` leaves everything as it was.
///
/// It may be asked again, with a newer state, when somebody else wrote in between. It must not block.
pub type DecideFn = Box<dyn FnMut(&mut Draft) -> bool + Send>;

/// Told once what became of a proposal; `None` where nothing was to be written.
pub type DoneFn = Box<dyn FnOnce(Result<Option<Arc<StoreCommit>>, StoreError>) + Send>;

/// A transaction to be.
pub struct Proposal {
    /// Who proposes it.
    pub by: Authorship,
    /// What it does.
    pub decide: DecideFn,
    /// Who wants to know.
    pub done: DoneFn,
}

/// Told of every revision in order, on a thread of the store. It must not block.
pub type FollowerFn = Box<dyn FnMut(&Arc<StoreCommit>) + Send>;

/// Told once how many deletions were let through.
pub type ConfirmFn = Box<dyn FnOnce(Result<usize, StoreError>) + Send>;

/// A place where resources live.
pub trait Store: Send + Sync {
    /// The newest state; never waits for the medium.
    fn state(&self) -> StoreState;

    /// Hands a transaction over. Proposals are decided one after another; what was decided is
    /// acknowledged when it would survive a crash.
    fn propose(&self, proposal: Proposal);

    /// Has every revision after the returned state told to `follower`.
    fn follow(&self, follower: FollowerFn) -> StoreState;

    /// Revisions older than `before`, the newest first, at most `limit`. May wait for the medium.
    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError>;

    /// Writes everything, history included, as of one moment to the file `to`. May wait for the medium.
    fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        Err(StoreError::Unsupported("this store does not support backups"))
    }

    /// Whether what is written now would be there after a restart, as far as a look at the medium tells.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Why the newest write failed; `None` where it did not, or where failures are told otherwise.
    fn failure(&self) -> Option<StoreError> {
        None
    }

    /// Lets deletions through that were held back because they were so many. Most stores hold none back.
    fn confirm(&self, _by: Authorship, done: ConfirmFn) {
        done(Ok(0));
    }

    /// The state as of a revision that is still kept. May wait for the medium.
    fn state_at(&self, revision: Revision) -> Result<StoreState, StoreError> {
        const PAGE: usize = 256;
        let mut state = self.state();
        let mut leapt = false;
        while state.revision > revision || leapt {
            let page = self.history(Some(Revision(state.revision.0 + 1)), PAGE)?;
            if page.is_empty() {
                return Err(StoreError::Compacted(revision));
            }
            for committed in page {
                if leapt {
                    state.revision = committed.revision;
                }
                if committed.revision != state.revision {
                    return Err(StoreError::Compacted(revision));
                }
                // What changes nothing comes of a restore: the numbers before it are of a history that was replaced.
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

/// What committing gave: the closure's value, and the revision if one was written.
pub type CommitOutcome<T> = (T, Option<Arc<StoreCommit>>);

/// Proposes `decide` and waits until it is durable. An `Err` of the closure writes nothing.
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
    let (tell, told) = oneshot::channel();
    let noted = verdict.clone();
    let decide: DecideFn = Box::new(move |draft| {
        let result = decide(draft);
        let is_forwarded = result.is_ok();
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        is_forwarded
    });
    // Whoever no longer waits does not want to know.
    let done: DoneFn = Box::new(move |result| drop(tell.send(result)));
    store.propose(Proposal { by, decide, done });
    let committed = told.await.map_err(|_| StoreError::Ended)??;
    let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(verdict.ok_or(StoreError::Ended)?.map(|value| (value, committed)))
}

/// The next state while it is being written.
pub struct Draft {
    state: StoreState,
    touched: BTreeMap<ResourceKey, Option<StoreEntry>>,
    settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
    now_ms: u64,
    differs: Option<DifferenceFn>,
    removed: BTreeSet<ResourceKey>,
    written_before: Arc<BTreeSet<ResourceKey>>,
}

/// How the store itself differs from the state that is served of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreDifference {
    /// The object is gone there, and its deletion held back.
    Held,
    /// What lies there is no object.
    Unreadable,
}

type DifferenceFn = Box<dyn Fn(&ResourceKey) -> Option<StoreDifference> + Send>;

impl Draft {
    /// A draft on top of `state`, written at `now_ms` since the Unix epoch.
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

    /// Has it know where the store differs from the state.
    pub(crate) fn knowing(
        mut self,
        differs: impl Fn(&ResourceKey) -> Option<StoreDifference> + Send + 'static,
    ) -> Draft {
        self.differs = Some(Box::new(differs));
        self
    }

    /// Has it know what the same proposal has written already.
    pub(crate) fn following(mut self, written_before: Arc<BTreeSet<ResourceKey>>) -> Draft {
        self.written_before = written_before;
        self
    }

    /// What the same proposal put or deleted before it was decided again: a change that is larger than one
    /// transaction of a cluster is written in parts, between which others may write.
    pub fn written_before(&self) -> &BTreeSet<ResourceKey> {
        &self.written_before
    }

    /// Whether an object is served and yet gone in the store: to write it as it is puts it back.
    pub fn is_held(&self, key: &ResourceKey) -> bool {
        !self.touched.contains_key(key) && self.difference(key) == Some(StoreDifference::Held)
    }

    /// Removes what lies in the store under a key and is no object, and tells whether there was anything.
    pub fn remove_unreadable(&mut self, key: &ResourceKey) -> bool {
        let is_there = self.difference(key) == Some(StoreDifference::Unreadable);
        is_there && self.removed.insert(key.clone())
    }

    fn difference(&self, key: &ResourceKey) -> Option<StoreDifference> {
        self.differs.as_ref().and_then(|differs| differs(key))
    }

    /// What is there, with what was written into the draft so far.
    pub fn state(&self) -> &StoreState {
        &self.state
    }

    /// The revision this will be.
    pub fn revision(&self) -> Revision {
        Revision(self.state.revision.0 + 1)
    }

    /// When this is written, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Creates or replaces, to be deleted by itself at `expires_ms` if that is given.
    pub fn put(&mut self, key: ResourceKey, json: Arc<str>, expires_ms: Option<u64>) {
        let revision = self.revision();
        let created = self.state.get(key.kind, &key.id).map_or(revision, |entry| entry.created);
        self.write(key, Some(StoreEntry { json, created, modified: revision, expires_ms }));
    }

    /// Deletes, and tells whether there was anything. A consumer's credentials do not outlive it: they would be
    /// those of whoever gets its name next.
    pub fn delete(&mut self, kind: Kind, id: &str) -> bool {
        if kind == Kind::Consumers {
            let prefix = format!("{id}/credentials/");
            let credentials: Vec<Arc<str>> =
                self.state.under(Kind::Credentials, &prefix).map(|(id, _)| id.clone()).collect();
            for credential in credentials {
                self.write(ResourceKey::new(Kind::Credentials, credential), None);
            }
        }
        let is_there = self.state.get(kind, id).is_some();
        if is_there {
            self.write(ResourceKey::new(kind, id), None);
        }
        is_there
    }

    /// Keeps a value for the doors, or forgets it; see [`StoreState::setting`].
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        let (name, value): (Arc<str>, Option<Arc<str>>) = (name.into(), value.map(Arc::from));
        self.state.replace_setting(&name, value.clone());
        self.settings.insert(name, value);
    }

    fn write(&mut self, key: ResourceKey, entry: Option<StoreEntry>) {
        let before = self.state.replace(&key, entry);
        self.touched.entry(key).or_insert(before);
    }

    /// What was written: the state that comes of it, the revision if there is one, the settings.
    pub(crate) fn finish(self, by: Authorship) -> FinishedDraft {
        let Draft { mut state, touched, settings, now_ms, removed, .. } = self;
        let revision = Revision(state.revision.0 + 1);
        let changed = |(key, before): (ResourceKey, Option<StoreEntry>)| {
            let after = state.get(key.kind, &key.id).cloned();
            (before.is_some() || after.is_some()).then_some(EntryChange { key, before, after })
        };
        let changes: Vec<EntryChange> = touched.into_iter().filter_map(changed).collect();
        let committed = (!changes.is_empty()).then(|| {
            state.revision = revision;
            Arc::new(StoreCommit { revision, time_ms: now_ms, by, changes })
        });
        FinishedDraft { state, committed, settings, removed }
    }
}

/// What a draft came to.
pub(crate) struct FinishedDraft {
    pub(crate) state: StoreState,
    pub(crate) committed: Option<Arc<StoreCommit>>,
    pub(crate) settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// What was no object, and shall not be there any more.
    pub(crate) removed: BTreeSet<ResourceKey>,
}
