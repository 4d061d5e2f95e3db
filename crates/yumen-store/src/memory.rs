//! A store in memory: for tests, and for nodes whose resources live in a file.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{Batch, Engine, Medium};
use crate::recent::{Recent, Retention};
use crate::state::{Committed, Revision, State};
use crate::store::StoreError;

/// Keeps the newest revisions in memory, and nothing beyond the process.
#[derive(Debug)]
pub struct Memory {
    revisions: Mutex<Recent<Arc<Committed>>>,
}

/// A store that forgets everything when it is dropped.
pub type MemoryStore = Engine<Memory>;

impl Memory {
    /// An empty store that keeps so many revisions.
    pub fn store(revisions_max: usize) -> Result<MemoryStore, StoreError> {
        Memory::store_of(State::default(), Retention::of(revisions_max))
    }

    /// A store that starts with a state, whose past is not known.
    pub fn store_of(state: State, retention: Retention) -> Result<MemoryStore, StoreError> {
        Engine::start(Memory { revisions: Mutex::new(Recent::new(retention)) }, state)
    }
}

impl Medium for Memory {
    fn persist(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        batch.revisions.iter().for_each(|committed| revisions.push(committed.clone()));
        Ok(())
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<Committed>>, StoreError> {
        let revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        let older = revisions.newest_first().filter(|one| before.is_none_or(|before| one.revision < before));
        Ok(older.take(limit).cloned().collect())
    }
}
