//! A store that stays available while the real one cannot be opened: read-only, with the last good state.
//!
//! Owns the retries and the handover to another process; independent of the kind of the real store.

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

/// Author of the revision that leads from the last good state to the state of the reopened store.
///
/// The revision number is that of the store. It equals the last good revision if nothing was written since,
/// and is lower if an older backup was restored.
pub const RECOVERY: &str = "recovery";

/// Interval between attempts to open the store.
pub const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Minimum pause between attempts, as a multiple of the duration of the last attempt.
const PAUSE_PER_ATTEMPT: u32 = 20;

/// Source of the served state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOrigin {
    /// The store.
    Store,
    /// The last good state on disk; writes are refused.
    LastGood {
        /// Error of the newest attempt to open the store.
        reason: String,
        /// Start time of this process's fallback.
        since: SystemTime,
        /// Changes missing from the last good state because its files are damaged.
        damage: Option<String>,
    },
}

/// Opens the real store; called again until it succeeds.
pub type OpenStore = Box<dyn FnMut() -> Result<OpenedStore, StoreError> + Send>;

/// A store and the task that saves its last good state.
pub struct OpenedStore {
    /// Task that saves the last good state. The first field, so that it is dropped before the store.
    pub saver: Option<LastGoodTask>,
    /// The open store.
    pub store: Arc<dyn Store>,
}

/// Opens the embedded store of `directory`, or serves the last good state until the store can be opened.
///
/// Fails if:
/// - neither can be read; the error holds both reasons,
/// - another process has locked the directory,
/// - the keyring lacks the key of the store.
pub fn open_or_last_good(
    directory: &Path,
    options: EmbeddedOptions,
) -> Result<Arc<FallbackStore>, StoreError> {
    let path = directory.to_owned();
    let edge = options.edge();
    let mut options = options;
    let open = Box::new(move || {
        let opened = EmbeddedMedium::open(&path, options.clone());
        // The first attempt found a store or a last good state. A file missing later is an error, never a
        // reason to create an empty store.
        options.absent = MissingStorePolicy::Fail;
        let store: Arc<dyn Store> = Arc::new(opened?);
        let saver =
            LastGoodTask::start(&path, store.clone(), options.seal.clone(), options.versions.clone())?;
        Ok(OpenedStore { store, saver: Some(saver) })
    });
    FallbackStore::start(open, || LastGood::recover(directory, &edge), RETRY_EVERY)
}

/// The store that callers hold across a change of the inner store.
pub struct FallbackStore {
    // First, so that no retry runs while the other fields are dropped.
    retry: Mutex<Option<OpenRetry>>,
    shared: Arc<FallbackShared>,
    open: SharedOpen,
    retry_every: Duration,
}

type SharedOpen = Arc<Mutex<OpenStore>>;

impl FallbackStore {
    /// Opens the store with `open`; on failure serves `last_good`. `InUse`, `Sealed` and `Missing` are
    /// returned.
    pub fn start<R: Into<RecoveredState>>(
        mut open: OpenStore,
        last_good: impl FnOnce() -> Result<R, StoreError>,
        retry_every: Duration,
    ) -> Result<Arc<FallbackStore>, StoreError> {
        let started = |shared: Arc<FallbackShared>, open: SharedOpen, retry: Option<OpenRetry>| {
            Arc::new(FallbackStore { retry: Mutex::new(retry), shared, open, retry_every })
        };
        // The first attempt runs here, so that operator errors end the start.
        let error = match open() {
            Ok(opened) => {
                let shared = Arc::new(FallbackShared::new(FallbackInner::Store(opened)));
                // `open` is kept: a failed handover reopens the store with it.
                return Ok(started(shared, Arc::new(Mutex::new(open)), None));
            }
            // Operator errors: the store itself is intact, so the last good state must not hide them.
            Err(error @ (StoreError::InUse(_) | StoreError::Sealed(_) | StoreError::Missing(_))) => {
                return Err(error);
            }
            Err(error) => error,
        };
        // Both reasons: the operator needs to know which of the two can be repaired.
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
        // Weak, so that a dropped store ends the retries.
        let retry = OpenRetry::start(Arc::downgrade(&shared), open.clone(), retry_every)?;
        Ok(started(shared, open, Some(retry)))
    }

    /// Current source of the served state.
    pub fn status(&self) -> StateOrigin {
        match &*self.shared.inner() {
            // A lent store is intact; its state is the newest one.
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
            // Under the read lock, so that no proposal follows the one that closes a lent store.
            FallbackInner::Store(opened) => return opened.store.propose(proposal),
            FallbackInner::Lent { deferred, .. } => match deferred.keep(proposal) {
                None => return,
                Some(proposal) => (proposal.done, deferred.refusal()),
            },
            FallbackInner::LastGood { reason, .. } => (proposal.done, read_only(reason)),
        };
        let (done, error) = refused;
        done(Err(error));
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        // `switch_to_store` holds this lock too. A follower is therefore registered with the old or the new
        // store, never with both.
        let mut followers = self.shared.followers();
        match self.shared.store() {
            Ok(store) => {
                // Shared, since `set_lent` must be able to register the same follower here.
                let shared = Arc::new(Mutex::new(follower));
                followers.direct.push(shared.clone());
                // Released first: `follow` of the store may wait for its writer, which may be in a follower that needs this lock.
                drop(followers);
                store.follow(Box::new(move |committed| notify(&shared, committed)))
            }
            Err(_) => {
                followers.by_us.push(follower);
                // Under the lock of the followers, so that no revision falls between state and registration.
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
            // This process has no store open, so there is no medium to check.
            FallbackInner::LastGood { .. } | FallbackInner::Lent { .. } => Ok(()),
        }
    }

    fn failure(&self) -> Option<StoreError> {
        match &*self.shared.inner() {
            FallbackInner::Store(opened) => opened.store.failure(),
            // Writes fail for as long as this lasts, so the newest write counts as failed.
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
    /// Another process has the store, or is about to open it.
    Lent {
        state: StoreState,
        /// Damage of the last good state, if that was served when the store was lent.
        damage: Option<String>,
        deferred: handover::DeferredProposals,
    },
}

struct FallbackShared {
    inner: RwLock<FallbackInner>,
    followers: Mutex<FallbackFollowers>,
}

#[derive(Default)]
struct FallbackFollowers {
    /// Followers registered while the store was not open.
    by_us: Vec<FollowerFn>,
    /// Followers registered with the store itself.
    direct: Vec<Arc<Mutex<FollowerFn>>>,
}

fn notify(follower: &Mutex<FollowerFn>, committed: &Arc<StoreCommit>) {
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

    /// Returns the real store, or the reason why writes fail.
    fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        match &*self.inner() {
            FallbackInner::Store(opened) => Ok(opened.store.clone()),
            FallbackInner::LastGood { reason, .. } => Err(read_only(reason)),
            FallbackInner::Lent { deferred, .. } => Err(deferred.refusal()),
        }
    }

    fn note(&self, error: &StoreError) {
        if let FallbackInner::LastGood { reason, .. } =
            &mut *self.inner.write().unwrap_or_else(PoisonError::into_inner)
        {
            *reason = error.to_string();
        }
    }

    /// Replaces the fallback with the real store and sends the difference to the followers.
    fn switch_to_store(self: &Arc<FallbackShared>, opened: OpenedStore) {
        let mut followers = self.followers();
        // Commits of the store wait for this lock, so followers receive them after the difference.
        let to = opened.store.follow(forward(Arc::downgrade(self)));
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        // Followers are still locked, so that no commit precedes the difference.
        let from = std::mem::replace(&mut *inner, FallbackInner::Store(opened));
        drop(inner);
        let (FallbackInner::LastGood { state: from, .. } | FallbackInner::Lent { state: from, .. }) = from
        else {
            return;
        };
        let changes = difference(&from, &to);
        let (last_good, revision, changed) = (from.revision.0, to.revision.0, changes.len());
        tracing::info!(last_good, revision, changed, "store reopened");
        // A different revision number is reported even without changes, because callers compare it.
        if changes.is_empty() && from.revision == to.revision {
            return;
        }
        let by = Authorship::by(RECOVERY);
        let committed = Arc::new(StoreCommit { revision: to.revision, time_ms: now_ms(), by, changes });
        // Direct followers belong to the store itself and receive its commits from there.
        followers.by_us.iter_mut().for_each(|follower| follower(&committed));
    }
}

/// Forwards commits of the real store to the followers. The weak reference does not keep the store alive.
fn forward(shared: Weak<FallbackShared>) -> FollowerFn {
    Box::new(move |committed| {
        if let Some(shared) = shared.upgrade() {
            shared.followers().by_us.iter_mut().for_each(|follower| follower(committed));
        }
    })
}

/// Returns the changes between two states, ascending by key.
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

/// Thread that tries to open the store until it succeeds; ends on drop.
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
            // The timeout is the regular case; a dropped sender ends the thread.
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begin = Instant::now();
                let opened = open_now(&open);
                // The check of a large damaged file takes long. The pause limits it to 1/20 of one core.
                pause = every.max(begin.elapsed() * PAUSE_PER_ATTEMPT);
                // The store may have been dropped during the attempt.
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
        // A follower may drop the store on this thread, and a thread cannot join itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("store reopen task panicked");
        }
    }
}
