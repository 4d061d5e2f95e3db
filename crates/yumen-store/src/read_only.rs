//! A store that can only be read through this door: somebody else writes it.

use std::sync::Arc;

use crate::state::{Committed, Revision, State};
use crate::store::{Follower, Proposal, Store, StoreError};

/// Another store, whose proposals are refused for a reason.
pub struct ReadOnly {
    inner: Arc<dyn Store>,
    reason: String,
}

impl ReadOnly {
    /// `inner`, which nobody may write through this door; `reason` says why and where to write instead.
    pub fn new(inner: Arc<dyn Store>, reason: String) -> ReadOnly {
        ReadOnly { inner, reason }
    }
}

impl Store for ReadOnly {
    fn state(&self) -> State {
        self.inner.state()
    }

    fn propose(&self, proposal: Proposal) {
        (proposal.done)(Err(StoreError::ReadOnly(self.reason.clone())));
    }

    fn follow(&self, follower: Follower) -> State {
        self.inner.follow(follower)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<Committed>>, StoreError> {
        self.inner.history(before, limit)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }
}
