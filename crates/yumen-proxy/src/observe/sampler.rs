//! Which requests are looked at closely: all while they are few, one in many when they are not.
//!
//! Knows neither requests nor clocks: it is told when half a second has passed.

use std::cell::Cell;

const TICKS_PER_SECOND: u32 = 2;
/// Where not all are taken, at most one in so many.
const PERIOD_MIN: u32 = 16;
const PERIOD_MAX: u32 = 4096;

/// Draws samples by lot, so that no rhythm of the traffic meets the rhythm of the sampling.
///
/// Every sample stands for itself and the requests since the one before: the weights add up to the requests.
pub(crate) struct RequestSampler {
    /// So many requests between two ticks are all taken; above that, about as many of them.
    per_tick: u32,
    /// Requests until the next sample, itself included.
    left: Cell<u32>,
    /// What `left` began with.
    gap: Cell<u32>,
    /// The mean gap.
    period: Cell<u32>,
    /// Samples since the last tick.
    taken: Cell<u32>,
    /// Requests of gaps that ended since the last tick, less what the tick before had counted of the first.
    passed: Cell<i64>,
    /// Weight of samples that could not be written down, for the next one.
    owed: Cell<u32>,
    random: Cell<u64>,
}

impl RequestSampler {
    /// The first request is taken, unless none is to be.
    pub(crate) fn new(seed: u64, per_second: u32) -> RequestSampler {
        RequestSampler {
            per_tick: per_second.div_ceil(TICKS_PER_SECOND),
            left: Cell::new(1),
            gap: Cell::new(1),
            period: Cell::new(1),
            taken: Cell::new(0),
            passed: Cell::new(0),
            owed: Cell::new(0),
            random: Cell::new(seed | 1),
        }
    }

    /// Counts a request; how many it stands for, 0 if it is not taken.
    #[inline]
    pub(crate) fn draw(&self) -> u32 {
        let left = self.left.get() - 1;
        self.left.set(left);
        if left > 0 { 0 } else { self.take() }
    }

    #[cold]
    fn take(&self) -> u32 {
        if self.per_tick == 0 {
            self.left.set(u32::MAX);
            return 0;
        }
        let gap = self.gap.get();
        self.passed.set(self.passed.get() + i64::from(gap));
        self.taken.set(self.taken.get() + 1);
        // A burst is not looked at closely until the next tick notices it.
        if self.taken.get() >= 2 * self.per_tick {
            self.taken.set(0);
            self.period.set((self.period.get() * 2).clamp(PERIOD_MIN, PERIOD_MAX));
        }
        self.aim();
        gap.saturating_add(self.owed.take())
    }

    /// The next gap: its mean is the period.
    fn aim(&self) {
        let period = self.period.get();
        let gap = if period == 1 { 1 } else { 1 + (self.random() % u64::from(2 * period - 1)) as u32 };
        self.gap.set(gap);
        self.left.set(gap);
    }

    /// The sample of this weight was lost: the next one stands for its requests too.
    pub(crate) fn give_back(&self, weight: u32) {
        self.owed.set(self.owed.get().saturating_add(weight));
    }

    /// Half a second has passed: follows the rate.
    pub(crate) fn tick(&self) {
        if self.per_tick == 0 {
            return;
        }
        let open = i64::from(self.gap.get() - self.left.get());
        let requests = u32::try_from(self.passed.get() + open).unwrap_or(0);
        self.passed.set(-open);
        self.taken.set(0);
        let period = if requests <= self.per_tick {
            1
        } else {
            (requests / self.per_tick).next_power_of_two().clamp(PERIOD_MIN, PERIOD_MAX)
        };
        self.period.set(period);
        // After a rush the next sample is not as far away as it was in it.
        let cut = self.left.get().saturating_sub(2 * period - 1);
        self.left.set(self.left.get() - cut);
        self.gap.set(self.gap.get() - cut);
    }

    fn random(&self) -> u64 {
        // xorshift64*: chance, not secrecy.
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

#[cfg(test)]
mod tests;
