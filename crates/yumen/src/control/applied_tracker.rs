//! Tracker of the revision that serves every new request, in this process and in its predecessor.
//!
//! Owns the progress of both processes; the communication between them is elsewhere.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use yumen_store::Revision;

/// Progress of publications.
pub(crate) struct AppliedTracker {
    progress: Mutex<AppliedProgress>,
    changed: Condvar,
    /// Newest revision published in this process.
    published: watch::Sender<Revision>,
    /// Newest revision applied in this process and its predecessor.
    applied: watch::Sender<Revision>,
}

/// One publication. Revisions may repeat or decrease, numbers do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConfigPublication {
    pub(crate) number: u64,
    pub(crate) revision: Revision,
}

struct AppliedProgress {
    /// Newest publication in this process.
    newest: ConfigPublication,
    /// Number of the newest publication applied in both processes.
    applied_number: u64,
    /// Whether a predecessor has to apply publications too.
    has_predecessor: bool,
}

impl AppliedTracker {
    /// Tracker of a first process.
    pub(crate) fn alone() -> AppliedTracker {
        AppliedTracker::new(false)
    }

    /// Tracker of a successor. The predecessor applies publications too until it exits.
    pub(crate) fn with_predecessor() -> AppliedTracker {
        AppliedTracker::new(true)
    }

    fn new(has_predecessor: bool) -> AppliedTracker {
        let progress =
            AppliedProgress { newest: ConfigPublication::default(), applied_number: 0, has_predecessor };
        let (published, applied) = (watch::Sender::default(), watch::Sender::default());
        AppliedTracker { progress: Mutex::new(progress), changed: Condvar::new(), published, applied }
    }

    /// Starts at the revision that the predecessor had applied at the handover.
    pub(crate) fn start_at(&self, revision: Revision) {
        let progress = self.progress();
        if progress.has_predecessor && progress.applied_number == 0 {
            self.applied.send_replace(revision);
        }
    }

    /// Newest revision published in this process.
    pub(crate) fn published(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// Newest revision applied in this process and its predecessor.
    pub(crate) fn applied(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    /// Newest revision published in this process.
    pub(crate) fn revision(&self) -> Revision {
        self.progress().newest.revision
    }

    /// Records a publication in this process and returns it with its number.
    pub(crate) fn record_publication(&self, revision: Revision) -> ConfigPublication {
        let mut progress = self.progress();
        let publication = ConfigPublication { number: progress.newest.number + 1, revision };
        progress.newest = publication;
        self.published.send_replace(revision);
        if !progress.has_predecessor {
            self.apply(&mut progress, publication);
        }
        self.changed.notify_all();
        publication
    }

    /// Records that the predecessor serves a publication too.
    pub(crate) fn record_applied(&self, publication: ConfigPublication) {
        self.apply(&mut self.progress(), publication);
    }

    /// Records the end of the predecessor.
    pub(crate) fn predecessor_ended(&self) {
        let mut progress = self.progress();
        progress.has_predecessor = false;
        let newest = progress.newest;
        self.apply(&mut progress, newest);
        self.changed.notify_all();
    }

    /// Waits for a publication newer than number `known`; `None` once the predecessor has ended.
    pub(crate) fn next_after(&self, known: u64) -> Option<ConfigPublication> {
        let is_quiet =
            |progress: &mut AppliedProgress| progress.has_predecessor && progress.newest.number <= known;
        let progress =
            self.changed.wait_while(self.progress(), is_quiet).unwrap_or_else(PoisonError::into_inner);
        progress.has_predecessor.then_some(progress.newest)
    }

    fn apply(&self, progress: &mut AppliedProgress, publication: ConfigPublication) {
        if publication.number > progress.applied_number {
            progress.applied_number = publication.number;
            self.applied.send_replace(publication.revision);
        }
    }

    fn progress(&self) -> MutexGuard<'_, AppliedProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
