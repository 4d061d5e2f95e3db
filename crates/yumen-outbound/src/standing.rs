//! The standing of one sink: results of its batches, for metrics and problems.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Results of the batches of one sink.
#[derive(Debug, Default)]
pub struct SinkStanding {
    sent_batches: AtomicU64,
    failed_batches: AtomicU64,
    /// Monotonic milliseconds of the first failure since the last success, plus one; 0 while batches are sent.
    failing_since_ms: AtomicU64,
    last_error: Mutex<String>,
}

impl SinkStanding {
    /// Batches that were sent, and failed tries.
    pub fn batches(&self) -> (u64, u64) {
        (self.sent_batches.load(Ordering::Relaxed), self.failed_batches.load(Ordering::Relaxed))
    }

    /// The time since which no batch was sent, and the last error; `None` while batches are sent.
    pub fn failing(&self) -> Option<(u64, String)> {
        let since_ms = self.failing_since_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some((since_ms, self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    pub(crate) fn note_sent(&self) {
        self.sent_batches.fetch_add(1, Ordering::Relaxed);
        self.failing_since_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn note_failed(&self, error: &str, now_ms: u64) {
        self.failed_batches.fetch_add(1, Ordering::Relaxed);
        // The begin of the outage counts.
        let _ = self.failing_since_ms.compare_exchange(0, now_ms + 1, Ordering::Relaxed, Ordering::Relaxed);
        error.clone_into(&mut self.last_error.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
