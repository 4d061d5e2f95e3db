//! The single writer of a local store: decides proposals in order and makes a batch of them durable at once.
//!
//! [`StoreMedium`] hides everything specific to the medium; this module accesses no files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::state::{Authorship, ResourceKey, Revision, StoreCommit, StoreState};
use crate::store::{DoneFn, Draft, FollowerFn, Proposal, Store, StoreError};

/// Maximum number of queued proposals that join the first one in a batch.
const BATCH_MAX: usize = 512;

/// Delay of expiry after a failed batch, so that a broken medium is not retried in a tight loop.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);

/// Author of revisions that delete expired objects.
pub const EXPIRY: &str = "expiry";

/// Durable storage of a [`StoreEngine`].
pub trait StoreMedium: Send + Sync + 'static {
    /// Makes the whole batch durable, or nothing of it.
    fn persist(&self, batch: &CommitBatch) -> Result<(), StoreError>;

    /// As [`Store::history`].
    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError>;

    /// As [`Store::backup`].
    fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        Err(StoreError::Unsupported("a memory store cannot be backed up"))
    }

    /// As [`Store::check`].
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Changes that become durable together.
#[derive(Debug, Clone, Default)]
pub struct CommitBatch {
    /// Last durable state; stays current if the batch fails.
    pub base: StoreState,
    /// Revisions in ascending order.
    pub revisions: Vec<Arc<StoreCommit>>,
    /// Settings to set, or to remove if `None`.
    pub settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

impl CommitBatch {
    fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.settings.is_empty()
    }
}

enum EngineMessage {
    Propose(Proposal),
    End,
}

struct EngineShared {
    state: RwLock<StoreState>,
    /// Error of the newest batch.
    failure: Mutex<Option<StoreError>>,
    followers: Mutex<Vec<FollowerFn>>,
}

/// A store on one medium, with one writer thread.
pub struct StoreEngine<M> {
    medium: Arc<M>,
    shared: Arc<EngineShared>,
    messages: Sender<EngineMessage>,
    writer: Option<JoinHandle<()>>,
}

impl<M: StoreMedium> StoreEngine<M> {
    /// Starts the writer thread with the state loaded from the medium.
    pub fn start(medium: M, state: StoreState) -> Result<StoreEngine<M>, StoreError> {
        let (messages, inbox) = channel();
        let medium = Arc::new(medium);
        let shared = Arc::new(EngineShared {
            state: RwLock::new(state),
            failure: Mutex::default(),
            followers: Mutex::default(),
        });
        let mut writer = EngineWriter::new(medium.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("yumen-store".into());
        let writer = thread.spawn(move || writer.run(&inbox))?;
        Ok(StoreEngine { medium, shared, messages, writer: Some(writer) })
    }

    /// Medium of this store.
    pub fn medium(&self) -> &M {
        &self.medium
    }
}

impl<M> Drop for StoreEngine<M> {
    fn drop(&mut self) {
        // Proposals queued before `End` are still decided.
        let _ = self.messages.send(EngineMessage::End);
        // A follower or a proposal may drop the last reference to the store on the writer thread, and a
        // thread cannot join itself.
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != std::thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

impl<M: StoreMedium> Store for StoreEngine<M> {
    fn state(&self) -> StoreState {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn propose(&self, proposal: Proposal) {
        if let Err(refused) = self.messages.send(EngineMessage::Propose(proposal))
            && let EngineMessage::Propose(proposal) = refused.0
        {
            (proposal.done)(Err(StoreError::Ended));
        }
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        // The writer publishes a state and calls the followers under this lock. Registration therefore
        // neither misses nor repeats a revision.
        let mut followers = self.shared.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.push(follower);
        self.state()
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        self.medium.history(before, limit)
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.medium.backup(to)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.medium.check()
    }

    fn failure(&self) -> Option<StoreError> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct EngineWriter<M> {
    medium: Arc<M>,
    shared: Arc<EngineShared>,
    state: StoreState,
    expiring: BTreeSet<(u64, ResourceKey)>,
    /// Earliest time of the next expiry; later than now only after a failed batch.
    expires_from: Instant,
}

/// A decided proposal that is not durable yet.
type Decided = (DoneFn, Option<Arc<StoreCommit>>);

impl<M: StoreMedium> EngineWriter<M> {
    fn new(medium: Arc<M>, shared: Arc<EngineShared>) -> EngineWriter<M> {
        let state = shared.state.read().unwrap_or_else(PoisonError::into_inner).clone();
        let expiring = state.entries().filter_map(|(key, entry)| Some((entry.expires_ms?, key.clone())));
        EngineWriter { expiring: expiring.collect(), expires_from: Instant::now(), medium, shared, state }
    }

    fn run(&mut self, inbox: &Receiver<EngineMessage>) {
        loop {
            let mut proposals = Vec::new();
            let mut ends = false;
            // One wait serves both: the next proposal and the next expiry.
            match inbox.recv_timeout(self.until_next_expiry()) {
                Ok(EngineMessage::Propose(proposal)) => proposals.push(proposal),
                Err(RecvTimeoutError::Timeout) => {}
                // Dropped senders and `End` mean the same: no caller is left.
                Ok(EngineMessage::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            // Bounded, so that the first proposal of a batch does not wait for an endless stream.
            for message in inbox.try_iter().take(BATCH_MAX) {
                match message {
                    EngineMessage::Propose(proposal) => proposals.push(proposal),
                    // Proposals that were queued before `End` are decided first.
                    EngineMessage::End => ends = true,
                }
            }
            // Expired objects are deleted before all proposals. A new object of the same name must not
            // inherit the creation revision.
            if !proposals.is_empty() || Instant::now() >= self.expires_from {
                proposals.splice(0..0, self.expiry());
            }
            self.commit(proposals);
            if ends {
                return;
            }
        }
    }

    fn until_next_expiry(&self) -> Duration {
        // A clock that is set forward is noticed within an hour at the latest.
        const IDLE: Duration = Duration::from_secs(3600);
        let pause = self.expires_from.saturating_duration_since(Instant::now());
        let next = self.expiring.first();
        next.map_or(IDLE, |(at_ms, _)| {
            // After a failed batch the pause applies even to expiries that are due.
            Duration::from_millis(at_ms.saturating_sub(now_ms())).clamp(pause, IDLE)
        })
    }

    /// Returns a proposal that deletes the expired objects, if there are any.
    fn expiry(&self) -> Option<Proposal> {
        let now_ms = now_ms();
        let due: Vec<ResourceKey> = self
            .expiring
            .iter()
            .take_while(|(at_ms, _)| *at_ms <= now_ms)
            .map(|(_, key)| key.clone())
            .collect();
        // No empty revision for nothing.
        (!due.is_empty()).then(|| Proposal {
            by: Authorship::by(EXPIRY),
            decide: Box::new(move |draft| {
                for key in &due {
                    let entry = draft.state().get(key.kind, &key.id);
                    // An earlier proposal may have extended the lifetime.
                    if entry.and_then(|entry| entry.expires_ms).is_some_and(|at_ms| at_ms <= now_ms) {
                        draft.delete(key.kind, &key.id);
                    }
                }
                true
            }),
            done: Box::new(|_| ()),
        })
    }

    fn commit(&mut self, proposals: Vec<Proposal>) {
        let mut staged = self.state.clone();
        let mut batch = CommitBatch { base: staged.clone(), ..CommitBatch::default() };
        let mut decided: Vec<Decided> = Vec::with_capacity(proposals.len());
        // Each draft starts from the previous one, so later proposals of the batch see earlier ones.
        for proposal in proposals {
            let Proposal { by, mut decide, done } = proposal;
            let mut draft = Draft::new(staged.clone(), now_ms());
            // A panic of one handler must not end the writer for all callers.
            match catch_unwind(AssertUnwindSafe(|| decide(&mut draft))) {
                Ok(true) => {}
                Ok(false) => {
                    // Answered with the batch, so that replies keep the order of proposals.
                    decided.push((done, None));
                    continue;
                }
                Err(_) => {
                    done(Err(io::Error::other("the change handler panicked").into()));
                    continue;
                }
            }
            let finished = draft.finish(by);
            staged = finished.state;
            batch.revisions.extend(finished.committed.clone());
            batch.settings.extend(finished.settings);
            decided.push((done, finished.committed));
        }
        let durable = if batch.is_empty() { Ok(()) } else { self.persist(&batch) };
        match durable {
            // After the disk and before the callbacks: a caller that was answered reads its own write.
            Ok(()) => self.publish(staged, &batch),
            Err(_) => self.expires_from = Instant::now() + EXPIRY_PAUSE,
        }
        for (done, committed) in decided {
            done(durable.clone().map(|()| committed));
        }
    }

    fn persist(&self, batch: &CommitBatch) -> Result<(), StoreError> {
        let durable = self.medium.persist(batch);
        // Recorded for success too: the newest write decides about the health of the store.
        *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = durable.clone().err();
        durable
    }

    fn publish(&mut self, state: StoreState, batch: &CommitBatch) {
        for changed in batch.revisions.iter().flat_map(|committed| &committed.changes) {
            let expiry = |at_ms: u64| (at_ms, changed.key.clone());
            if let Some(at_ms) = changed.before.as_ref().and_then(|entry| entry.expires_ms) {
                self.expiring.remove(&expiry(at_ms));
            }
            if let Some(at_ms) = changed.after.as_ref().and_then(|entry| entry.expires_ms) {
                self.expiring.insert(expiry(at_ms));
            }
        }
        self.state = state.clone();
        // Held until all followers have run; see `follow`.
        let mut followers = self.shared.followers.lock().unwrap_or_else(PoisonError::into_inner);
        *self.shared.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        for committed in &batch.revisions {
            for follower in followers.iter_mut() {
                follower(committed);
            }
        }
    }
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
