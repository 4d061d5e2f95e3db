//! The limit and its adjustment: the ratio of the upstream's unloaded latency to its current latency, plus a
//! margin for growth; an overload lowers the limit at once.
//!
//! All workers share the limiter. Counts are atomics. Adjustments take a lock with `try_lock`, since the
//! limiter works without a few samples.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Bounds of the limit. Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AdaptiveLimitRules {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) first: u32,
    /// The ratio of latencies that counts as unloaded.
    pub(super) tolerance: f64,
    pub(super) window_us: u64,
    pub(super) measure_interval_us: u64,
    pub(super) measure_requests: u32,
}

/// Minimum number of samples in a window; the window is extended until then.
pub(super) const SAMPLES_MIN: u32 = 10;
/// Maximum change of the limit per window.
const GRADIENT: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// Factor of the limit after an overload.
const BACKOFF: f64 = 0.9;

/// Minimum and maximum time in which requests are refused for a measurement of the unloaded latency: a tenth
/// of the interval between two measurements. A measurement may get no samples.
const PATIENCE_US: (u64, u64) = (1_000_000, 10_000_000);

/// The result of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConcurrencySample {
    /// Latency of the upstream, in microseconds.
    Latency(u64),
    /// The upstream failed, or reported an overload.
    Overload,
}

/// An adaptive limit.
#[derive(Debug)]
pub(crate) struct AdaptiveLimiter {
    rules: AdaptiveLimitRules,
    limit: AtomicU32,
    running: AtomicU32,
    refused: AtomicU64,
    /// Unloaded latency in microseconds; 0 before the first measurement.
    baseline_us: AtomicU64,
    epoch: AtomicU64,
    state: Mutex<AdaptiveLimiterState>,
}

/// The number of an epoch and, while it measures, the number of running exchanges that began in it. Both are
/// in one word, so that no exchange is counted in another epoch.
#[derive(Debug, Clone, Copy)]
struct MeasureEpoch(u64);

impl MeasureEpoch {
    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn running(self) -> u32 {
        self.0 as u32
    }

    /// Odd epochs measure; exchanges of other epochs do not count then.
    fn is_measuring(self) -> bool {
        self.number() % 2 == 1
    }

    fn next(self) -> MeasureEpoch {
        MeasureEpoch(u64::from(self.number().wrapping_add(1)) << 32)
    }
}

#[derive(Debug, Default)]
struct AdaptiveLimiterState {
    window_ends_us: u64,
    sum_us: u64,
    count: u32,
    has_overload: bool,
    /// Maximum concurrency in the window.
    peak: u32,
    /// Number of samples to discard, since they waited behind exchanges of an earlier epoch.
    skip: u32,
    /// Time since which requests are refused for a measurement.
    refusing_since_us: Option<u64>,
    /// Time of the next measurement.
    measure_at_us: u64,
    /// The limit before the measurement.
    limit_before: f64,
    /// The limit as a fraction, since it moves by less than one.
    limit: f64,
}

/// A running exchange, counted until its response has begun or the guard is dropped.
pub(super) struct AdaptiveLimitGuard {
    limiter: Arc<AdaptiveLimiter>,
    epoch: u32,
    /// Time of the first attempt, in microseconds.
    asked_us: Cell<Option<u64>>,
    is_counted: Cell<bool>,
}

impl AdaptiveLimitGuard {
    /// Counts an exchange; `None` at the limit.
    pub(super) fn enter(limiter: &Arc<AdaptiveLimiter>, now_us: u64) -> Option<AdaptiveLimitGuard> {
        let again = || if limiter.aborts_measurement(now_us) { limiter.count_in() } else { None };
        let Some(epoch) = limiter.count_in().or_else(again) else {
            limiter.refused.fetch_add(1, Relaxed);
            return None;
        };
        let limiter = limiter.clone();
        Some(AdaptiveLimitGuard { limiter, epoch, asked_us: Cell::default(), is_counted: Cell::new(true) })
    }

    pub(super) fn is_of(&self, limiter: &Arc<AdaptiveLimiter>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter)
    }

    /// Records the time of the first attempt.
    pub(super) fn note_attempt(&self, now_us: u64) {
        self.asked_us.set(self.asked_us.get().or(Some(now_us)));
    }

    /// Time since the first attempt; `None` without one.
    pub(super) fn took_us(&self, now_us: u64) -> Option<u64> {
        Some(now_us.saturating_sub(self.asked_us.get()?))
    }

    /// Uncounts the exchange.
    pub(super) fn release(&self) {
        if self.is_counted.replace(false) {
            self.limiter.count_out(self.epoch);
        }
    }
}

impl Drop for AdaptiveLimitGuard {
    fn drop(&mut self) {
        self.release();
    }
}

impl AdaptiveLimiter {
    pub(super) fn new(rules: AdaptiveLimitRules) -> AdaptiveLimiter {
        // The first exchanges measure.
        AdaptiveLimiter {
            limit: AtomicU32::new(rules.min),
            running: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            baseline_us: AtomicU64::new(0),
            epoch: AtomicU64::new(MeasureEpoch(0).next().0),
            state: Mutex::new(AdaptiveLimiterState {
                limit: f64::from(rules.min),
                limit_before: f64::from(rules.first),
                ..AdaptiveLimiterState::default()
            }),
            rules,
        }
    }

    /// Counts an exchange and returns its epoch; `None` at the limit.
    fn count_in(&self) -> Option<u32> {
        let epoch = self.epoch();
        if !epoch.is_measuring() {
            let limit = self.limit();
            let more = |running: u32| (running < limit).then_some(running + 1);
            return self.running.fetch_update(Relaxed, Relaxed, more).ok().map(|_| epoch.number());
        }
        // Exchanges of earlier epochs do not count against a measurement, since they may never end.
        let more = |word: u64| (MeasureEpoch(word).running() < self.rules.min).then_some(word + 1);
        let counted = self.epoch.fetch_update(Relaxed, Relaxed, more).ok()?;
        self.running.fetch_add(1, Relaxed);
        Some(MeasureEpoch(counted).number())
    }

    fn count_out(&self, epoch: u32) {
        self.running.fetch_sub(1, Relaxed);
        let less = |word: u64| {
            let now = MeasureEpoch(word);
            (now.number() == epoch && now.running() > 0).then_some(word - 1)
        };
        // An epoch that has ended is not counted.
        let _ = self.epoch.fetch_update(Relaxed, Relaxed, less);
    }

    fn epoch(&self) -> MeasureEpoch {
        MeasureEpoch(self.epoch.load(Relaxed))
    }

    /// The current limit.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Number of running exchanges.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }

    /// Number of running exchanges that count towards the limit.
    pub(super) fn limited(&self) -> u32 {
        let epoch = self.epoch();
        if epoch.is_measuring() { epoch.running() } else { self.running() }
    }

    /// Number of refused exchanges.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Unloaded latency in microseconds; 0 before the first measurement.
    pub(super) fn baseline_us(&self) -> u64 {
        self.baseline_us.load(Relaxed)
    }

    /// Records the result of an exchange. `lot` is a random number.
    pub(super) fn learn(&self, guard: &AdaptiveLimitGuard, sample: ConcurrencySample, now_us: u64, lot: u64) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let epoch = self.epoch();
        if epoch.is_measuring() && guard.epoch != epoch.number() {
            return;
        }
        match sample {
            ConcurrencySample::Latency(_) if state.skip > 0 => state.skip -= 1,
            ConcurrencySample::Latency(took_us) => {
                state.sum_us += took_us;
                state.count += 1;
            }
            ConcurrencySample::Overload => state.has_overload = true,
        }
        state.peak = state.peak.max(self.running());
        if epoch.is_measuring() {
            if state.count >= self.rules.measure_requests {
                self.end_measuring(&mut state, now_us, lot);
            }
        } else if now_us >= state.measure_at_us {
            self.begin_measuring(&mut state);
        } else if now_us >= state.window_ends_us && (state.count >= SAMPLES_MIN || state.has_overload) {
            self.adapt(&mut state);
            state.window_ends_us = now_us + self.rules.window_us;
        }
    }

    fn begin_measuring(&self, state: &mut AdaptiveLimiterState) {
        state.limit_before = state.limit;
        self.set_limit(state, f64::from(self.rules.min));
        self.epoch.store(self.epoch().next().0, Relaxed);
        state.clear();
        state.skip = self.rules.min;
        state.refusing_since_us = None;
    }

    /// Ends a measurement with its samples; with too few, the earlier latency stays.
    fn end_measuring(&self, state: &mut AdaptiveLimiterState, now_us: u64, lot: u64) {
        if state.count >= SAMPLES_MIN.min(self.rules.measure_requests) {
            self.baseline_us.store(state.average_us(), Relaxed);
        }
        self.epoch.store(self.epoch().next().0, Relaxed);
        let interval_us = self.rules.measure_interval_us;
        let spread_us = interval_us / 5;
        state.measure_at_us = now_us + interval_us - spread_us / 2 + lot % spread_us.max(1);
        state.window_ends_us = now_us + self.rules.window_us;
        let limit = state.limit_before;
        self.set_limit(state, limit);
        state.clear();
    }

    /// Whether the measurement has ended because it has refused requests for too long.
    fn aborts_measurement(&self, now_us: u64) -> bool {
        if !self.epoch().is_measuring() {
            return false;
        }
        let Ok(mut state) = self.state.try_lock() else { return false };
        let since_us = *state.refusing_since_us.get_or_insert(now_us);
        let patience_us = (self.rules.measure_interval_us / 10).clamp(PATIENCE_US.0, PATIENCE_US.1);
        if now_us.saturating_sub(since_us) < patience_us || !self.epoch().is_measuring() {
            return false;
        }
        // The mean over all lots: half way between the earliest and the latest time.
        self.end_measuring(&mut state, now_us, self.rules.measure_interval_us / 10);
        true
    }

    fn adapt(&self, state: &mut AdaptiveLimiterState) {
        if self.baseline_us() == 0 && state.count > 0 {
            // Without a measurement, the current latency serves until there is one.
            self.baseline_us.store(state.average_us(), Relaxed);
        }
        let limit = match state.has_overload {
            true => state.limit * BACKOFF,
            false => {
                let average_us = state.average_us() as f64;
                let fine_us = self.baseline_us() as f64 * self.rules.tolerance;
                let gradient = (fine_us / average_us).clamp(*GRADIENT.start(), *GRADIENT.end()).min(1.0);
                // Margin for a queue that is short compared with the limit.
                let wanted = state.limit * gradient + state.limit.sqrt();
                // A limit that is not used up says nothing about the capacity of the upstream.
                let is_used = f64::from(state.peak) * 2.0 >= state.limit;
                if is_used { wanted } else { wanted.min(state.limit) }
            }
        };
        self.set_limit(state, limit);
        state.clear();
    }

    fn set_limit(&self, state: &mut AdaptiveLimiterState, limit: f64) {
        state.limit = limit.clamp(f64::from(self.rules.min), f64::from(self.rules.max));
        self.limit.store(state.limit as u32, Relaxed);
    }
}

impl AdaptiveLimiterState {
    fn average_us(&self) -> u64 {
        (self.sum_us / u64::from(self.count.max(1))).max(1)
    }

    fn clear(&mut self) {
        (self.sum_us, self.count, self.peak, self.has_overload, self.skip) = (0, 0, 0, false, 0);
    }
}
