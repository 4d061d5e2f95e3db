//! Collapse of a large configuration's memory into huge pages, after it has grown (`router.huge_pages`).
//!
//! Tracks the number of changes only. Runs on its own thread at the lowest priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use yumen_proxy::huge_pages;

/// Minimum number of changed objects before a collapse.
const CHANGES_MIN: usize = 1000;
/// Growth of the total change count before the next collapse, as a divisor of that count.
const GROWTH: usize = 4;
const NICE: i32 = 19;

/// Schedule of collapses.
#[derive(Debug, Default)]
pub(super) struct HugePages {
    changes: usize,
    changes_at_collapse: usize,
    is_running: Arc<AtomicBool>,
}

impl HugePages {
    /// Counts changed objects, and starts a collapse if it is due.
    pub(super) fn note_changes(&mut self, count: usize) {
        self.changes += count;
        if self.is_due() && !self.is_running.swap(true, Ordering::AcqRel) {
            self.changes_at_collapse = self.changes;
            let is_running = self.is_running.clone();
            let run = move || {
                collapse();
                is_running.store(false, Ordering::Release);
            };
            // Without a thread, the memory stays as it is.
            if std::thread::Builder::new().name("yumen-pages".into()).spawn(run).is_err() {
                self.is_running.store(false, Ordering::Release);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.changes - self.changes_at_collapse >= CHANGES_MIN.max(self.changes_at_collapse / GROWTH)
    }
}

fn collapse() {
    // Without the lower priority, the collapse only competes more with other threads.
    let _ = rustix::process::setpriority_process(None, NICE);
    match huge_pages::collapse() {
        Ok(bytes) => tracing::info!(bytes, "huge page collapse finished"),
        Err(error) => tracing::warn!(%error, "huge page collapse failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_is_due_after_growth_by_a_quarter() {
        // Marked as running, so that the test starts no thread.
        let mut pages = HugePages { is_running: Arc::new(AtomicBool::new(true)), ..HugePages::default() };
        pages.note_changes(CHANGES_MIN - 1);
        assert!(!pages.is_due());
        pages.note_changes(1);
        assert!(pages.is_due());
        pages.changes_at_collapse = 100_000;
        pages.changes = 124_999;
        assert!(!pages.is_due());
        pages.note_changes(1);
        assert!(pages.is_due());
    }
}
