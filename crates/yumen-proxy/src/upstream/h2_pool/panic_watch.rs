//! Tasks that many requests depend on and that none of them runs: one that panics is counted, and it is told whose it
//! was.

use std::net::SocketAddr;
use std::rc::Rc;

use crate::worker::Worker;

/// Held by a task for a connection to an endpoint, until it is over.
pub(super) struct PanicWatch {
    pub(super) worker: Rc<Worker>,
    pub(super) endpoint: Option<SocketAddr>,
}

impl PanicWatch {
    pub(super) fn new(worker: &Rc<Worker>, endpoint: Option<SocketAddr>) -> PanicWatch {
        PanicWatch { worker: worker.clone(), endpoint }
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if self.worker.counters.note_panic() {
            let endpoint = self.endpoint.map(tracing::field::display);
            tracing::error!(endpoint, "a task for connections to an endpoint panicked");
        }
    }
}
