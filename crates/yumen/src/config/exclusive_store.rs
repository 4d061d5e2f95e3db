//! The part of a store that only one process of a node can open, and that is therefore handed over.
//!
//! References are weak: the store closes with its owner, even if the handover state still exists.

use std::sync::{Arc, Weak};

use yumen_store::etcd::EtcdDataDir;
use yumen_store::{FallbackStore, StoreError};

/// Exclusive resource, by kind of store.
pub(crate) enum ExclusiveStore {
    /// A watched file: any process may read it.
    Nothing,
    /// The embedded database. Writes wait while it is handed over.
    Database(Weak<FallbackStore>),
    /// The data directory of an etcd store. The store itself is shared.
    Directory(Weak<EtcdDataDir>),
}

impl ExclusiveStore {
    /// Releases the resource to the successor, revocably.
    pub(crate) fn release_for_handover(&self) -> Result<(), StoreError> {
        match self {
            ExclusiveStore::Nothing => {}
            ExclusiveStore::Database(store) => {
                return store.upgrade().map_or(Ok(()), |store| store.release_for_handover());
            }
            ExclusiveStore::Directory(directory_lock) => directory_lock
                .upgrade()
                .iter()
                .for_each(|directory_lock| directory_lock.release_for_handover()),
        }
        Ok(())
    }

    /// Reopens the resource in this process.
    pub(crate) fn take_back(&self) -> Result<(), StoreError> {
        match self {
            ExclusiveStore::Nothing => Ok(()),
            ExclusiveStore::Database(store) => store.upgrade().map_or(Ok(()), |store| store.take_back()),
            ExclusiveStore::Directory(directory_lock) => {
                directory_lock.upgrade().map_or(Ok(()), |directory_lock| directory_lock.take_back())
            }
        }
    }

    /// Makes the release final.
    pub(crate) fn complete_handover(&self) {
        if let Some(store) = self.database() {
            store.complete_handover();
        }
    }

    /// Refuses the writes that wait for the handover.
    pub(crate) fn refuse_deferred(&self) {
        if let Some(store) = self.database() {
            store.refuse_deferred();
        }
    }

    /// Whether writes wait during the handover.
    pub(crate) fn defers_writes(&self) -> bool {
        self.database().is_some()
    }

    fn database(&self) -> Option<Arc<FallbackStore>> {
        match self {
            ExclusiveStore::Database(store) => store.upgrade(),
            _ => None,
        }
    }
}
