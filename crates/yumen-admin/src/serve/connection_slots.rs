//! Connection slots of a listener, and the choice of a connection to close for a new one.
//!
//! A connection that serves a request keeps its slot; one that waits for a request may lose its slot to a new
//! connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// The slots of one listener.
#[derive(Clone, Default)]
pub(super) struct ConnectionSlots(Arc<ConnectionSlotsShared>);

#[derive(Default)]
struct ConnectionSlotsShared {
    table: Mutex<ConnectionSlotTable>,
    /// Notified when a connection starts to wait for a request.
    idles: Notify,
}

#[derive(Default)]
struct ConnectionSlotTable {
    next: u64,
    taken: HashMap<u64, TakenSlot>,
}

struct TakenSlot {
    state: SlotState,
    /// The address is not allowed: closed first.
    is_unauthenticated: bool,
    leave: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// Waiting for the head of a request since this time.
    Idle(Instant),
    /// Serving a request.
    Busy,
    /// Notified to close.
    Leaving,
}

impl ConnectionSlots {
    /// A slot for a new connection, which waits for a request. The caller bounds the number of slots.
    pub(super) fn take(&self, is_unauthenticated: bool) -> ConnectionSlot {
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        let leave = Arc::new(Notify::new());
        // A new connection counts as idle, so a client that only connects can be replaced.
        let state = SlotState::Idle(Instant::now());
        table.taken.insert(id, TakenSlot { state, is_unauthenticated, leave: leave.clone() });
        drop(table);
        ConnectionSlot { id, slots: self.clone(), leave }
    }

    /// Closes the connection that has waited longest for a request, those of disallowed addresses first. One
    /// at a time.
    pub(super) fn make_room(&self) {
        let mut table = self.table();
        // One at a time: the slot of the leaving one is about to become free.
        if table.taken.values().any(|one| one.state == SlotState::Leaving) {
            return;
        }
        let idle = table.taken.values_mut().filter_map(|one| match one.state {
            SlotState::Idle(since) => Some((!one.is_unauthenticated, since, one)),
            _ => None,
        });
        // `false` first: disallowed addresses go before allowed ones.
        if let Some((.., one)) = idle.min_by_key(|(is_known, since, _)| (*is_known, *since)) {
            one.state = SlotState::Leaving;
            one.leave.notify_one();
        }
    }

    /// Completes when a connection starts to wait for a request, or at once if one did since the last call.
    pub(super) async fn idles(&self) {
        self.0.idles.notified().await;
    }

    fn table(&self) -> MutexGuard<'_, ConnectionSlotTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one connection, released on drop.
pub(super) struct ConnectionSlot {
    id: u64,
    slots: ConnectionSlots,
    leave: Arc<Notify>,
}

impl ConnectionSlot {
    /// Completes when the connection must release its slot.
    pub(super) async fn lost(&self) {
        self.leave.notified().await;
    }

    /// Marks the slot as busy while a request is served; `None` if the connection was notified to close
    /// before.
    pub(super) fn busy(&self) -> Option<BusySlot> {
        let mut table = self.slots.table();
        // Decided under the lock: a connection either starts a request or closes, never both.
        let one = table.taken.get_mut(&self.id).filter(|one| one.state != SlotState::Leaving)?;
        one.state = SlotState::Busy;
        Some(BusySlot { id: self.id, slots: self.slots.clone() })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.table().taken.remove(&self.id);
    }
}

/// Guard of a busy slot; on drop the connection waits for a request again.
pub(super) struct BusySlot {
    id: u64,
    slots: ConnectionSlots,
}

impl Drop for BusySlot {
    fn drop(&mut self) {
        if let Some(one) = self.slots.table().taken.get_mut(&self.id) {
            one.state = SlotState::Idle(Instant::now());
        }
        // `notify_one` stores a permit without a waiter, so that no transition is lost.
        self.slots.0.idles.notify_one();
    }
}
