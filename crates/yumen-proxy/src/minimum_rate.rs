//! The slowest a client may send or take: so many bytes in each window of time that it is waited for.
//!
//! Knows no sockets; whoever waits asks whenever it is woken.

use std::task::{Context, Poll};

use crate::clock;
use crate::timers::Timer;

/// A rate that must be kept up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MinimumRate {
    /// Bytes in a second; 0 asks for nothing.
    pub bytes_per_s: u64,
    /// Over which it is measured, in milliseconds.
    pub window_ms: u64,
}

impl MinimumRate {
    /// Whether it asks for anything.
    pub(crate) fn is_set(self) -> bool {
        self.bytes_per_s != 0
    }
}

/// What a client did since the window began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateWindow {
    /// When the window began; 0 is not at all, since nobody waits.
    since_ms: u64,
    /// What had been moved by then.
    bytes: i64,
}

impl RateWindow {
    /// Somebody else is waited for: the client is not to blame for this time.
    pub(crate) fn rest(&mut self) {
        self.since_ms = 0;
    }

    /// Waits until more was moved, `bytes` being all of it so far, from wherever it is counted; ready when too little was moved in time.
    pub(crate) fn poll_slow(
        &mut self,
        cx: &mut Context<'_>,
        timer: &Timer,
        rate: MinimumRate,
        bytes: i64,
    ) -> Poll<()> {
        let Some(left_ms) = self.judge(rate, bytes, clock::now().mono_ms()) else { return Poll::Ready(()) };
        timer.set(left_ms);
        if timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// How long the window goes on, in milliseconds; `None` where too little was moved in it. `bytes` is
    /// what was moved in all.
    pub(crate) fn judge(&mut self, rate: MinimumRate, bytes: i64, now_ms: u64) -> Option<u64> {
        if self.since_ms == 0 {
            *self = RateWindow { since_ms: now_ms, bytes };
        }
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms < rate.window_ms {
            return Some(rate.window_ms - elapsed_ms);
        }
        let least = u128::from(rate.bytes_per_s) * u128::from(rate.window_ms) / 1000;
        if u128::try_from(bytes - self.bytes).unwrap_or(0) < least {
            return None;
        }
        *self = RateWindow { since_ms: now_ms, bytes };
        Some(rate.window_ms.max(1))
    }
}

#[cfg(test)]
mod tests;
