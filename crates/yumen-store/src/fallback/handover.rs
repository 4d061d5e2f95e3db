//! Handover of a store to another process: closes the store here, and reopens it if the handover fails.
//!
//! Owns the writes that arrive meanwhile: they are deferred, and none is lost or applied twice.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{FallbackInner, FallbackStore, OpenRetry, OpenedStore, open_now};
use crate::state::{Authorship, StoreState};
use crate::store::{Proposal, Store, StoreError};

/// Maximum number of deferred writes; further ones are refused.
const HELD_MAX: usize = 1024;
/// Time within which readers of the store, such as a backup, must finish.
const READERS_END_WITHIN: Duration = Duration::from_secs(10);

/// Writes deferred until the store is open again.
#[derive(Default)]
pub(super) struct DeferredProposals {
    /// `None` once deferral has ended.
    proposals: Mutex<Option<Vec<Proposal>>>,
}

impl DeferredProposals {
    fn new() -> DeferredProposals {
        DeferredProposals { proposals: Mutex::new(Some(Vec::new())) }
    }

    /// Defers a write; returns the write if the queue is full or deferral has ended.
    pub(super) fn keep(&self, proposal: Proposal) -> Option<Proposal> {
        match &mut *self.proposals.lock().unwrap_or_else(PoisonError::into_inner) {
            // Each waiting write holds a client's request, so the queue is bounded (decision 32).
            Some(deferred) if deferred.len() < HELD_MAX => {
                deferred.push(proposal);
                None
            }
            _ => Some(proposal),
        }
    }

    /// Error for writes that cannot be deferred.
    pub(super) fn refusal(&self) -> StoreError {
        StoreError::HandoverInProgress("handover in progress, retry shortly")
    }

    /// Ends deferral and returns the deferred writes.
    fn end(&self) -> Vec<Proposal> {
        self.proposals.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

impl FallbackStore {
    /// Closes the store so that another process can open it.
    ///
    /// Earlier proposals are decided and durable on return; later ones are deferred. An error leaves the
    /// store open.
    pub fn release_for_handover(&self) -> Result<(), StoreError> {
        // A file without a name disappears with its last handle, and the successor could not open it.
        self.check()?;
        // A retry would open the store while the other process uses it.
        let retry = self.retry.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropped outside of the lock: the drop waits for an attempt that may be running.
        drop(retry);
        let mut inner = self.shared.inner.write().unwrap_or_else(PoisonError::into_inner);
        let (state, damage) = match &*inner {
            FallbackInner::Store(opened) => (opened.store.state(), None),
            FallbackInner::LastGood { state, damage, .. } => (state.clone(), damage.clone()),
            FallbackInner::Lent { .. } => return Ok(()),
        };
        let before = std::mem::replace(
            &mut *inner,
            FallbackInner::Lent { state, damage, deferred: DeferredProposals::new() },
        );
        // Published before `close`: new proposals are deferred while the store finishes earlier ones.
        drop(inner);
        let FallbackInner::Store(opened) = before else { return Ok(()) };
        match close(opened) {
            Ok(state) => {
                self.set_released(state);
                Ok(())
            }
            Err(opened) => {
                let mut inner = self.shared.inner.write().unwrap_or_else(PoisonError::into_inner);
                let deferred = std::mem::replace(&mut *inner, FallbackInner::Store(opened));
                drop(inner);
                // The deferred writes are decided by the store, as if it had never been lent.
                self.go_on(deferred);
                Err(StoreError::InUse("a backup is being made, and takes long".to_owned()))
            }
        }
    }

    /// Records the final state and moves followers from the closed store to this one.
    fn set_released(&self, newest: StoreState) {
        let mut followers = self.shared.followers();
        // A reopened store is another value and does not know the followers of the closed one.
        let direct = std::mem::take(&mut followers.direct);
        let indirect = direct.into_iter().map(|follower| -> crate::store::FollowerFn {
            Box::new(move |committed| super::notify(&follower, committed))
        });
        followers.by_us.extend(indirect);
        if let FallbackInner::Lent { state, .. } =
            &mut *self.shared.inner.write().unwrap_or_else(PoisonError::into_inner)
        {
            *state = newest;
        }
    }

    /// Refuses the deferred writes, and further ones until the store is open again.
    pub fn refuse_deferred(&self) {
        let inner = self.shared.inner();
        let FallbackInner::Lent { deferred, .. } = &*inner else { return };
        // Ended before the callbacks run: a retry by a client must be refused and not be deferred again.
        let (refused, error) = (deferred.end(), deferred.refusal());
        drop(inner);
        refused.into_iter().for_each(|proposal| (proposal.done)(Err(error.clone())));
    }

    /// Completes the handover: the store belongs to the other process.
    pub fn complete_handover(&self) {
        self.refuse_deferred();
    }

    /// Reopens the store after a failed handover and submits the deferred writes.
    ///
    /// The other process must have released the store. On an error the last state is served and opening is
    /// retried.
    pub fn take_back(&self) -> Result<(), StoreError> {
        // The handover may have failed before the store was lent.
        if !matches!(&*self.shared.inner(), FallbackInner::Lent { .. }) {
            return Ok(());
        }
        // Before the deferral ends: writes of the meantime wait for the result.
        let opened = open_now(&self.open);
        // Ends deferral: writes that arrive until the switch are refused as `HandoverInProgress`.
        let waiting = match &*self.shared.inner() {
            FallbackInner::Lent { deferred, .. } => deferred.end(),
            _ => Vec::new(),
        };
        match opened {
            Ok(opened) => {
                self.shared.switch_to_store(opened);
                waiting.into_iter().for_each(|proposal| self.propose(proposal));
                Ok(())
            }
            Err(error) => {
                self.reopen_failed(&error)?;
                // Refused with the reason that the fallback now has.
                waiting.into_iter().for_each(|proposal| self.propose(proposal));
                Err(error)
            }
        }
    }

    fn reopen_failed(&self, error: &StoreError) -> Result<(), StoreError> {
        let mut inner = self.shared.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let FallbackInner::Lent { state, damage, .. } = &*inner {
            let (state, reason, damage) = (state.clone(), error.to_string(), damage.clone());
            *inner = FallbackInner::LastGood { state, reason, since: SystemTime::now(), damage };
        }
        drop(inner);
        let retry = OpenRetry::start(Arc::downgrade(&self.shared), self.open.clone(), self.retry_every)?;
        *self.retry.lock().unwrap_or_else(PoisonError::into_inner) = Some(retry);
        Ok(())
    }

    fn go_on(&self, deferred: FallbackInner) {
        if let FallbackInner::Lent { deferred, .. } = deferred {
            deferred.end().into_iter().for_each(|proposal| self.propose(proposal));
        }
    }
}

/// Closes a store after its queued proposals are decided, and returns the last state.
///
/// Returns the store itself if a reader still holds it after `READERS_END_WITHIN`.
fn close(opened: OpenedStore) -> Result<StoreState, OpenedStore> {
    let (sender, receiver) = channel();
    opened.store.propose(Proposal {
        by: Authorship::by("upgrade"),
        // A proposal without a change: its callback proves that all earlier ones are decided.
        decide: Box::new(|_| false),
        done: Box::new(move |_| {
            let _ = sender.send(());
        }),
    });
    // A store that has ended drops the proposal; the receive error serves the same purpose.
    let _ = receiver.recv();
    let until = Instant::now() + READERS_END_WITHIN;
    let readers = |opened: &OpenedStore| {
        // The store is held by the owner and by the task that saves the last good state.
        let own = 1 + usize::from(opened.saver.is_some());
        Arc::strong_count(&opened.store) > own
    };
    while readers(&opened) {
        if Instant::now() > until {
            return Err(opened);
        }
        // Readers such as a backup have no event for their end.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(opened.store.state())
}

#[cfg(test)]
mod tests;
