//! The door to every store: list at a revision, watch from a revision, apply with an expected revision.
//!
//! Plain data only: neither the file, the embedded store nor a cluster shows through here.

use std::io;

/// Counts the changes of one store; larger is later. Zero is the empty store nobody has written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// One text the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key, such as `routes/1`.
    pub key: String,
    /// Its text, as it was written.
    pub value: String,
    /// The revision that wrote it.
    pub modified: Revision,
}

/// All entries as of one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Where a watch goes on from.
    pub revision: Revision,
    /// The entries, ascending by key.
    pub entries: Vec<Entry>,
}

/// What happened to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision that did it.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// The new text; `None` when the key was deleted.
    pub value: Option<String>,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Creates or replaces.
    Put {
        /// The key.
        key: String,
        /// The text.
        value: String,
    },
    /// Deletes; deleting what is not there changes nothing.
    Delete {
        /// The key.
        key: String,
    },
}

/// Why a store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first.
    #[error("the store is at revision {}, expected was {}", found.0, expected.0)]
    Conflict {
        /// What the writer believed.
        expected: Revision,
        /// What is there.
        found: Revision,
    },
    /// The revision is no longer kept, or was never reached: list again.
    #[error("revision {} is not kept", .0.0)]
    Compacted(Revision),
    /// The store cannot be written through this door.
    #[error("the store is read-only")]
    ReadOnly,
    /// The medium failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Takes changes in the order of their revisions, on a thread of the store.
pub type OnChange = Box<dyn FnMut(Change) + Send>;

/// A place where resources live. Calls may block on the medium: never made by a worker.
pub trait Store: Send + Sync {
    /// Ends its watch when dropped.
    type Watch: Send;

    /// All entries as of the newest revision.
    fn list(&self) -> Result<Listing, StoreError>;

    /// Tells every change after `from` until the returned value is dropped.
    fn watch(&self, from: Revision, on_change: OnChange) -> Result<Self::Watch, StoreError>;

    /// Does all of `writes` or none, and returns the revision that did it.
    ///
    /// With `expected` it fails as a conflict unless the store stands at exactly that revision.
    fn apply(&self, writes: &[Write], expected: Option<Revision>) -> Result<Revision, StoreError>;
}
