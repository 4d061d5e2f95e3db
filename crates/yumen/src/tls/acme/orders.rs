//! Gate for ACME orders: none begins during a handover, and one in flight is awaited.
//!
//! The process that serves must answer the challenge until the server has validated it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of checks whether to stop waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Gate for the orders of a process.
#[derive(Debug, Default)]
pub(crate) struct AcmeOrders {
    state: Mutex<AcmeOrdersState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct AcmeOrdersState {
    is_in_progress: bool,
    are_blocked: bool,
}

/// An order in flight, until dropped.
pub(super) struct RunningOrder(Arc<AcmeOrders>);

impl AcmeOrders {
    /// Begins an order; `None` while orders are blocked.
    pub(super) fn begin(self: &Arc<Self>) -> Option<RunningOrder> {
        let mut state = self.state();
        if state.are_blocked {
            return None;
        }
        state.is_in_progress = true;
        Some(RunningOrder(self.clone()))
    }

    /// Whether an order is in flight.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.state().is_in_progress
    }

    /// Blocks new orders until `go_on`. Waits for the order in flight, at most `at_most` or until `is_over`
    /// returns `true`.
    pub(crate) fn hold(&self, at_most: Duration, is_over: impl Fn() -> bool) {
        let until = Instant::now() + at_most;
        let mut state = self.state();
        state.are_blocked = true;
        while state.is_in_progress && Instant::now() < until && !is_over() {
            let waited = self.ended.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Unblocks orders.
    pub(crate) fn go_on(&self) {
        self.state().are_blocked = false;
    }

    fn state(&self) -> MutexGuard<'_, AcmeOrdersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningOrder {
    fn drop(&mut self) {
        self.0.state().is_in_progress = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_under_way_is_waited_for_and_none_begins_meanwhile() {
        let orders = Arc::new(AcmeOrders::default());
        let order = orders.begin().unwrap();
        let orders_clone = orders.clone();
        let holding = std::thread::spawn(move || orders_clone.hold(Duration::from_secs(60), || false));
        while !orders.state().are_blocked {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(orders.begin().is_none());
        assert!(orders.is_in_progress() && !holding.is_finished());
        drop(order);
        holding.join().unwrap();
        assert!(orders.begin().is_none());
        orders.go_on();
        assert!(orders.begin().is_some());
    }

    #[test]
    fn waiting_has_an_end() {
        let orders = Arc::new(AcmeOrders::default());
        let _order = orders.begin().unwrap();
        orders.hold(Duration::from_millis(20), || false);
        orders.hold(Duration::from_secs(600), || true);
        assert!(orders.is_in_progress());
    }
}
