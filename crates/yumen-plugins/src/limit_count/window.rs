//! Time windows of one key. Counting needs a shared reference; replacing a window needs an exclusive one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use yumen_plugin::Now;

use crate::limits::table::KeyedState;

/// The result of counting one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowDecision {
    /// Whether the request is within the limit.
    pub(crate) admitted: bool,
    /// Requests that the window still admits.
    pub(crate) remaining: u64,
    /// Hundredths of a second until it admits more.
    pub(crate) reset_cs: u64,
}

/// The current window of a key, with the count of the previous one.
#[derive(Debug, Default)]
pub(crate) struct CountWindow {
    /// Requests counted in this window. The count of a fixed window also includes refused requests.
    count: AtomicU64,
    /// Time from which the window has no effect, in milliseconds of the monotonic clock. A fixed window ends
    /// then.
    useless_at_ms: u64,
    /// Number of the window since the Unix epoch. Sliding only.
    number: u64,
    /// Length of the window; 0 before the first. Sliding only.
    length_ms: u64,
    /// Requests admitted in the previous window. Sliding only.
    before: u64,
}

impl KeyedState for CountWindow {
    fn useless_at_ms(&self) -> Option<u64> {
        Some(self.useless_at_ms)
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let count = self.count.load(Relaxed);
        Some(vec![count, self.useless_at_ms, self.number, self.length_ms, self.before])
    }

    fn take_over(&mut self, numbers: &[u64], now: Now) {
        self.go_on_from(numbers, now);
    }

    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        let [count, end @ ..] = now else { return None };
        // A window that began since the previous export counts in full.
        let counted = before.filter(|before| before.get(1..) == Some(end)).map_or(0, |before| before[0]);
        let more = count.checked_sub(counted).filter(|more| *more > 0)?;
        Some([&[more], end].concat())
    }
}

/// The effect of counts from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowImport {
    /// Ignored: they belong to another window.
    Nothing,
    /// Added to the open window.
    Added,
    /// The window was taken over from the other process.
    Replaced,
}

impl CountWindow {
    /// Takes over a window from the numbers of another process, or adds its counts.
    pub(super) fn go_on_from(&mut self, numbers: &[u64], now: Now) -> WindowImport {
        let [count, useless_at_ms, number, length_ms, before] = *numbers else {
            return WindowImport::Nothing;
        };
        if useless_at_ms <= now.mono_ms() {
            return WindowImport::Nothing;
        }
        let is_open = self.useless_at_ms > now.mono_ms();
        // Both processes counted in the same window.
        if is_open && (self.number, self.length_ms) == (number, length_ms) {
            *self.count.get_mut() += count;
            self.before = self.before.max(before);
            return WindowImport::Added;
        }
        // Another window is open here, whose count must not be lost.
        if is_open {
            return WindowImport::Nothing;
        }
        *self = CountWindow { count: count.into(), useless_at_ms, number, length_ms, before };
        WindowImport::Replaced
    }

    /// Counts a request; `None` if the window has ended.
    pub(crate) fn count_fixed(&self, limit: u64, now: Now) -> Option<WindowDecision> {
        // Relaxed: the lock of the table separates counts from the replacement of a window.
        let left_ms = self.left_fixed(now)?;
        Some(verdict_fixed(limit, self.count.fetch_add(1, Relaxed) + 1, left_ms))
    }

    /// The result of [`CountWindow::count_fixed`] without counting.
    pub(crate) fn peek_fixed(&self, limit: u64, now: Now) -> Option<WindowDecision> {
        let left_ms = self.left_fixed(now)?;
        Some(verdict_fixed(limit, self.count.load(Relaxed) + 1, left_ms))
    }

    /// Applies the global count and the end of the window. Replies may be out of order, so the count never
    /// falls unless the end shows that a new window began.
    pub(crate) fn settle_fixed(&mut self, count: u64, left_ms: u64, length_ms: u64, now: Now) {
        let until_ms = now.mono_ms().saturating_add(left_ms);
        // A late reply moves the end by less than half a window; the next window ends a whole window later.
        let is_next = until_ms > self.useless_at_ms.saturating_add(length_ms / 2);
        let known = *self.count.get_mut();
        *self.count.get_mut() = if is_next { count } else { known.max(count) };
        self.useless_at_ms = until_ms;
    }

    /// Applies the global counts of the current and the previous window.
    pub(crate) fn settle_sliding(&mut self, count: u64, before: u64) {
        let known = *self.count.get_mut();
        *self.count.get_mut() = known.max(count);
        self.before = self.before.max(before);
    }

    /// Number of the window since the Unix epoch. Sliding only.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a fixed window has ended.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        self.left_fixed(now).is_none()
    }

    fn left_fixed(&self, now: Now) -> Option<u64> {
        self.useless_at_ms.checked_sub(now.mono_ms()).filter(|left| *left > 0)
    }

    /// Begins a window if none is open; returns whether it did.
    pub(crate) fn turn_fixed(&mut self, length_ms: u64, now: Now) -> bool {
        let is_over = self.is_over(now);
        if is_over {
            self.useless_at_ms = now.mono_ms().saturating_add(length_ms);
            *self.count.get_mut() = 0;
        }
        is_over
    }

    /// Counts a request if it is within the limit; `None` if the window is not the one of `now`. The previous
    /// window counts by the share that the last `length_ms` still cover.
    pub(crate) fn count_sliding(&self, limit: u64, length_ms: u64, now: Now) -> Option<WindowDecision> {
        let count = |within: &dyn Fn(u64) -> bool| {
            // One atomic step, so that two workers cannot both take the last place.
            let more = |count: u64| within(count).then_some(count + 1);
            self.count.fetch_update(Relaxed, Relaxed, more)
        };
        self.decide_sliding(limit, length_ms, now, count)
    }

    /// The result of [`CountWindow::count_sliding`] without counting.
    pub(crate) fn preview_sliding(&self, limit: u64, length_ms: u64, now: Now) -> Option<WindowDecision> {
        let look = |within: &dyn Fn(u64) -> bool| {
            let count = self.count.load(Relaxed);
            if within(count) { Ok(count) } else { Err(count) }
        };
        self.decide_sliding(limit, length_ms, now, look)
    }

    /// `count` returns the previous count, as `Ok` if one more request is within the limit, else as `Err`.
    fn decide_sliding(
        &self,
        limit: u64,
        length_ms: u64,
        now: Now,
        count: impl Fn(&dyn Fn(u64) -> bool) -> Result<u64, u64>,
    ) -> Option<WindowDecision> {
        if !self.holds(length_ms, now) {
            return None;
        }
        let left_ms = length_ms - now.unix_ms % length_ms;
        let moment = SlidingMoment { limit, length_ms, left_ms, before: self.before.min(limit) as f64 };
        Some(moment.verdict(count(&|count| moment.is_within(count))))
    }

    /// Begins the window of `now` unless it is open; returns whether it did.
    pub(crate) fn turn_sliding(&mut self, length_ms: u64, now: Now) -> bool {
        if self.holds(length_ms, now) {
            return false;
        }
        let number = now.unix_ms / length_ms;
        // Only the directly preceding window overlaps the sliding one.
        let follows = self.length_ms == length_ms && self.number + 1 == number;
        let count = std::mem::take(self.count.get_mut());
        self.before = if follows { count } else { 0 };
        self.number = number;
        self.length_ms = length_ms;
        let left_ms = length_ms - now.unix_ms % length_ms;
        // The count still weighs in the window that follows.
        self.useless_at_ms = now.mono_ms().saturating_add(left_ms).saturating_add(length_ms);
        true
    }

    /// Whether the window is the one of `now` or the next one: the clocks of workers differ a little, and a
    /// slow one must not set the window back.
    fn holds(&self, length_ms: u64, now: Now) -> bool {
        let number = now.unix_ms / length_ms;
        self.length_ms == length_ms && (self.number == number || self.number == number + 1)
    }
}

/// The state of a sliding window at one moment.
#[derive(Clone, Copy)]
pub(crate) struct SlidingMoment {
    pub(crate) limit: u64,
    pub(crate) length_ms: u64,
    /// Time until the window ends.
    pub(crate) left_ms: u64,
    /// Requests admitted in the previous window, at most `limit`.
    pub(crate) before: f64,
}

impl SlidingMoment {
    fn previous_weight(&self) -> f64 {
        self.before / self.length_ms as f64 * self.left_ms as f64
    }

    /// Whether one more request than `count` is within the limit.
    pub(crate) fn is_within(&self, count: u64) -> bool {
        count < self.limit && self.previous_weight() + (count as f64) < self.limit as f64
    }

    /// The decision for the previous count: `Ok` if one more request was within the limit.
    pub(crate) fn verdict(&self, counted: Result<u64, u64>) -> WindowDecision {
        let &SlidingMoment { limit, length_ms, left_ms, before } = self;
        match counted {
            Ok(earlier) => WindowDecision {
                admitted: true,
                remaining: (limit as f64 - (earlier + 1) as f64 - self.previous_weight()).floor().max(0.0)
                    as u64,
                reset_cs: left_ms.div_ceil(10),
            },
            Err(count) if count >= limit => refused(left_ms as f64),
            // Time until the weight of the previous window has dropped enough for one more request.
            Err(count) => refused(left_ms as f64 - (limit - count) as f64 * length_ms as f64 / before),
        }
    }
}

/// The decision of a fixed window with this count.
pub(crate) fn verdict_fixed(limit: u64, count: u64, left_ms: u64) -> WindowDecision {
    let remaining = limit.checked_sub(count);
    WindowDecision {
        admitted: remaining.is_some(),
        remaining: remaining.unwrap_or(0),
        reset_cs: left_ms / 10,
    }
}

fn refused(wait_ms: f64) -> WindowDecision {
    WindowDecision { admitted: false, remaining: 0, reset_cs: (wait_ms / 10.0).ceil().max(0.0) as u64 }
}
