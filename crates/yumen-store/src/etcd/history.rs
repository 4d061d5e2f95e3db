//! Revisions seen by this node, bounded by a retention. etcd keeps more of the past until it compacts.

use std::sync::Arc;

use crate::recent::{HistoryRetention, RecentRevisions};
use crate::state::{Revision, StoreCommit, StoreState};

#[derive(Debug)]
struct HistoryStep {
    /// Revision of the state this step starts from.
    from: Revision,
    /// The step merges several revisions, of which only the last is known.
    is_leap: bool,
    committed: Arc<StoreCommit>,
}

impl AsRef<StoreCommit> for HistoryStep {
    fn as_ref(&self) -> &StoreCommit {
        &self.committed
    }
}

/// The newest revisions.
#[derive(Debug)]
pub(super) struct MirrorHistory {
    steps: RecentRevisions<HistoryStep>,
}

impl MirrorHistory {
    pub(super) fn new(retention: HistoryRetention) -> MirrorHistory {
        MirrorHistory { steps: RecentRevisions::new(retention) }
    }

    /// Appends a revision that follows `from`.
    pub(super) fn push(&mut self, from: Revision, is_leap: bool, committed: Arc<StoreCommit>) {
        self.steps.push(HistoryStep { from, is_leap, committed });
    }

    /// As [`crate::Store::history`].
    pub(super) fn history(&self, before: Option<Revision>, limit: usize) -> Vec<Arc<StoreCommit>> {
        let all = self.steps.newest_first().map(|step| &step.committed);
        all.filter(|one| before.is_none_or(|before| one.revision < before)).take(limit).cloned().collect()
    }

    /// Reconstructs the state as of `revision` backwards from `newest`; `None` beyond the known steps.
    pub(super) fn state_at(&self, revision: Revision, newest: &StoreState) -> Option<StoreState> {
        let mut state = newest.clone();
        for step in self.steps.newest_first() {
            // Reached: the remaining steps are older.
            if revision >= state.revision {
                break;
            }
            // The revision lies inside a merged step, which records no intermediate states.
            if step.is_leap && revision > step.from {
                return None;
            }
            state.undo(&step.committed);
            state.revision = step.from;
        }
        // Between two steps the state did not change.
        let is_reached = state.revision <= revision && revision <= newest.revision;
        is_reached.then(|| {
            state.revision = revision;
            state
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Authorship, EntryChange, StoreEntry};
    use crate::test_kit::key;

    fn entry(revision: u64) -> StoreEntry {
        let at = Revision(revision);
        StoreEntry {
            json: format!("{{\"at\":{revision}}}").into(),
            created: Revision(10),
            modified: at,
            expires_ms: None,
        }
    }

    /// Revisions 10, 14 and 20 of one key; 20 stems from a listing.
    fn past(steps_max: usize) -> (MirrorHistory, StoreState) {
        let mut past = MirrorHistory::new(HistoryRetention::of(steps_max));
        let mut before = None;
        let mut from = Revision(0);
        for (revision, is_leap) in [(10, false), (14, false), (20, true)] {
            let after = Some(entry(revision));
            let changes = vec![EntryChange { key: key("a"), before: before.clone(), after: after.clone() }];
            let by = Authorship::by("test");
            let committed = StoreCommit { revision: Revision(revision), time_ms: 1, by, changes };
            past.push(from, is_leap, Arc::new(committed));
            (before, from) = (after, Revision(revision));
        }
        (past, StoreState::new(Revision(20), [(key("a"), entry(20))], []))
    }

    #[test]
    fn state_between_revisions_is_that_of_the_first() {
        let (past, newest) = past(10);
        for (requested, expected) in [
            (20, Some(Some(20))),
            (21, None),
            (19, None),
            (15, None),
            (14, Some(Some(14))),
            (13, Some(Some(10))),
            (10, Some(Some(10))),
            (9, Some(None)),
        ] {
            let state = past.state_at(Revision(requested), &newest);
            let found = state.as_ref().map(|state| {
                assert_eq!(state.revision, Revision(requested));
                state.get(yumen_config::Kind::Routes, "a").map(|entry| entry.modified.0)
            });
            assert_eq!(found, expected, "{requested}");
        }
    }

    #[test]
    fn dropped_history_is_not_reconstructed() {
        let (past, newest) = past(2);
        assert!(past.state_at(Revision(13), &newest).is_some());
        assert!(past.state_at(Revision(9), &newest).is_none());
        let numbers: Vec<u64> =
            past.history(Some(Revision(20)), 9).iter().map(|one| one.revision.0).collect();
        assert_eq!(numbers, [14]);
    }
}
