//! Tracker of the revision that serves every new request, in this process and in its predecessors.
//!
//! Owns the progress of each process; the communication between them is elsewhere.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use yumen_store::Revision;

/// Progress of publications.
pub(crate) struct AppliedTracker {
    places: Mutex<AppliedState>,
    moved: Condvar,
    /// Newest revision published in this process.
    published: watch::Sender<Revision>,
    /// Newest revision applied in all processes.
    applied: watch::Sender<Revision>,
}

struct AppliedState {
    /// Number and revision of the newest publication in this process.
    here: (u64, Revision),
    /// Number of the newest publication that is applied in all processes.
    newest_applied: u64,
    /// Whether no predecessor has to apply publications.
    has_no_predecessor: bool,
    /// Problems of the predecessors.
    lag: AppliedLag,
}

/// Reasons why predecessors lag behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AppliedLag {
    /// Pid of the predecessor while it does not apply updates.
    pub(crate) stalled_pid: Option<i32>,
    /// Pid of the earlier process for which the predecessor waits.
    pub(crate) behind: Option<i32>,
    /// Objects that are valid here and broken in the predecessor.
    pub(crate) broken_in_predecessor: Vec<String>,
}

impl AppliedLag {
    /// Pid of the process that delays the others.
    pub(crate) fn waits_for(&self) -> Option<i32> {
        self.stalled_pid.or(self.behind)
    }
}

impl AppliedTracker {
    /// Tracker of a process without predecessor, or with one that must apply publications.
    pub(crate) fn new(has_no_predecessor: bool) -> AppliedTracker {
        let lag = AppliedLag::default();
        let places =
            AppliedState { here: (0, Revision::default()), newest_applied: 0, has_no_predecessor, lag };
        let (published, applied) = (watch::Sender::default(), watch::Sender::default());
        AppliedTracker { places: Mutex::new(places), moved: Condvar::new(), published, applied }
    }

    /// Starts at the revision that was applied everywhere at the handover.
    pub(crate) fn start_at(&self, revision: Revision) {
        let places = self.places();
        if !places.has_no_predecessor && places.newest_applied == 0 {
            self.applied.send_replace(revision);
        }
    }

    /// Newest revision published in this process.
    pub(crate) fn published(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// Newest revision applied in all processes.
    pub(crate) fn applied(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    /// Newest revision published in this process.
    pub(crate) fn revision(&self) -> Revision {
        self.places().here.1
    }

    /// Records a publication and returns its number. Revisions may repeat or decrease, numbers do not.
    pub(crate) fn published_here(&self, revision: Revision) -> u64 {
        let mut places = self.places();
        let number = places.here.0 + 1;
        places.here = (number, revision);
        self.published.send_replace(revision);
        if places.has_no_predecessor {
            places.newest_applied = number;
            self.applied.send_replace(revision);
        }
        self.moved.notify_all();
        number
    }

    /// Records that the predecessor has applied a publication.
    pub(crate) fn applied_everywhere(&self, (number, revision): (u64, Revision)) {
        let mut places = self.places();
        if number > places.newest_applied {
            places.newest_applied = number;
            self.applied.send_replace(revision);
            self.moved.notify_all();
        }
    }

    /// Records that no predecessor is left.
    pub(crate) fn go_on_alone(&self) {
        let mut places = self.places();
        places.has_no_predecessor = true;
        if places.here.0 > places.newest_applied {
            places.newest_applied = places.here.0;
            self.applied.send_replace(places.here.1);
        }
        self.moved.notify_all();
    }

    /// Waits for a publication newer than `known`; `None` once no predecessor is left.
    pub(crate) fn next_after(&self, known: u64) -> Option<(u64, Revision)> {
        let is_quiet = |places: &mut AppliedState| !places.has_no_predecessor && places.here.0 <= known;
        let places = self.moved.wait_while(self.places(), is_quiet).unwrap_or_else(PoisonError::into_inner);
        (!places.has_no_predecessor).then_some(places.here)
    }

    /// Waits at most `within` until a publication is applied in all processes; returns whether it is.
    pub(crate) fn is_everywhere_within(&self, number: u64, within: Duration) -> bool {
        let is_missing = |places: &mut AppliedState| places.newest_applied < number;
        let waited = self.moved.wait_timeout_while(self.places(), within, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.newest_applied >= number
    }

    /// Number of the newest publication applied in all processes.
    pub(crate) fn newest_applied(&self) -> u64 {
        self.places().newest_applied
    }

    pub(crate) fn has_no_predecessor(&self) -> bool {
        self.places().has_no_predecessor
    }

    /// Updates the lag of predecessors. Calls `tell` if it changed.
    pub(crate) fn set_lag(&self, note: impl FnOnce(&mut AppliedLag), tell: impl FnOnce(&AppliedLag)) {
        let mut places = self.places();
        let before = places.lag.clone();
        note(&mut places.lag);
        if places.lag != before {
            // Under the lock, so that concurrent changes are reported in order.
            tell(&places.lag);
        }
    }

    /// Pid of the predecessor that delays the others.
    pub(crate) fn waits_for(&self) -> Option<i32> {
        self.places().lag.waits_for()
    }

    fn places(&self) -> MutexGuard<'_, AppliedState> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
