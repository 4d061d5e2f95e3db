//! What a process holds of its configuration: a successor is measured by it, and the process before told of it.
//!
//! Held weakly, as in `exclusive`. Knows names of objects and when a text was whole, not what they say.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use yumen_config::Kind;
use yumen_proxy::clock;
use yumen_store::{FileStore, Store, StoreState};

/// The objects of a store, and the file they come from.
pub(crate) struct HandoverStore {
    store: Weak<dyn Store>,
    /// What the process that took over holds, in place of what the store does.
    instead: Mutex<Option<StoreState>>,
    document: Option<FileStore>,
}

impl HandoverStore {
    pub(crate) fn new(store: &Arc<dyn Store>, document: Option<FileStore>) -> HandoverStore {
        HandoverStore { store: Arc::downgrade(store), instead: Mutex::default(), document }
    }

    /// The names of the objects there are now; those whose time has come are as good as gone.
    pub(super) fn objects(&self) -> Vec<String> {
        self.state().map(|state| names(&state, clock::exact().unix_ms)).unwrap_or_default()
    }

    /// All that is held now; `None` once the process ends.
    pub(super) fn state(&self) -> Option<StoreState> {
        self.instead().clone().or_else(|| Some(self.store.upgrade()?.state()))
    }

    /// From now on this is what is served.
    pub(super) fn override_state(&self, state: StoreState) {
        *self.instead() = Some(state);
    }

    fn instead(&self) -> MutexGuard<'_, Option<StoreState>> {
        self.instead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resource file, if its text ended with `#END`.
    pub(super) fn ended_file(&self) -> Option<PathBuf> {
        self.document.as_ref().filter(|file| file.has_end()).map(|file| file.path().to_owned())
    }
}

/// The names of a state's objects that serve: tests do not.
pub(super) fn names(state: &StoreState, now_ms: u64) -> Vec<String> {
    let entries = state.entries().filter(|(key, entry)| {
        key.kind != Kind::Tests && entry.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms)
    });
    entries.map(|(key, _)| key.to_string()).collect()
}
