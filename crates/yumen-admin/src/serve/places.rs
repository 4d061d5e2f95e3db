//! Who has a place on a listener, and who gives way where somebody new wants one.
//!
//! A connection that serves a request keeps its place; one that waits for a request has it as long as nobody else
//! wants it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// The places of one listener.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Told when a connection begins to wait for a request.
    idles: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    taken: HashMap<u64, Taken>,
}

struct Taken {
    state: State,
    /// Comes from where nobody is served: gives way first.
    is_stranger: bool,
    leave: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for the head of a request since then.
    Idle(Instant),
    /// Serves a request.
    Busy,
    /// Was told to leave.
    Leaving,
}

impl Places {
    /// A place for a new connection, which waits for a request. How many there are, the caller counts.
    pub(super) fn take(&self, is_stranger: bool) -> Place {
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        let leave = Arc::new(Notify::new());
        let state = State::Idle(Instant::now());
        table.taken.insert(id, Taken { state, is_stranger, leave: leave.clone() });
        drop(table);
        Place { id, places: self.clone(), leave }
    }

    /// Has the connection that has waited longest for a request leave, strangers first. One at a time.
    pub(super) fn make_room(&self) {
        let mut table = self.table();
        if table.taken.values().any(|one| one.state == State::Leaving) {
            return;
        }
        let idle = table.taken.values_mut().filter_map(|one| match one.state {
            State::Idle(since) => Some((!one.is_stranger, since, one)),
            _ => None,
        });
        if let Some((.., one)) = idle.min_by_key(|(is_known, since, _)| (*is_known, *since)) {
            one.state = State::Leaving;
            one.leave.notify_one();
        }
    }

    /// Returns when a connection begins to wait for a request, or began since this was asked last.
    pub(super) async fn idles(&self) {
        self.0.idles.notified().await;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection.
pub(super) struct Place {
    id: u64,
    places: Places,
    leave: Arc<Notify>,
}

impl Place {
    /// Returns when somebody else is to have the place.
    pub(super) async fn lost(&self) {
        self.leave.notified().await;
    }

    /// What a request holds as long as it is served; none where its connection was told to leave before.
    pub(super) fn busy(&self) -> Option<Busy> {
        let mut table = self.places.table();
        let one = table.taken.get_mut(&self.id).filter(|one| one.state != State::Leaving)?;
        one.state = State::Busy;
        Some(Busy { id: self.id, places: self.places.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().taken.remove(&self.id);
    }
}

/// Keeps the place of a connection that serves a request.
pub(super) struct Busy {
    id: u64,
    places: Places,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(one) = self.places.table().taken.get_mut(&self.id) {
            one.state = State::Idle(Instant::now());
        }
        self.places.0.idles.notify_one();
    }
}
