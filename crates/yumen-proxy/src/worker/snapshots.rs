//! The snapshot that a worker serves, pinned until the publisher has a newer one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yumen_plugin::{Consumer, PluginChain};
use yumen_snapshot::{Publisher, Route, Snapshot};

/// The limit of cached merged chains; the cache is cleared when full.
const MERGED_MAX: usize = 65_536;

type MergedChains = HashMap<(*const Route, *const Consumer), Rc<PluginChain>, foldhash::fast::RandomState>;

/// A snapshot held by one worker and counted without atomics.
pub(crate) struct PinnedSnapshot {
    snapshot: Arc<Snapshot>,
    version: u64,
    merged: Rc<RefCell<MergedChains>>,
}

impl Deref for PinnedSnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl PinnedSnapshot {
    /// Returns the chain of a route with the plugins of a consumer merged in. The result is cached until a
    /// route or a consumer changes.
    pub(crate) fn merged(&self, route: &Route, consumer: &Consumer) -> Rc<PluginChain> {
        // The snapshot owns route and consumer, so no address is reused while the cache exists.
        let key: (*const Route, *const Consumer) = (route, consumer);
        if let Some(chain) = self.merged.borrow().get(&key) {
            return chain.clone();
        }
        let chain = Rc::new(route.chain.with_consumer(consumer));
        let mut merged = self.merged.borrow_mut();
        if merged.len() >= MERGED_MAX {
            merged.clear();
        }
        merged.insert(key, chain.clone());
        chain
    }
}

/// Source of the snapshots of one worker.
pub(super) struct SnapshotPin {
    publisher: Arc<Publisher>,
    /// Version of the snapshot that the worker serves.
    applied: Arc<AtomicU64>,
    pinned: RefCell<Rc<PinnedSnapshot>>,
}

impl SnapshotPin {
    pub(super) fn new(publisher: Arc<Publisher>, applied: Arc<AtomicU64>) -> SnapshotPin {
        // Read before the snapshot: the snapshot may be newer than its version, never older.
        let version = publisher.version();
        let snapshot = publisher.load();
        let pinned = Rc::new(PinnedSnapshot { snapshot, version, merged: Rc::default() });
        SnapshotPin { publisher, applied, pinned: RefCell::new(pinned) }
    }

    /// Returns the newest snapshot.
    #[inline]
    pub(super) fn newest(&self) -> Rc<PinnedSnapshot> {
        let version = self.publisher.version();
        if version != self.pinned.borrow().version {
            let snapshot = self.publisher.load();
            let before = self.pinned.borrow().clone();
            // Unchanged routes and consumers keep their addresses, so a change of endpoints invalidates no
            // chain.
            let merged = match snapshot.chains() == before.chains() {
                true => before.merged.clone(),
                false => Rc::default(),
            };
            *self.pinned.borrow_mut() = Rc::new(PinnedSnapshot { snapshot, version, merged });
            // Stored after the swap: a version counts as applied only once this worker serves it.
            self.applied.store(version, Ordering::Release);
        }
        self.pinned.borrow().clone()
    }
}
