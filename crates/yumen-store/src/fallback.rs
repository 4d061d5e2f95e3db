//! A store that is there even while the real one is not: read-only on the last good state until it heals.
//!
//! Knows how to try again and how to hand over; must not know what kind of store it waits for.

mod handover;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::embedded::{EmbeddedMedium, EmbeddedOptions, MissingStorePolicy};
use crate::engine::now_ms;
use crate::last_good::{LastGood, LastGoodTask, RecoveredState};
use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreState};
use crate::store::{FollowerFn, Proposal, Store, StoreError};

/// The author of the revision that leads from the last good state to that of the store.
///
/// It has the number of the store's state: that of the last good one where nothing was written since, or a
/// lower one where an older backup was restored.
pub const RECOVERY: &str = "recovery";

/// How often a store that could not be opened is tried again.
pub const RETRY_EVERY: Duration = Duration::from_secs(2);

/// The pause is at least so many times what an attempt took.
const PAUSE_PER_ATTEMPT: u32 = 20;

/// Where what is served comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOrigin {
    /// From the store.
    Store,
    /// From the last good state on disk; nothing can be written.
    LastGood {
        /// Why the store cannot be used, as of the newest attempt.
        reason: String,
        /// Since when.
        since: SystemTime,
        /// What is missing from the last good state because its files are damaged.
        damage: Option<String>,
    },
}

/// Opens the real store; asked again until it succeeds.
pub type OpenStore = Box<dyn FnMut() -> Result<OpenedStore, StoreError> + Send>;

/// A store, and who keeps its last good state.
pub struct OpenedStore {
    /// Keeps the last good state in step. First, so that it is dropped while the store is still there.
    pub keeper: Option<LastGoodTask>,
    /// The store.
    pub store: Arc<dyn Store>,
}

/// The embedded store of `directory`, or, where it cannot be opened, the last good state until it can.
///
/// Fails where there is neither, telling both reasons; where another process has the directory; and where the
/// keyring does not open the store. What is served was once committed.
pub fn open_or_last_good(
    directory: &Path,
    options: EmbeddedOptions,
) -> Result<Arc<FallbackStore>, StoreError> {
    let place = directory.to_owned();
    let edge = options.edge();
    let mut options = options;
    let open = Box::new(move || {
        let opened = EmbeddedMedium::open(&place, options.clone());
        // There was a store, or something to serve instead: what is not there later is gone.
        options.absent = MissingStorePolicy::Fail;
        let store: Arc<dyn Store> = Arc::new(opened?);
        let keeper =
            LastGoodTask::start(&place, store.clone(), options.seal.clone(), options.versions.clone())?;
        Ok(OpenedStore { store, keeper: Some(keeper) })
    });
    FallbackStore::start(open, || LastGood::recover(directory, &edge), RETRY_EVERY)
}

/// The outer store others hold; what is inside it changes once.
pub struct FallbackStore {
    // First, so that nothing is opened any more when the rest is dropped.
    retry: Mutex<Option<OpenRetry>>,
    shared: Arc<FallbackShared>,
    open: SharedOpen,
    retry_every: Duration,
}

type SharedOpen = Arc<Mutex<OpenStore>>;

impl FallbackStore {
    /// The store `open` gives, or what `last_good` gives while it gives none. One in use, sealed or gone is an error.
    pub fn start<R: Into<RecoveredState>>(
        mut open: OpenStore,
        last_good: impl FnOnce() -> Result<R, StoreError>,
        retry_every: Duration,
    ) -> Result<Arc<FallbackStore>, StoreError> {
        let started = |shared: Arc<FallbackShared>, open: SharedOpen, retry: Option<OpenRetry>| {
            Arc::new(FallbackStore { retry: Mutex::new(retry), shared, open, retry_every })
        };
        let error = match open() {
            Ok(opened) => {
                let shared = Arc::new(FallbackShared::new(FallbackInner::Store(opened)));
                return Ok(started(shared, Arc::new(Mutex::new(open)), None));
            }
            // Mistakes of an operator, to be told at once; the store itself is whole.
            Err(error @ (StoreError::InUse(_) | StoreError::Sealed(_) | StoreError::Missing(_))) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let recovered = last_good().map_err(|missing| {
            StoreError::Corrupt(format!("{error}; nor is there a last good state: {missing}"))
        })?;
        let RecoveredState { state, damage } = recovered.into();
        let (reason, revision) = (error.to_string(), state.revision.0);
        tracing::error!(reason, revision, "store cannot be opened, serving the last good state");
        let shared =
            FallbackShared::new(FallbackInner::LastGood { state, reason, since: SystemTime::now(), damage });
        let shared = Arc::new(shared);
        let open = Arc::new(Mutex::new(open));
        let retry = OpenRetry::start(Arc::downgrade(&shared), open.clone(), retry_every)?;
        Ok(started(shared, open, Some(retry)))
    }

    /// Where what is served comes from at the moment.
    pub fn status(&self) -> StateOrigin {
        match &*self.shared.inner() {
            FallbackInner::Store(_) | FallbackInner::Lent { .. } => StateOrigin::Store,
            FallbackInner::LastGood { reason, since, damage, .. } => {
                StateOrigin::LastGood { reason: reason.clone(), since: *since, damage: damage.clone() }
            }
        }
    }
}

impl Store for FallbackStore {
    fn state(&self) -> StoreState {
        match &*self.shared.inner() {
            FallbackInner::Store(opened) => opened.store.state(),
            FallbackInner::LastGood { state, .. } | FallbackInner::Lent { state, .. } => state.clone(),
        }
    }

    fn propose(&self, proposal: Proposal) {
        let refused = match &*self.shared.inner() {
            // Under the lock, so that none comes behind the end of a store that is lent.
            FallbackInner::Store(opened) => return opened.store.propose(proposal),
            FallbackInner::Lent { held, .. } => match held.keep(proposal) {
                None => return,
                Some(proposal) => (proposal.done, held.refusal()),
            },
            FallbackInner::LastGood { reason, .. } => (proposal.done, read_only(reason)),
        };
        let (done, error) = refused;
        done(Err(error));
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        // Healing holds this lock too, so a follower is told by the old or by the new, never by both.
        let mut followers = self.shared.followers();
        match self.shared.store() {
            Ok(store) => {
                let shared = Arc::new(Mutex::new(follower));
                followers.direct.push(shared.clone());
                drop(followers);
                store.follow(Box::new(move |committed| tell(&shared, committed)))
            }
            Err(_) => {
                followers.by_us.push(follower);
                self.state()
            }
        }
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        self.shared.store()?.history(before, limit)
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.shared.store()?.backup(to)
    }

    fn check(&self) -> Result<(), StoreError> {
        match &*self.shared.inner() {
            FallbackInner::Store(opened) => opened.store.check(),
            // It is not this process's to write to, which is told elsewhere.
            FallbackInner::LastGood { .. } | FallbackInner::Lent { .. } => Ok(()),
        }
    }

    fn failure(&self) -> Option<StoreError> {
        match &*self.shared.inner() {
            FallbackInner::Store(opened) => opened.store.failure(),
            FallbackInner::LastGood { reason, .. } => Some(read_only(reason)),
            FallbackInner::Lent { .. } => None,
        }
    }
}

enum FallbackInner {
    Store(OpenedStore),
    LastGood {
        state: StoreState,
        reason: String,
        since: SystemTime,
        damage: Option<String>,
    },
    /// Another process has it, or is about to.
    Lent {
        state: StoreState,
        /// Of the last good state, where it was served before.
        damage: Option<String>,
        held: handover::DeferredProposals,
    },
}

struct FallbackShared {
    inner: RwLock<FallbackInner>,
    followers: Mutex<FallbackFollowers>,
}

#[derive(Default)]
struct FallbackFollowers {
    /// Those who came before the store was there.
    by_us: Vec<FollowerFn>,
    /// Those the store tells by itself.
    direct: Vec<Arc<Mutex<FollowerFn>>>,
}

fn tell(follower: &Mutex<FollowerFn>, committed: &Arc<StoreCommit>) {
    follower.lock().unwrap_or_else(PoisonError::into_inner)(committed);
}

fn read_only(reason: &str) -> StoreError {
    StoreError::ReadOnly(format!(
        "the last good state is served, without history, until the store can be opened: {reason}"
    ))
}

impl FallbackShared {
    fn new(inner: FallbackInner) -> FallbackShared {
        FallbackShared { inner: RwLock::new(inner), followers: Mutex::default() }
    }

    fn inner(&self) -> std::sync::RwLockReadGuard<'_, FallbackInner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, FallbackFollowers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The real store, or why nothing can be written.
    fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        match &*self.inner() {
            FallbackInner::Store(opened) => Ok(opened.store.clone()),
            FallbackInner::LastGood { reason, .. } => Err(read_only(reason)),
            FallbackInner::Lent { held, .. } => Err(held.refusal()),
        }
    }

    fn note(&self, error: &StoreError) {
        if let FallbackInner::LastGood { reason, .. } =
            &mut *self.inner.write().unwrap_or_else(PoisonError::into_inner)
        {
            *reason = error.to_string();
        }
    }

    /// Puts the real store in place and tells the followers what differs.
    fn switch_to_store(self: &Arc<FallbackShared>, opened: OpenedStore) {
        let mut followers = self.followers();
        // Whatever the store commits from here on waits for the lock, and so comes after the difference.
        let to = opened.store.follow(forward(Arc::downgrade(self)));
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let from = std::mem::replace(&mut *inner, FallbackInner::Store(opened));
        drop(inner);
        let (FallbackInner::LastGood { state: from, .. } | FallbackInner::Lent { state: from, .. }) = from
        else {
            return;
        };
        let changes = difference(&from, &to);
        let (last_good, revision, changed) = (from.revision.0, to.revision.0, changes.len());
        tracing::info!(last_good, revision, changed, "store reopened");
        if changes.is_empty() && from.revision == to.revision {
            return;
        }
        let by = Authorship::by(RECOVERY);
        let committed = Arc::new(StoreCommit { revision: to.revision, time_ms: now_ms(), by, changes });
        followers.by_us.iter_mut().for_each(|follower| follower(&committed));
    }
}

/// Passes on what the real store tells. It must not keep the store alive.
fn forward(shared: Weak<FallbackShared>) -> FollowerFn {
    Box::new(move |committed| {
        if let Some(shared) = shared.upgrade() {
            shared.followers().by_us.iter_mut().for_each(|follower| follower(committed));
        }
    })
}

/// What leads from one state to another, ascending by key.
fn difference(from: &StoreState, to: &StoreState) -> Vec<EntryChange> {
    let keys: BTreeSet<&ResourceKey> = from.entries().chain(to.entries()).map(|(key, _)| key).collect();
    let changed = |key: &ResourceKey| {
        let (before, after) = (from.get(key.kind, &key.id), to.get(key.kind, &key.id));
        let changed = || EntryChange { key: key.clone(), before: before.cloned(), after: after.cloned() };
        (before != after).then(changed)
    };
    keys.into_iter().filter_map(changed).collect()
}

fn open_now(open: &SharedOpen) -> Result<OpenedStore, StoreError> {
    open.lock().unwrap_or_else(PoisonError::into_inner)()
}

/// Tries to open the store every so often, until it succeeds or this is dropped.
struct OpenRetry {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OpenRetry {
    fn start(
        shared: Weak<FallbackShared>,
        open: SharedOpen,
        every: Duration,
    ) -> Result<OpenRetry, StoreError> {
        let (end, ended) = channel::<()>();
        let run = move || {
            let mut pause = every;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begin = Instant::now();
                let opened = open_now(&open);
                // Reading a large damaged file again and again must not occupy a core.
                pause = every.max(begin.elapsed() * PAUSE_PER_ATTEMPT);
                let Some(shared) = shared.upgrade() else { return };
                match opened {
                    Ok(opened) => return shared.switch_to_store(opened),
                    Err(error) => shared.note(&error),
                }
            }
        };
        let thread = thread::Builder::new().name("yumen-store-retry".into()).spawn(run)?;
        Ok(OpenRetry { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for OpenRetry {
    fn drop(&mut self) {
        drop(self.end.take());
        // A follower may hold, and drop, the store: a thread cannot wait for itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("store reopen task panicked");
        }
    }
}
