//! Collapse of a large configuration's memory into huge pages, after it has grown.
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
pub(crate) struct HugePages {
    changes: usize,
    looked_at: usize,
    busy: Arc<AtomicBool>,
}

impl HugePages {
    /// Counts changed objects, and starts a collapse if it is due.
    pub(crate) fn changed(&mut self, count: usize) {
        self.changes += count;
        if self.is_due() && !self.busy.swap(true, Ordering::AcqRel) {
            self.looked_at = self.changes;
            let busy = self.busy.clone();
            let run = move || {
                gather();
                busy.store(false, Ordering::Release);
            };
            // Without a thread, the memory stays as it is.
            if std::thread::Builder::new().name("yumen-pages".into()).spawn(run).is_err() {
                self.busy.store(false, Ordering::Release);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.changes - self.looked_at >= CHANGES_MIN.max(self.looked_at / GROWTH)
    }
}

fn gather() {
    // Without the lower priority, the collapse only competes more with other threads.
    let _ = rustix::process::setpriority_process(None, NICE);
    match huge_pages::gather() {
        Ok(bytes) => tracing::debug!(bytes, "huge page collapse finished"),
        Err(error) => tracing::debug!(%error, "huge page collapse failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_at_first_and_then_ever_more_rarely() {
        // Marked as busy, so that the test starts no thread.
        let mut pages = HugePages { busy: Arc::new(AtomicBool::new(true)), ..HugePages::default() };
        pages.changed(CHANGES_MIN - 1);
        assert!(!pages.is_due());
        pages.changed(1);
        assert!(pages.is_due());
        pages.looked_at = 100_000;
        pages.changes = 124_999;
        assert!(!pages.is_due());
        pages.changed(1);
        assert!(pages.is_due());
    }
}
