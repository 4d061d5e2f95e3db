//! A store wrapper that refuses writes, for a store that another writer owns.

use std::sync::Arc;

use crate::state::{Revision, StoreCommit, StoreState};
use crate::store::{FollowerFn, Proposal, Store, StoreError};

/// A store that refuses every proposal with a reason.
pub struct ReadOnlyStore {
    inner: Arc<dyn Store>,
    reason: String,
}

impl ReadOnlyStore {
    /// Wraps `inner`. `reason` explains the refusal and names the place to write instead.
    pub fn new(inner: Arc<dyn Store>, reason: String) -> ReadOnlyStore {
        ReadOnlyStore { inner, reason }
    }
}

impl Store for ReadOnlyStore {
    fn state(&self) -> StoreState {
        self.inner.state()
    }

    fn propose(&self, proposal: Proposal) {
        (proposal.done)(Err(StoreError::ReadOnly(self.reason.clone())));
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        self.inner.follow(follower)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        self.inner.history(before, limit)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    fn failure(&self) -> Option<StoreError> {
        self.inner.failure()
    }
}
