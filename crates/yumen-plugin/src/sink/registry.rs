//! All sinks of a process, by their specs.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{SinkEncoder, SinkHandle, SinkQueue, SinkSpec};

/// Maximum number of waiting bytes of all sinks together: 256 MiB.
pub const SINK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Opens queues while plugins are built. The control side takes the new ones and starts their senders.
#[derive(Default)]
pub struct SinkRegistry {
    sinks: Mutex<KnownSinks>,
    waiting_bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct KnownSinks {
    queues: HashMap<SinkSpec, Weak<SinkQueue>>,
    new: Vec<Arc<SinkQueue>>,
    opened: u64,
}

impl SinkRegistry {
    /// Returns a handle of the sink. Equal specs share a queue while one of its handles lives.
    pub fn open(&self, spec: SinkSpec, encoder: Arc<dyn SinkEncoder>) -> SinkHandle {
        let mut sinks = self.sinks();
        let known = sinks.queues.get(&spec).and_then(Weak::upgrade);
        if let Some(handle) = known.and_then(|queue| queue.handle(false)) {
            return handle;
        }
        // Changed configurations leave dead entries behind.
        sinks.queues.retain(|_, queue| queue.strong_count() > 0);
        sinks.opened += 1;
        let queue = Arc::new(SinkQueue::new(spec.clone(), encoder, sinks.opened, self.waiting_bytes.clone()));
        let handle = queue.handle(true).expect("a new queue is open");
        sinks.queues.insert(spec, Arc::downgrade(&queue));
        sinks.new.push(queue);
        handle
    }

    /// The queues that were opened since the last call. Those that are closed already are left out.
    pub fn take_new(&self) -> Vec<Arc<SinkQueue>> {
        let mut new = std::mem::take(&mut self.sinks().new);
        new.retain(|queue| !(queue.is_closed() && queue.waiting().0 == 0));
        new
    }

    fn sinks(&self) -> MutexGuard<'_, KnownSinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
