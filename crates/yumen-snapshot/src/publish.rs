//! The cell with the published snapshot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::Snapshot;

/// Holds the current snapshot. Readers detect a newer one by one atomic load.
pub struct Publisher {
    current: ArcSwap<Snapshot>,
    version: AtomicU64,
}

impl Default for Publisher {
    fn default() -> Self {
        Publisher { current: ArcSwap::from_pointee(Snapshot::default()), version: AtomicU64::new(0) }
    }
}

impl Publisher {
    /// Publishes a snapshot and returns its predecessor. The caller drops that, so that no worker has to free
    /// a large table.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        // The snapshot comes before its version: a reader that sees the new version loads the new snapshot.
        let before = self.current.swap(snapshot.clone());
        self.version.fetch_add(1, Ordering::Release);
        // Queued requests are woken after the swap: they read the endpoints of the newest snapshot.
        snapshot.recalled.iter().filter_map(Weak::upgrade).for_each(|gate| gate.call_all());
        before
    }

    /// Increases with every publication; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The current snapshot.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}
