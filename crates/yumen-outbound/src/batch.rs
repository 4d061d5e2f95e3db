//! The moments at which a batch is sent: the batch processor of APISIX as a state machine without a clock.

use yumen_plugin::BatchPolicy;

/// Decides when the waiting entries of a sink are a batch. All times are monotonic milliseconds.
#[derive(Debug)]
pub(crate) struct BatchClock {
    size: u64,
    inactive_ms: u64,
    duration_ms: u64,
    entries: u64,
    first_ms: u64,
    last_ms: u64,
    ring_ms: Option<u64>,
}

impl BatchClock {
    /// A clock without entries.
    pub(crate) fn new(policy: &BatchPolicy) -> BatchClock {
        BatchClock {
            size: policy.batch_max_size.max(1).into(),
            inactive_ms: policy.inactive_timeout_ms,
            duration_ms: policy.buffer_duration_ms,
            entries: 0,
            first_ms: 0,
            last_ms: 0,
            ring_ms: None,
        }
    }

    /// Notes entries that have arrived.
    pub(crate) fn add(&mut self, entries: u64, now_ms: u64) {
        if entries == 0 {
            return;
        }
        if self.entries == 0 {
            self.first_ms = now_ms;
        }
        self.entries += entries;
        self.last_ms = now_ms;
        // A timer that runs already is not moved: the age of the first entry is looked at when it rings.
        self.ring_ms.get_or_insert(now_ms + self.inactive_ms);
    }

    /// The time of the next look; `None` without entries.
    pub(crate) fn ring_ms(&self) -> Option<u64> {
        self.ring_ms.filter(|_| self.entries > 0)
    }

    /// The number of entries of a batch that is due now; 0 if none is.
    pub(crate) fn due(&mut self, now_ms: u64) -> u64 {
        if self.entries >= self.size {
            return self.size;
        }
        let Some(ring_ms) = self.ring_ms() else { return 0 };
        if now_ms < ring_ms {
            return 0;
        }
        let is_inactive = now_ms.saturating_sub(self.last_ms) >= self.inactive_ms;
        let is_old = now_ms.saturating_sub(self.first_ms) >= self.duration_ms;
        if is_inactive || is_old {
            return self.entries;
        }
        self.ring_ms = Some(now_ms + self.inactive_ms.max(1));
        0
    }

    /// Notes that a batch was taken.
    pub(crate) fn taken(&mut self, entries: u64, now_ms: u64) {
        self.entries -= entries.min(self.entries);
        self.ring_ms = (self.entries > 0).then_some(now_ms + self.inactive_ms);
        // The rest arrived with the newest entries.
        self.first_ms = self.last_ms;
    }
}

#[cfg(test)]
mod tests;
