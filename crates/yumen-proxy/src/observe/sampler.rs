//! Selection of sampled requests: all at a low rate, one in many at a high rate.
//!
//! This file must not know requests or clocks: the worker calls `tick` twice a second.

use std::cell::Cell;

const TICKS_PER_SECOND: u32 = 2;
/// Minimum mean gap when not all requests are sampled, in requests.
const PERIOD_MIN: u32 = 16;
const PERIOD_MAX: u32 = 4096;

/// Draws samples with random gaps, so that periodic traffic does not align with the sampling.
///
/// The weight of a sample counts it and the requests since the last sample, so the weights add up to the
/// requests.
pub(crate) struct RequestSampler {
    /// Number of requests between two ticks up to which all are sampled; above, about this number is sampled.
    per_tick: u32,
    /// Requests up to and including the next sample.
    left: Cell<u32>,
    /// Initial value of `left`.
    gap: Cell<u32>,
    /// The mean gap, in requests.
    period: Cell<u32>,
    /// Number of samples since the last tick.
    taken: Cell<u32>,
    /// Requests of the gaps that ended since the last tick, without those of the first gap that the last tick
    /// had counted.
    passed: Cell<i64>,
    /// Weight of lost samples, which is added to the next one.
    owed: Cell<u32>,
    random: Cell<u64>,
}

impl RequestSampler {
    /// Creates a sampler that samples the first request, unless `per_second` is 0.
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

    /// Counts a request and returns its weight; 0 if it is not sampled.
    #[inline]
    pub(crate) fn draw(&self) -> u32 {
        let left = self.left.get() - 1;
        self.left.set(left);
        if left > 0 { 0 } else { self.take() }
    }

    #[cold]
    fn take(&self) -> u32 {
        if self.per_tick == 0 {
            // Sampling is off, so this function is due again only after 2^32 requests.
            self.left.set(u32::MAX);
            return 0;
        }
        let gap = self.gap.get();
        self.passed.set(self.passed.get() + i64::from(gap));
        self.taken.set(self.taken.get() + 1);
        // A burst doubles the gap at once: waiting for the tick would sample all of it.
        if self.taken.get() >= 2 * self.per_tick {
            self.taken.set(0);
            self.period.set((self.period.get() * 2).clamp(PERIOD_MIN, PERIOD_MAX));
        }
        self.aim();
        gap.saturating_add(self.owed.take())
    }

    /// Draws the next gap, uniformly distributed with the period as mean.
    fn aim(&self) {
        let period = self.period.get();
        let gap = if period == 1 { 1 } else { 1 + (self.random() % u64::from(2 * period - 1)) as u32 };
        self.gap.set(gap);
        self.left.set(gap);
    }

    /// Adds the weight of a lost sample to the next one.
    pub(crate) fn give_back(&self, weight: u32) {
        self.owed.set(self.owed.get().saturating_add(weight));
    }

    /// Adjusts the period to the rate of the last half second.
    pub(crate) fn tick(&self) {
        if self.per_tick == 0 {
            return;
        }
        // The requests of the open gap belong to this tick, so the next one subtracts them.
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
        // The gap that was drawn at a high rate is cut, or the next sample would be late at the lower rate.
        let cut = self.left.get().saturating_sub(2 * period - 1);
        self.left.set(self.left.get() - cut);
        self.gap.set(self.gap.get() - cut);
    }

    fn random(&self) -> u64 {
        // xorshift64*: sampling needs no cryptographic randomness.
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        // The lowest bits of the product are the least random.
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

#[cfg(test)]
mod tests;
