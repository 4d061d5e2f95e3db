//! Minimum rates of clients: a number of bytes in each time window during which the gateway waits for the
//! client.
//!
//! This file must not know sockets: the task that waits calls it on each poll.

use std::task::{Context, Poll};

use crate::runtime::clock;
use crate::runtime::timers::Timer;

/// A minimum rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MinimumRate {
    /// Bytes per second; 0 disables the check.
    pub bytes_per_s: u64,
    /// Length of the measuring window, in milliseconds.
    pub window_ms: u64,
}

impl MinimumRate {
    /// Whether the check is enabled.
    pub(crate) fn is_set(self) -> bool {
        self.bytes_per_s != 0
    }
}

/// The current measuring window of a client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateWindow {
    /// Start of the window, in milliseconds of the monotonic clock; 0 is no window.
    since_ms: u64,
    /// Bytes moved in total at the start of the window.
    bytes: i64,
}

impl RateWindow {
    /// Ends the window while the gateway waits for another party: that time does not count against the
    /// client.
    pub(crate) fn rest(&mut self) {
        self.since_ms = 0;
    }

    /// Polls the window with the total of `bytes` moved so far; ready when the client is too slow. Otherwise
    /// the task is woken at the end of the window.
    pub(crate) fn poll_slow(
        &mut self,
        cx: &mut Context<'_>,
        timer: &Timer,
        rate: MinimumRate,
        bytes: i64,
    ) -> Poll<()> {
        let Some(left_ms) = self.check(rate, bytes, clock::now().mono_ms()) else { return Poll::Ready(()) };
        timer.set(left_ms);
        if timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the rest of the window in milliseconds, or `None` if the client is too slow. `bytes` is the
    /// total moved so far.
    pub(crate) fn check(&mut self, rate: MinimumRate, bytes: i64, now_ms: u64) -> Option<u64> {
        if self.since_ms == 0 {
            *self = RateWindow { since_ms: now_ms, bytes };
        }
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms < rate.window_ms {
            return Some(rate.window_ms - elapsed_ms);
        }
        // The product may exceed 64 bits.
        let least = u128::from(rate.bytes_per_s) * u128::from(rate.window_ms) / 1000;
        // Negative if the unacknowledged bytes have grown since the start of the window.
        if u128::try_from(bytes - self.bytes).unwrap_or(0) < least {
            return None;
        }
        *self = RateWindow { since_ms: now_ms, bytes };
        Some(rate.window_ms.max(1))
    }
}

#[cfg(test)]
mod tests;
