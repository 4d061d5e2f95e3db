//! Detection of panics in connection tasks, which serve many requests and run outside of them.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::observe::counters::WorkerCounters;

/// Counts and logs a panic of the task that holds it.
pub(super) struct PanicWatch {
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) endpoint: Option<SocketAddr>,
}

impl PanicWatch {
    pub(super) fn new(counters: &Arc<WorkerCounters>, endpoint: Option<SocketAddr>) -> PanicWatch {
        PanicWatch { counters: counters.clone(), endpoint }
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if self.counters.note_panic() {
            let endpoint = self.endpoint.map(tracing::field::display);
            tracing::error!(endpoint, "upstream connection task panicked");
        }
    }
}
