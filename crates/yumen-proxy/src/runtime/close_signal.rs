//! A signal that ends the tasks of one listener.
//!
//! Independent of the tasks.

use std::cell::Cell;

use tokio::sync::Notify;

/// Ends the tasks that wait for it, on one thread. Once given, it stays.
#[derive(Default)]
pub(crate) struct CloseSignal {
    is_given: Cell<bool>,
    given: Notify,
}

impl CloseSignal {
    pub(crate) fn give(&self) {
        self.is_given.set(true);
        self.given.notify_waiters();
    }

    #[inline]
    pub(crate) fn is_given(&self) -> bool {
        self.is_given.get()
    }

    /// Completes once the signal is given.
    pub(crate) async fn wait(&self) {
        // Before the check: a future that exists is woken even if it has not been polled.
        let given = self.given.notified();
        if !self.is_given.get() {
            given.await;
        }
    }
}
