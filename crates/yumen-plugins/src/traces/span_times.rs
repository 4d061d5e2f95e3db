//! Wall-clock times of spans from the times of an exchange.

use yumen_plugin::{ExchangeOutcome, Now};

/// Begin and end of a server span in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanTimes {
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
}

impl SpanTimes {
    /// The times of an exchange that began at `now`.
    pub(crate) fn of(now: Now, outcome: &ExchangeOutcome<'_>) -> SpanTimes {
        let start_us = unix_us(now);
        SpanTimes { start_us, end_us: start_us + outcome.duration_us }
    }

    /// Duration in microseconds.
    pub(crate) fn duration_us(self) -> u64 {
        self.end_us.saturating_sub(self.start_us)
    }

    /// A moment on the monotonic clock, within the span.
    pub(crate) fn at(self, began: Now, mono_us: u64) -> u64 {
        (self.start_us + mono_us.saturating_sub(began.mono_us)).min(self.end_us)
    }
}

/// Microseconds since the Unix epoch. A worker derives its Unix time from whole milliseconds of the monotonic clock, so
/// the fraction of the latter belongs to both.
pub(crate) fn unix_us(now: Now) -> u64 {
    now.unix_ms * 1000 + now.mono_us % 1000
}
