//! What of a store only one process of a node can have, and so changes hands.
//!
//! Held weakly: a store ends when its process does, whoever else would like to hand it over.

use std::sync::{Arc, Weak};

use yumen_store::etcd::EtcdDataDir;
use yumen_store::{FallbackStore, StoreError};

/// It, by the kind of store.
pub(crate) enum ExclusiveStore {
    /// A watched file: any process may read it.
    Nothing,
    /// The database. While it changes hands, writes wait.
    Database(Weak<FallbackStore>),
    /// The directory beside a store in etcd. The store itself is everybody's.
    Directory(Weak<EtcdDataDir>),
}

impl ExclusiveStore {
    /// Lets another process have it.
    pub(super) fn lend(&self) -> Result<(), StoreError> {
        match self {
            ExclusiveStore::Nothing => {}
            ExclusiveStore::Database(store) => return store.upgrade().map_or(Ok(()), |store| store.lend()),
            ExclusiveStore::Directory(home) => home.upgrade().iter().for_each(|home| home.lend()),
        }
        Ok(())
    }

    /// It is this process's again.
    pub(super) fn take_back(&self) -> Result<(), StoreError> {
        match self {
            ExclusiveStore::Nothing => Ok(()),
            ExclusiveStore::Database(store) => store.upgrade().map_or(Ok(()), |store| store.take_back()),
            ExclusiveStore::Directory(home) => home.upgrade().map_or(Ok(()), |home| home.take_back()),
        }
    }

    /// It is the other process's for good.
    pub(super) fn give_away(&self) {
        if let Some(store) = self.database() {
            store.give_away();
        }
    }

    /// Writes wait no more for it.
    pub(super) fn refuse_held(&self) {
        if let Some(store) = self.database() {
            store.refuse_held();
        }
    }

    /// Whether writes wait while it changes hands.
    pub(super) fn defers_writes(&self) -> bool {
        self.database().is_some()
    }

    fn database(&self) -> Option<Arc<FallbackStore>> {
        match self {
            ExclusiveStore::Database(store) => store.upgrade(),
            _ => None,
        }
    }
}
