//! Admission to a worker: its open connections, the eviction of idle ones near the limit, load shedding and the
//! drain.

use std::cell::Cell;

use crate::runtime::overload::OverloadGuard;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::WorkerSettings;

/// The last sixteenth of the connection limit is a reserve. While it is in use, idle connections are ended:
/// a sixteenth of the open ones per pass, at least [`ROOM_MIN`], at most one pass per [`MAKE_ROOM_MS`].
const SPARE_SHARE: usize = 16;
const ROOM_MIN: usize = 16;
const MAKE_ROOM_MS: u64 = 100;
/// A pass ends no more connections after this time, in milliseconds.
const ROOM_MS: u64 = 1000;
/// The shortest idle time before a pass may end a connection, in milliseconds.
const IDLE_MS_MIN: u64 = 1000;

/// State of a worker that stops serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainState {
    /// The worker serves.
    Serving,
    /// Open connections end with their current exchange.
    Draining {
        /// Whether idle connections keep their idle timeout.
        keeps_idle: bool,
    },
}

/// Counts and limits of the connections and requests of one worker.
pub(crate) struct WorkerAdmission {
    /// Load shedding, if configured.
    pub(crate) overload: Option<OverloadGuard>,
    connections_max: usize,
    drain: Cell<DrainState>,
    open: Cell<usize>,
    /// Of the open connections, the number in a lingering close.
    lingering: Cell<usize>,
    /// The number of idle connections that the current pass is still to end.
    room_needed: Cell<usize>,
    /// Start of the current pass.
    made_room_ms: Cell<u64>,
}

impl WorkerAdmission {
    pub(super) fn new(settings: &WorkerSettings) -> WorkerAdmission {
        WorkerAdmission {
            overload: OverloadGuard::new(&settings.overload),
            connections_max: settings.limits.connections_max,
            drain: Cell::new(DrainState::Serving),
            open: Cell::new(0),
            lingering: Cell::new(0),
            room_needed: Cell::new(0),
            made_room_ms: Cell::new(0),
        }
    }

    /// Number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether the reserve of connections is in use.
    pub(super) fn uses_reserve(&self) -> bool {
        self.open.get() >= self.connections_max - self.connections_max / SPARE_SHARE
    }

    /// Counts a new connection; false at the limit.
    pub(super) fn enter(&self) -> bool {
        let is_admitted = self.open.get() < self.connections_max;
        if is_admitted {
            self.open.set(self.open.get() + 1);
        }
        is_admitted
    }

    /// Uncounts a connection that has ended.
    pub(super) fn leave(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Starts a pass that ends idle connections; returns their number unless a pass has just started.
    pub(super) fn begin_pass(&self, now_ms: u64) -> Option<usize> {
        if now_ms < self.made_room_ms.get() + MAKE_ROOM_MS {
            return None;
        }
        self.made_room_ms.set(now_ms);
        let needed = (self.open.get() / SPARE_SHARE).max(ROOM_MIN);
        self.room_needed.set(needed);
        Some(needed)
    }

    /// Whether a pass that ends idle connections is in progress.
    pub(super) fn is_ending_idle(&self) -> bool {
        self.room_needed.get() > 0
    }

    /// Whether a connection that has been idle for `idle_ms` is to end now.
    pub(super) fn takes_room(&self, now_ms: u64, idle_ms: u64) -> bool {
        let is_over = now_ms > self.made_room_ms.get() + ROOM_MS;
        let needed = if is_over { 0 } else { self.room_needed.get() };
        let takes = needed > 0 && idle_ms >= IDLE_MS_MIN;
        self.room_needed.set(needed - usize::from(takes));
        takes
    }

    /// Whether new requests on open connections are refused.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.get() != DrainState::Serving
    }

    /// Whether idle connections end before their idle timeout. They keep it during a handover.
    pub(crate) fn ends_idle(&self) -> bool {
        self.drain.get() == DrainState::Draining { keeps_idle: false }
    }

    /// Starts to drain as `duty` requires.
    pub(crate) fn start_drain(&self, duty: WorkerDuty) {
        self.drain.set(DrainState::Draining { keeps_idle: matches!(duty, WorkerDuty::HandOver { .. }) });
    }

    /// Counts a connection whose lingering close begins.
    pub(crate) fn begin_lingering(&self) {
        self.lingering.set(self.lingering.get() + 1);
    }

    /// Uncounts a connection whose lingering close has ended.
    pub(crate) fn end_lingering(&self) {
        self.lingering.set(self.lingering.get() - 1);
    }

    /// Number of connections in a lingering close.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.get()
    }
}
