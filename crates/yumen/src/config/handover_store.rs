//! Current configuration state of a process: reference for a successor, and source of updates for a
//! predecessor.
//!
//! References are weak, as in `exclusive_store`. Reads object names and the completeness of a file, not the
//! content.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use yumen_config::Kind;
use yumen_proxy::clock;
use yumen_store::{FileStore, Store, StoreState};

/// Objects of a store, and the file that they come from.
pub(crate) struct HandoverStore {
    store: Weak<dyn Store>,
    /// State received from the successor; replaces that of the store.
    successor_state: Mutex<Option<StoreState>>,
    document: Option<FileStore>,
}

impl HandoverStore {
    pub(crate) fn new(store: &Arc<dyn Store>, document: Option<FileStore>) -> HandoverStore {
        HandoverStore { store: Arc::downgrade(store), successor_state: Mutex::default(), document }
    }

    /// Names of the current objects, without expired ones.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.state().map(|state| names(&state, clock::exact().unix_ms)).unwrap_or_default()
    }

    /// Current state; `None` once the process is ending.
    pub(crate) fn state(&self) -> Option<StoreState> {
        self.successor_state().clone().or_else(|| Some(self.store.upgrade()?.state()))
    }

    /// Replaces the state of the store by the successor's.
    pub(crate) fn override_state(&self, state: StoreState) {
        *self.successor_state() = Some(state);
    }

    fn successor_state(&self) -> MutexGuard<'_, Option<StoreState>> {
        self.successor_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of the resource file, if its text ended with `#END`.
    pub(crate) fn ended_file(&self) -> Option<PathBuf> {
        self.document.as_ref().filter(|file| file.has_end()).map(|file| file.path().to_owned())
    }
}

/// Names of the unexpired objects that serve traffic; policy tests do not.
pub(crate) fn names(state: &StoreState, now_ms: u64) -> Vec<String> {
    let entries = state.entries().filter(|(key, entry)| {
        key.kind != Kind::Tests && entry.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms)
    });
    entries.map(|(key, _)| key.to_string()).collect()
}
