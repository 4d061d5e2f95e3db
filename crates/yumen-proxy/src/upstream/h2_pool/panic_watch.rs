//! Tasks that many requests depend on and that none of them runs: one that panics is counted, and it is told whose it
//! was.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::counters::Counters;

/// Held by a task for a connection to an endpoint, until it is over.
pub(super) struct PanicWatch {
    pub(super) counters: Arc<Counters>,
    pub(super) endpoint: Option<SocketAddr>,
}

impl PanicWatch {
    pub(super) fn new(counters: &Arc<Counters>, endpoint: Option<SocketAddr>) -> PanicWatch {
        PanicWatch { counters: counters.clone(), endpoint }
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if self.counters.note_panic() {
            let endpoint = self.endpoint.map(tracing::field::display);
            tracing::error!(endpoint, "a task for connections to an endpoint panicked");
        }
    }
}
