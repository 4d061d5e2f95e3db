//! The cell a snapshot is published in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::Snapshot;

/// Holds the snapshot in force. Readers notice a newer one by one atomic load.
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
    /// Puts a snapshot in force and returns the one before. The caller drops that: freeing a large
    /// table is not a worker's business.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let before = self.current.swap(snapshot.clone());
        self.version.fetch_add(1, Ordering::Release);
        // Queued requests are woken after the swap: they read the endpoints of the newest snapshot.
        snapshot.recalled.iter().filter_map(Weak::upgrade).for_each(|gate| gate.call_all());
        before
    }

    /// Grows with every publication; 0 until the first.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The snapshot in force.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}
