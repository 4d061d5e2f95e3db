//! Counters with one writing worker and any number of readers.
//!
//! A worker owns its own set, so an update is a plain load and store: no locked instruction, no
//! line bouncing between cores. Readers add up the sets of all workers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A count that only grows. One writer; any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A count of 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owning worker may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        // There is one writer, so no update can be lost between load and store.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds `n` from any thread, at the price of a locked instruction.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A level that rises and falls. One writer; any number of readers.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Moves the level by `n`. Only the owning worker may call it.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets the level.
    pub fn set(&self, n: i64) {
        self.0.store(n, Relaxed);
    }

    /// The level now.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Observations counted in buckets. One writer; any number of readers.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than the bounds: the last is everything above them.
    buckets: Box<[Counter]>,
    sum: Counter,
}

impl Histogram {
    /// A histogram; bucket `i` counts observations up to `bounds[i]`. Bounds ascend.
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Histogram { bounds, buckets, sum: Counter::default() }
    }

    /// Counts one observation. Only the owning worker may call it.
    #[inline]
    pub fn observe(&self, value: u64) {
        // Most observations are small, so a search from the first bucket ends early.
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.buckets[bucket].add(1);
        self.sum.add(value);
    }

    /// The upper bounds of all buckets but the last.
    pub fn bounds(&self) -> &'static [u64] {
        self.bounds
    }

    /// Observations per bucket, not cumulated; the last is everything above the bounds.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.buckets.iter().map(Counter::get)
    }

    /// The sum of all observations.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }
}
