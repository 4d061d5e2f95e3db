//! The newest revisions, in memory and within bounds.
//!
//! Owns the accounting of their size; callers do the searching.

use std::collections::VecDeque;
use std::time::Duration;

use crate::state::StoreCommit;

/// Bounds of the history. The newest revision is always retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRetention {
    /// Maximum number of revisions.
    pub revisions_max: usize,
    /// Maximum size of the replaced texts in bytes.
    pub bytes_max: u64,
    /// Maximum age relative to the newest revision.
    pub age_max: Option<Duration>,
}

impl Default for HistoryRetention {
    fn default() -> Self {
        HistoryRetention { revisions_max: 1000, bytes_max: 64 << 20, age_max: None }
    }
}

impl HistoryRetention {
    /// Bounds the number of revisions, with defaults for the rest.
    pub fn of(revisions_max: usize) -> HistoryRetention {
        HistoryRetention { revisions_max, ..HistoryRetention::default() }
    }
}

/// Fixed cost of a change besides its texts, in bytes.
const CHANGE_BYTES: u64 = 128;

/// Bytes held by the history alone: the replaced texts. New texts belong to the state or to a later revision.
fn weight(committed: &StoreCommit) -> u64 {
    let of = |text: usize| text as u64;
    let changes = committed.changes.iter().map(|change| {
        let before = change.before.as_ref().map_or(0, |entry| of(entry.json.len()));
        CHANGE_BYTES + of(change.key.id.len()) + before
    });
    CHANGE_BYTES + changes.sum::<u64>()
}

/// The newest revisions, or items that contain them.
#[derive(Debug)]
pub(crate) struct RecentRevisions<T> {
    items: VecDeque<T>,
    bytes: u64,
    retention: HistoryRetention,
}

impl<T: AsRef<StoreCommit>> RecentRevisions<T> {
    pub(crate) fn new(retention: HistoryRetention) -> RecentRevisions<T> {
        RecentRevisions { items: VecDeque::new(), bytes: 0, retention }
    }

    /// Appends the newest item and drops the oldest ones beyond the bounds.
    pub(crate) fn push(&mut self, item: T) {
        let newest_ms = item.as_ref().time_ms;
        self.bytes += weight(item.as_ref());
        self.items.push_back(item);
        let age_max = self.retention.age_max.map(|age| age.as_millis() as u64);
        // The newest revision stays, whatever its size or age.
        while self.items.len() > 1 {
            let oldest = self.items[0].as_ref();
            // Relative to the newest revision, so that an idle node keeps its history.
            let is_old = age_max.is_some_and(|age_max| newest_ms.saturating_sub(oldest.time_ms) > age_max);
            let is_too_much =
                self.items.len() > self.retention.revisions_max || self.bytes > self.retention.bytes_max;
            if !is_old && !is_too_much {
                break;
            }
            self.bytes -= weight(oldest);
            self.items.pop_front();
        }
    }

    /// Items from newest to oldest.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &T> {
        self.items.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::{Authorship, EntryChange, Revision, StoreEntry};
    use crate::test_kit::key;

    fn replacing(revision: u64, bytes: usize) -> Arc<StoreCommit> {
        let at = Revision(revision);
        let entry =
            StoreEntry { json: "x".repeat(bytes).into(), created: at, modified: at, expires_ms: None };
        let changes = vec![EntryChange { key: key("a"), before: Some(entry), after: None }];
        Arc::new(StoreCommit { revision: at, time_ms: revision * 1000, by: Authorship::by("test"), changes })
    }

    fn retained(retention: HistoryRetention, bytes: usize) -> Vec<u64> {
        let mut recent = RecentRevisions::new(retention);
        (1..=10).for_each(|revision| recent.push(replacing(revision, bytes)));
        recent.newest_first().map(|one| one.revision.0).collect()
    }

    #[test]
    fn the_past_is_bounded_by_number_bytes_and_age_and_the_newest_stays() {
        let all = HistoryRetention { revisions_max: 100, bytes_max: 1 << 20, age_max: None };
        assert_eq!(retained(all, 1000).len(), 10);
        assert_eq!(retained(HistoryRetention { revisions_max: 2, ..all }, 1000), [10, 9]);
        assert_eq!(retained(HistoryRetention { bytes_max: 4000, ..all }, 1000), [10, 9, 8]);
        assert_eq!(retained(HistoryRetention { bytes_max: 1, ..all }, 1000), [10]);
        assert_eq!(
            retained(HistoryRetention { age_max: Some(Duration::from_secs(3)), ..all }, 1000),
            [10, 9, 8, 7]
        );
    }
}
