//! All sinks of a process, by their specs.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{SinkEncoder, SinkHandle, SinkQueue, SinkSpec};

/// Maximum number of waiting bytes of all sinks together: 256 MiB.
pub const SINK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Levels of lines of the node's own log, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeLogLevel {
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// Events that operators expect.
    Info,
    /// Details.
    Debug,
}

/// Makes an entry of a line.
pub type RenderLine = Box<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// The sink of the node's own log.
pub struct NodeLogSink {
    /// The sink.
    pub handle: SinkHandle,
    /// The least severe level that is sent.
    pub level: NodeLogLevel,
    /// Makes an entry of a line.
    pub render: RenderLine,
}

/// Opens queues while plugins are built. The control side takes the new ones and starts their senders.
#[derive(Default)]
pub struct SinkRegistry {
    sinks: Mutex<KnownSinks>,
    node_log: Mutex<Option<Arc<NodeLogSink>>>,
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

    /// Replaces the sink of the node's own log.
    pub fn set_node_log(&self, sink: Option<NodeLogSink>) {
        *self.node_log.lock().unwrap_or_else(PoisonError::into_inner) = sink.map(Arc::new);
    }

    /// The sink of the node's own log.
    pub fn node_log(&self) -> Option<Arc<NodeLogSink>> {
        self.node_log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sinks(&self) -> MutexGuard<'_, KnownSinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
