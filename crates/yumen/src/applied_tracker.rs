//! Which revision every next request is served by: here, and in the process before, which finishes what it has begun.
//!
//! Knows how far each of the two has come, not how they talk.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use yumen_store::Revision;

/// How far a publication has come.
pub(crate) struct AppliedTracker {
    places: Mutex<AppliedState>,
    moved: Condvar,
    /// In force here.
    published: watch::Sender<Revision>,
    /// In force everywhere.
    applied: watch::Sender<Revision>,
}

struct AppliedState {
    /// The number of the newest publication here, and its revision.
    here: (u64, Revision),
    /// The number of the newest one that is in force everywhere.
    newest_applied: u64,
    /// Whether there is no process before that has to follow.
    has_no_predecessor: bool,
    /// What hinders those that have to.
    lag: AppliedLag,
}

/// What is wrong with the processes before this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AppliedLag {
    /// The number of the process before, while it does not follow.
    pub(crate) stalled_pid: Option<i32>,
    /// The number of the one that that process waits for.
    pub(crate) behind: Option<i32>,
    /// Objects that are good here and broken there.
    pub(crate) broken_in_predecessor: Vec<String>,
}

impl AppliedLag {
    /// The process that keeps the others waiting.
    pub(crate) fn waits_for(&self) -> Option<i32> {
        self.stalled_pid.or(self.behind)
    }
}

impl AppliedTracker {
    /// Of a process that is alone, or has to wait for the one before.
    pub(crate) fn new(has_no_predecessor: bool) -> AppliedTracker {
        let lag = AppliedLag::default();
        let places =
            AppliedState { here: (0, Revision::default()), newest_applied: 0, has_no_predecessor, lag };
        let (published, applied) = (watch::Sender::default(), watch::Sender::default());
        AppliedTracker { places: Mutex::new(places), moved: Condvar::new(), published, applied }
    }

    /// What was in force everywhere when this process took over still is.
    pub(crate) fn start_at(&self, revision: Revision) {
        let places = self.places();
        if !places.has_no_predecessor && places.newest_applied == 0 {
            self.applied.send_replace(revision);
        }
    }

    /// The newest revision that is in force here.
    pub(crate) fn published(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// The newest revision that is in force everywhere.
    pub(crate) fn applied(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    /// The newest revision that is in force here.
    pub(crate) fn revision(&self) -> Revision {
        self.places().here.1
    }

    /// This process has published; the number of the publication. Revisions may come again, or be lower than before.
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

    /// The process before has followed a publication.
    pub(crate) fn applied_everywhere(&self, (number, revision): (u64, Revision)) {
        let mut places = self.places();
        if number > places.newest_applied {
            places.newest_applied = number;
            self.applied.send_replace(revision);
            self.moved.notify_all();
        }
    }

    /// There is no process before any more.
    pub(crate) fn go_on_alone(&self) {
        let mut places = self.places();
        places.has_no_predecessor = true;
        if places.here.0 > places.newest_applied {
            places.newest_applied = places.here.0;
            self.applied.send_replace(places.here.1);
        }
        self.moved.notify_all();
    }

    /// Waits for a publication here that is newer than this one; `None` once there is nobody to tell of it.
    pub(crate) fn next_after(&self, known: u64) -> Option<(u64, Revision)> {
        let is_quiet = |places: &mut AppliedState| !places.has_no_predecessor && places.here.0 <= known;
        let places = self.moved.wait_while(self.places(), is_quiet).unwrap_or_else(PoisonError::into_inner);
        (!places.has_no_predecessor).then_some(places.here)
    }

    /// Waits until a publication is in force everywhere, for so long at most; whether it is.
    pub(crate) fn is_everywhere_within(&self, number: u64, within: Duration) -> bool {
        let is_missing = |places: &mut AppliedState| places.newest_applied < number;
        let waited = self.moved.wait_timeout_while(self.places(), within, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.newest_applied >= number
    }

    /// The number of the newest publication that is in force everywhere.
    pub(crate) fn newest_applied(&self) -> u64 {
        self.places().newest_applied
    }

    pub(crate) fn has_no_predecessor(&self) -> bool {
        self.places().has_no_predecessor
    }

    /// Notes what hinders the processes before; `tell` hears of it where it is another than before.
    pub(crate) fn set_lag(&self, note: impl FnOnce(&mut AppliedLag), tell: impl FnOnce(&AppliedLag)) {
        let mut places = self.places();
        let before = places.lag.clone();
        note(&mut places.lag);
        if places.lag != before {
            // Under the lock, so that what is told last is what is so.
            tell(&places.lag);
        }
    }

    /// The process before that keeps the others waiting.
    pub(crate) fn waits_for(&self) -> Option<i32> {
        self.places().lag.waits_for()
    }

    fn places(&self) -> MutexGuard<'_, AppliedState> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
