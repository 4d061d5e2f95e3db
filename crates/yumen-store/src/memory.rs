//! A store in memory: for tests, and for nodes with resources from a file.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{CommitBatch, StoreEngine, StoreMedium};
use crate::recent::{HistoryRetention, RecentRevisions};
use crate::state::{Revision, StoreCommit, StoreState};
use crate::store::StoreError;

/// Keeps the newest revisions in memory; nothing survives the process.
#[derive(Debug)]
pub struct MemoryMedium {
    revisions: Mutex<RecentRevisions<Arc<StoreCommit>>>,
}

/// A store without durable storage.
pub type MemoryStore = StoreEngine<MemoryMedium>;

impl MemoryMedium {
    /// Creates an empty store with a history of `revisions_max` revisions.
    pub fn store(revisions_max: usize) -> Result<MemoryStore, StoreError> {
        MemoryMedium::store_of(StoreState::default(), HistoryRetention::of(revisions_max))
    }

    /// Creates a store with an initial state and an empty history.
    pub fn store_of(state: StoreState, retention: HistoryRetention) -> Result<MemoryStore, StoreError> {
        StoreEngine::start(MemoryMedium { revisions: Mutex::new(RecentRevisions::new(retention)) }, state)
    }
}

impl StoreMedium for MemoryMedium {
    fn persist(&self, batch: &CommitBatch) -> Result<(), StoreError> {
        let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        batch.revisions.iter().for_each(|committed| revisions.push(committed.clone()));
        Ok(())
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        let revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        let older = revisions.newest_first().filter(|one| before.is_none_or(|before| one.revision < before));
        Ok(older.take(limit).cloned().collect())
    }
}
