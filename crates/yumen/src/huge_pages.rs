//! Memory of large configurations, put into huge pages once they have grown.
//!
//! Knows how much has changed, and nothing of what. It works beside everything else, at the lowest priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use yumen_proxy::huge_pages;

/// So few objects are not worth looking at.
const CHANGES_MIN: usize = 1000;
/// After how much of all that ever changed it is looked at again, as a divisor.
const GROWTH: usize = 4;
const NICE: i32 = 19;

/// When it is time.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    changes: usize,
    looked_at: usize,
    busy: Arc<AtomicBool>,
}

impl HugePages {
    /// So many objects have just come into force.
    pub(crate) fn changed(&mut self, count: usize) {
        self.changes += count;
        if self.is_due() && !self.busy.swap(true, Ordering::AcqRel) {
            self.looked_at = self.changes;
            let busy = self.busy.clone();
            let run = move || {
                gather();
                busy.store(false, Ordering::Release);
            };
            // Where no thread can be had, it is as it was.
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
    // Where that is refused it is done sooner than need be.
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
        // Busy, so that the test starts no thread.
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
