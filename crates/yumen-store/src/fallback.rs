//! A store that is there even while the real one is not: read-only on the last good state until it heals.
//!
//! Knows how to try again and how to hand over; must not know what kind of store it waits for.

mod lend;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::embedded::{Absent, Embedded, Options};
use crate::engine::now_ms;
use crate::last_good::{Keeper, LastGood, RecoveredState};
use crate::state::{Authorship, Changed, Committed, Key, Revision, State};
use crate::store::{Follower, Proposal, Store, StoreError};

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
pub enum Origin {
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
pub type OpenStore = Box<dyn FnMut() -> Result<Opened, StoreError> + Send>;

/// A store, and who keeps its last good state.
pub struct Opened {
    /// Keeps the last good state in step. First, so that it is dropped while the store is still there.
    pub keeper: Option<Keeper>,
    /// The store.
    pub store: Arc<dyn Store>,
}

/// The embedded store of `directory`, or, where it cannot be opened, the last good state until it can.
///
/// Fails where there is neither, telling both reasons; where another process has the directory; and where the
/// keyring does not open the store. What is served was once committed.
pub fn open_or_last_good(directory: &Path, options: Options) -> Result<Arc<Fallback>, StoreError> {
    let place = directory.to_owned();
    let edge = options.edge();
    let mut options = options;
    let open = Box::new(move || {
        let opened = Embedded::open(&place, options.clone());
        // There was a store, or something to serve instead: what is not there later is gone.
        options.absent = Absent::Refused;
        let store: Arc<dyn Store> = Arc::new(opened?);
        let keeper = Keeper::start(&place, store.clone(), options.seal.clone(), options.versions.clone())?;
        Ok(Opened { store, keeper: Some(keeper) })
    });
    Fallback::start(open, || LastGood::recover(directory, &edge), RETRY_EVERY)
}

/// The outer store others hold; what is inside it changes once.
pub struct Fallback {
    // First, so that nothing is opened any more when the rest is dropped.
    retry: Mutex<Option<Retry>>,
    shared: Arc<Shared>,
    open: SharedOpen,
    retry_every: Duration,
}

type SharedOpen = Arc<Mutex<OpenStore>>;

impl Fallback {
    /// The store `open` gives, or what `last_good` gives while it gives none. One in use, sealed or gone is an error.
    pub fn start<R: Into<RecoveredState>>(
        mut open: OpenStore,
        last_good: impl FnOnce() -> Result<R, StoreError>,
        retry_every: Duration,
    ) -> Result<Arc<Fallback>, StoreError> {
        let started = |shared: Arc<Shared>, open: SharedOpen, retry: Option<Retry>| {
            Arc::new(Fallback { retry: Mutex::new(retry), shared, open, retry_every })
        };
        let error = match open() {
            Ok(opened) => {
                let shared = Arc::new(Shared::new(Inner::Store(opened)));
                return Ok(started(shared, Arc::new(Mutex::new(open)), None));
            }
            // Mistakes of an operator, to be told at once; the store itself is whole.
            Err(error @ (StoreError::InUse(_) | StoreError::Sealed(_) | StoreError::Gone(_))) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let recovered = last_good().map_err(|missing| {
            StoreError::Corrupt(format!("{error}; nor is there a last good state: {missing}"))
        })?;
        let RecoveredState { state, damage } = recovered.into();
        let (reason, revision) = (error.to_string(), state.revision.0);
        tracing::error!(reason, revision, "the store cannot be opened, the last good state is served");
        let shared = Shared::new(Inner::LastGood { state, reason, since: SystemTime::now(), damage });
        let shared = Arc::new(shared);
        let open = Arc::new(Mutex::new(open));
        let retry = Retry::start(Arc::downgrade(&shared), open.clone(), retry_every)?;
        Ok(started(shared, open, Some(retry)))
    }

    /// Where what is served comes from at the moment.
    pub fn status(&self) -> Origin {
        match &*self.shared.inner() {
            Inner::Store(_) | Inner::Lent { .. } => Origin::Store,
            Inner::LastGood { reason, since, damage, .. } => {
                Origin::LastGood { reason: reason.clone(), since: *since, damage: damage.clone() }
            }
        }
    }
}

impl Store for Fallback {
    fn state(&self) -> State {
        match &*self.shared.inner() {
            Inner::Store(opened) => opened.store.state(),
            Inner::LastGood { state, .. } | Inner::Lent { state, .. } => state.clone(),
        }
    }

    fn propose(&self, proposal: Proposal) {
        let refused = match &*self.shared.inner() {
            // Under the lock, so that none comes behind the end of a store that is lent.
            Inner::Store(opened) => return opened.store.propose(proposal),
            Inner::Lent { held, .. } => match held.keep(proposal) {
                None => return,
                Some(proposal) => (proposal.done, held.refusal()),
            },
            Inner::LastGood { reason, .. } => (proposal.done, read_only(reason)),
        };
        let (done, error) = refused;
        done(Err(error));
    }

    fn follow(&self, follower: Follower) -> State {
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

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<Committed>>, StoreError> {
        self.shared.store()?.history(before, limit)
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.shared.store()?.backup(to)
    }

    fn check(&self) -> Result<(), StoreError> {
        match &*self.shared.inner() {
            Inner::Store(opened) => opened.store.check(),
            // It is not this process's to write to, which is told elsewhere.
            Inner::LastGood { .. } | Inner::Lent { .. } => Ok(()),
        }
    }

    fn failure(&self) -> Option<StoreError> {
        match &*self.shared.inner() {
            Inner::Store(opened) => opened.store.failure(),
            Inner::LastGood { reason, .. } => Some(read_only(reason)),
            Inner::Lent { .. } => None,
        }
    }
}

enum Inner {
    Store(Opened),
    LastGood {
        state: State,
        reason: String,
        since: SystemTime,
        damage: Option<String>,
    },
    /// Another process has it, or is about to.
    Lent {
        state: State,
        /// Of the last good state, where it was served before.
        damage: Option<String>,
        held: lend::Held,
    },
}

struct Shared {
    inner: RwLock<Inner>,
    followers: Mutex<Followers>,
}

#[derive(Default)]
struct Followers {
    /// Those who came before the store was there.
    by_us: Vec<Follower>,
    /// Those the store tells by itself.
    direct: Vec<Arc<Mutex<Follower>>>,
}

fn tell(follower: &Mutex<Follower>, committed: &Arc<Committed>) {
    follower.lock().unwrap_or_else(PoisonError::into_inner)(committed);
}

fn read_only(reason: &str) -> StoreError {
    StoreError::ReadOnly(format!(
        "the last good state is served, without history, until the store can be opened: {reason}"
    ))
}

impl Shared {
    fn new(inner: Inner) -> Shared {
        Shared { inner: RwLock::new(inner), followers: Mutex::default() }
    }

    fn inner(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The real store, or why nothing can be written.
    fn store(&self) -> Result<Arc<dyn Store>, StoreError> {
        match &*self.inner() {
            Inner::Store(opened) => Ok(opened.store.clone()),
            Inner::LastGood { reason, .. } => Err(read_only(reason)),
            Inner::Lent { held, .. } => Err(held.refusal()),
        }
    }

    fn note(&self, error: &StoreError) {
        if let Inner::LastGood { reason, .. } =
            &mut *self.inner.write().unwrap_or_else(PoisonError::into_inner)
        {
            *reason = error.to_string();
        }
    }

    /// Puts the real store in place and tells the followers what differs.
    fn heal(self: &Arc<Shared>, opened: Opened) {
        let mut followers = self.followers();
        // Whatever the store commits from here on waits for the lock, and so comes after the difference.
        let to = opened.store.follow(forward(Arc::downgrade(self)));
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let from = std::mem::replace(&mut *inner, Inner::Store(opened));
        drop(inner);
        let (Inner::LastGood { state: from, .. } | Inner::Lent { state: from, .. }) = from else { return };
        let changes = difference(&from, &to);
        let (last_good, revision, changed) = (from.revision.0, to.revision.0, changes.len());
        tracing::info!(last_good, revision, changed, "the store is open again");
        if changes.is_empty() && from.revision == to.revision {
            return;
        }
        let by = Authorship::by(RECOVERY);
        let committed = Arc::new(Committed { revision: to.revision, time_ms: now_ms(), by, changes });
        followers.by_us.iter_mut().for_each(|follower| follower(&committed));
    }
}

/// Passes on what the real store tells. It must not keep the store alive.
fn forward(shared: Weak<Shared>) -> Follower {
    Box::new(move |committed| {
        if let Some(shared) = shared.upgrade() {
            shared.followers().by_us.iter_mut().for_each(|follower| follower(committed));
        }
    })
}

/// What leads from one state to another, ascending by key.
fn difference(from: &State, to: &State) -> Vec<Changed> {
    let keys: BTreeSet<&Key> = from.entries().chain(to.entries()).map(|(key, _)| key).collect();
    let changed = |key: &Key| {
        let (before, after) = (from.get(key.kind, &key.id), to.get(key.kind, &key.id));
        let changed = || Changed { key: key.clone(), before: before.cloned(), after: after.cloned() };
        (before != after).then(changed)
    };
    keys.into_iter().filter_map(changed).collect()
}

fn open_now(open: &SharedOpen) -> Result<Opened, StoreError> {
    open.lock().unwrap_or_else(PoisonError::into_inner)()
}

/// Tries to open the store every so often, until it succeeds or this is dropped.
struct Retry {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Retry {
    fn start(shared: Weak<Shared>, open: SharedOpen, every: Duration) -> Result<Retry, StoreError> {
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
                    Ok(opened) => return shared.heal(opened),
                    Err(error) => shared.note(&error),
                }
            }
        };
        let thread = thread::Builder::new().name("yumen-store-retry".into()).spawn(run)?;
        Ok(Retry { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        drop(self.end.take());
        // A follower may hold, and drop, the store: a thread cannot wait for itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the attempts to open the store had panicked");
        }
    }
}
