//! What the process that serves holds of its configuration, so that a successor can be measured by it.
//!
//! Held weakly, as in `exclusive`. Knows names of objects and when a text was whole, not what they say.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use yumen_config::Kind;
use yumen_store::{FileStore, State, Store};

/// The objects of a store, and the file they come from.
pub(crate) struct Held {
    store: Weak<dyn Store>,
    document: Option<FileStore>,
}

impl Held {
    pub(crate) fn new(store: &Arc<dyn Store>, document: Option<FileStore>) -> Held {
        Held { store: Arc::downgrade(store), document }
    }

    /// The names of the objects there are now; those whose time has come are as good as gone.
    pub(super) fn objects(&self) -> Vec<String> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.store.upgrade().map(|store| names(&store.state(), now_ms)).unwrap_or_default()
    }

    /// The resource file, if its text ended with `#END`.
    pub(super) fn ended_file(&self) -> Option<PathBuf> {
        self.document.as_ref().filter(|file| file.has_end()).map(|file| file.path().to_owned())
    }
}

/// The names of a state's objects that serve: tests do not.
pub(super) fn names(state: &State, now_ms: u64) -> Vec<String> {
    let entries = state.entries().filter(|(key, entry)| {
        key.kind != Kind::Tests && entry.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms)
    });
    entries.map(|(key, _)| key.to_string()).collect()
}
