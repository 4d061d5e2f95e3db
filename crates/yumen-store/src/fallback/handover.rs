//! A store that another process takes over: closed here, so that it can be opened there, and opened again
//! should that come to nothing.
//!
//! Knows what becomes of writes meanwhile: they wait, and none is done twice or forgotten.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{FallbackInner, FallbackStore, OpenRetry, OpenedStore, open_now};
use crate::state::{Authorship, StoreState};
use crate::store::{Proposal, Store, StoreError};

/// Writes that wait; more are refused.
const HELD_MAX: usize = 1024;
/// So long whoever reads from the store, for a backup, may take to its end.
const READERS_END_WITHIN: Duration = Duration::from_secs(10);

/// Writes that wait for the store.
#[derive(Default)]
pub(super) struct DeferredProposals {
    /// Nothing once none waits any more.
    proposals: Mutex<Option<Vec<Proposal>>>,
}

impl DeferredProposals {
    fn new() -> DeferredProposals {
        DeferredProposals { proposals: Mutex::new(Some(Vec::new())) }
    }

    /// Has a write wait; gives it back where none may.
    pub(super) fn keep(&self, proposal: Proposal) -> Option<Proposal> {
        match &mut *self.proposals.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(held) if held.len() < HELD_MAX => {
                held.push(proposal);
                None
            }
            _ => Some(proposal),
        }
    }

    /// What those are told who may not wait.
    pub(super) fn refusal(&self) -> StoreError {
        StoreError::HandoverInProgress("handover in progress, retry shortly")
    }

    /// No write waits from now on.
    fn end(&self) -> Vec<Proposal> {
        self.proposals.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

impl FallbackStore {
    /// Closes the store, so that another process can open it. What was proposed before is decided and durable
    /// then; what is proposed after waits. An error leaves all as it was.
    pub fn lend(&self) -> Result<(), StoreError> {
        // What is in a file without a name would be gone with its last handle, and nobody could open it.
        self.check()?;
        // It would open the store behind the other process's back.
        let retry = self.retry.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(retry);
        let mut inner = self.shared.inner.write().unwrap_or_else(PoisonError::into_inner);
        let (state, damage) = match &*inner {
            FallbackInner::Store(opened) => (opened.store.state(), None),
            FallbackInner::LastGood { state, damage, .. } => (state.clone(), damage.clone()),
            FallbackInner::Lent { .. } => return Ok(()),
        };
        let before = std::mem::replace(
            &mut *inner,
            FallbackInner::Lent { state, damage, held: DeferredProposals::new() },
        );
        drop(inner);
        let FallbackInner::Store(opened) = before else { return Ok(()) };
        match close(opened) {
            Ok(state) => {
                self.set_lent(state);
                Ok(())
            }
            Err(opened) => {
                let mut inner = self.shared.inner.write().unwrap_or_else(PoisonError::into_inner);
                let held = std::mem::replace(&mut *inner, FallbackInner::Store(opened));
                drop(inner);
                self.go_on(held);
                Err(StoreError::InUse("a backup is being made, and takes long".to_owned()))
            }
        }
    }

    /// Whom the store told by itself is told by us until it is open again.
    fn set_lent(&self, newest: StoreState) {
        let mut followers = self.shared.followers();
        let direct = std::mem::take(&mut followers.direct);
        let told = direct.into_iter().map(|follower| -> crate::store::FollowerFn {
            Box::new(move |committed| super::tell(&follower, committed))
        });
        followers.by_us.extend(told);
        if let FallbackInner::Lent { state, .. } =
            &mut *self.shared.inner.write().unwrap_or_else(PoisonError::into_inner)
        {
            *state = newest;
        }
    }

    /// Writes wait no more: they are refused until the store is somebody's again.
    pub fn refuse_held(&self) {
        let inner = self.shared.inner();
        let FallbackInner::Lent { held, .. } = &*inner else { return };
        let (refused, error) = (held.end(), held.refusal());
        drop(inner);
        refused.into_iter().for_each(|proposal| (proposal.done)(Err(error.clone())));
    }

    /// The store is the other process's for good.
    pub fn give_away(&self) {
        self.refuse_held();
    }

    /// Opens the store again; nobody else has it. Writes that waited are decided then. On an error the last
    /// state stays in force, and opening is tried again and again.
    pub fn take_back(&self) -> Result<(), StoreError> {
        if !matches!(&*self.shared.inner(), FallbackInner::Lent { .. }) {
            return Ok(());
        }
        let opened = open_now(&self.open);
        let waiting = match &*self.shared.inner() {
            FallbackInner::Lent { held, .. } => held.end(),
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

    fn go_on(&self, held: FallbackInner) {
        if let FallbackInner::Lent { held, .. } = held {
            held.end().into_iter().for_each(|proposal| self.propose(proposal));
        }
    }
}

/// Closes a store once all is decided that was proposed; gives its last state, or the store where somebody
/// still reads from it.
fn close(opened: OpenedStore) -> Result<StoreState, OpenedStore> {
    let (tell, told) = channel();
    opened.store.propose(Proposal {
        by: Authorship::by("upgrade"),
        decide: Box::new(|_| false),
        done: Box::new(move |_| {
            let _ = tell.send(());
        }),
    });
    // A store that has ended drops what was proposed, and that is an answer too.
    let _ = told.recv();
    let until = Instant::now() + READERS_END_WITHIN;
    let readers = |opened: &OpenedStore| {
        let own = 1 + usize::from(opened.keeper.is_some());
        Arc::strong_count(&opened.store) > own
    };
    while readers(&opened) {
        if Instant::now() > until {
            return Err(opened);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(opened.store.state())
}

#[cfg(test)]
mod tests;
