//! The limit and how it moves: by the ratio of the upstream's own latency to that of now, plus a little
//! room to grow, and down at once where it is plainly too much.
//!
//! All workers share it. The counts are atomics; what decides is under a lock that is only tried, since a
//! sample more or less does not matter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How the limit may move. Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AdaptiveLimitRules {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) first: u32,
    /// The ratio of latencies that is still fine.
    pub(super) tolerance: f64,
    pub(super) window_us: u64,
    pub(super) measure_interval_us: u64,
    pub(super) measure_requests: u32,
}

/// Fewer samples tell nothing; the window goes on until there are so many.
pub(super) const SAMPLES_MIN: u32 = 10;
/// The most the limit changes at once.
const GRADIENT: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// What is left of the limit after an overload.
const BACKOFF: f64 = 0.9;

/// For how long requests are refused, at least and at most, because the upstream's own latency is measured: a
/// tenth of the time between two measurements, which may get no samples at all.
const PATIENCE_US: (u64, u64) = (1_000_000, 10_000_000);

/// What one exchange tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConcurrencySample {
    /// The upstream took so many microseconds.
    Latency(u64),
    /// It could not, or said that it could not.
    Overload,
}

/// A limit.
#[derive(Debug)]
pub(crate) struct AdaptiveLimiter {
    rules: AdaptiveLimitRules,
    limit: AtomicU32,
    running: AtomicU32,
    refused: AtomicU64,
    /// The upstream's own latency in microseconds; 0 before it was measured.
    baseline_us: AtomicU64,
    epoch: AtomicU64,
    state: Mutex<AdaptiveLimiterState>,
}

/// The number of an epoch, and how many exchanges that began in it run, where it measures: both in one word,
/// so that none is counted into another's.
#[derive(Debug, Clone, Copy)]
struct MeasureEpoch(u64);

impl MeasureEpoch {
    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn running(self) -> u32 {
        self.0 as u32
    }

    /// Odd ones measure; exchanges that began in another epoch do not count then.
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
    /// The most that ran at once in the window.
    peak: u32,
    /// So many samples wait behind what ran before measuring began, and tell of that.
    skip: u32,
    /// Since when requests are refused while the upstream's own latency is measured.
    refusing_since_us: Option<u64>,
    /// When the upstream's own latency is measured again.
    measure_at_us: u64,
    /// The limit before measuring.
    limit_before: f64,
    /// Exactly, since it moves by less than one.
    limit: f64,
}

/// An exchange under way, counted until its answer has begun or it is dropped.
pub(super) struct AdaptiveLimitGuard {
    limiter: Arc<AdaptiveLimiter>,
    epoch: u32,
    /// When an endpoint was first asked, in microseconds.
    asked_us: Cell<Option<u64>>,
    is_counted: Cell<bool>,
}

impl AdaptiveLimitGuard {
    /// Counts one more, unless there are as many as may be.
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

    /// Notes when an endpoint is asked; of several attempts the first counts.
    pub(super) fn note_attempt(&self, now_us: u64) {
        self.asked_us.set(self.asked_us.get().or(Some(now_us)));
    }

    /// How long the upstream has had, where it was asked.
    pub(super) fn took_us(&self, now_us: u64) -> Option<u64> {
        Some(now_us.saturating_sub(self.asked_us.get()?))
    }

    /// Counts it no more, whatever becomes of it.
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

    /// Counts one more and tells its epoch, where there is room.
    fn count_in(&self) -> Option<u32> {
        let epoch = self.epoch();
        if !epoch.is_measuring() {
            let limit = self.limit();
            let more = |running: u32| (running < limit).then_some(running + 1);
            return self.running.fetch_update(Relaxed, Relaxed, more).ok().map(|_| epoch.number());
        }
        // What began before is not held against those that measure: it may last for ever.
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
        // An epoch that is over counts nothing any more.
        let _ = self.epoch.fetch_update(Relaxed, Relaxed, less);
    }

    fn epoch(&self) -> MeasureEpoch {
        MeasureEpoch(self.epoch.load(Relaxed))
    }

    /// How many may run.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// How many run.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }

    /// How many of those the limit holds for now.
    pub(super) fn limited(&self) -> u32 {
        let epoch = self.epoch();
        if epoch.is_measuring() { epoch.running() } else { self.running() }
    }

    /// How many were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The upstream's own latency, in microseconds; 0 before it was measured.
    pub(super) fn baseline_us(&self) -> u64 {
        self.baseline_us.load(Relaxed)
    }

    /// Learns from an exchange that was answered or failed. `lot` is a random number.
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

    /// Ends measuring with what samples there are; where they are too few, what was known before stays.
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

    /// Whether measuring was ended now, since requests have been refused for it for too long.
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
        // As far off as any lot would put it: half way between the earliest and the latest.
        self.end_measuring(&mut state, now_us, self.rules.measure_interval_us / 10);
        true
    }

    fn adapt(&self, state: &mut AdaptiveLimiterState) {
        if self.baseline_us() == 0 && state.count > 0 {
            // It could not be measured: what is seen has to do until it can.
            self.baseline_us.store(state.average_us(), Relaxed);
        }
        let limit = match state.has_overload {
            true => state.limit * BACKOFF,
            false => {
                let average_us = state.average_us() as f64;
                let fine_us = self.baseline_us() as f64 * self.rules.tolerance;
                let gradient = (fine_us / average_us).clamp(*GRADIENT.start(), *GRADIENT.end()).min(1.0);
                // Room for a queue that is short for what it serves.
                let wanted = state.limit * gradient + state.limit.sqrt();
                // A limit that nobody comes near says nothing of what the upstream bears.
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
