//! The concurrency limit and its control loop. The limit follows the ratio of the baseline latency to the
//! current latency, plus some headroom for growth, and drops at once after an overload.
//!
//! All workers share one limiter. The counts are atomics. The state of the control loop is behind a mutex
//! that is only tried, because a lost sample does not matter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Parameters of the control loop. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AdaptiveLimitRules {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) first: u32,
    /// Ratio of current to baseline latency up to which the limit does not shrink.
    pub(super) tolerance: f64,
    pub(super) window_us: u64,
    pub(super) measure_interval_us: u64,
    pub(super) measure_requests: u32,
}

/// Fewest samples for an adjustment. A window with fewer samples is extended.
pub(super) const SAMPLES_MIN: u32 = 10;
/// Bounds of the factor that one adjustment applies to the limit.
const GRADIENT: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// Factor that an overload applies to the limit.
const BACKOFF: f64 = 0.9;

/// Bounds of the time for which requests are refused during a measurement of the baseline latency. Within
/// these bounds it is a tenth of the measurement interval. A measurement without samples would never end
/// otherwise.
const PATIENCE_US: (u64, u64) = (1_000_000, 10_000_000);

/// The result of one exchange, as an input of the control loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConcurrencySample {
    /// Latency of the upstream in microseconds.
    Latency(u64),
    /// The upstream failed, or responded with 503 or 504.
    Overload,
}

/// A concurrency limit that all workers share.
#[derive(Debug)]
pub(crate) struct AdaptiveLimiter {
    rules: AdaptiveLimitRules,
    limit: AtomicU32,
    running: AtomicU32,
    refused: AtomicU64,
    /// Baseline latency of the upstream in microseconds; 0 before the first measurement.
    baseline_us: AtomicU64,
    epoch: AtomicU64,
    state: Mutex<AdaptiveLimiterState>,
}

/// The number of an epoch (high 32 bits) and the number of its exchanges in flight (low 32 bits, only counted
/// while measuring). One atomic word holds both, so that no exchange is counted in another epoch.
#[derive(Debug, Clone, Copy)]
struct MeasureEpoch(u64);

impl MeasureEpoch {
    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn running(self) -> u32 {
        self.0 as u32
    }

    /// Odd epochs measure the baseline latency. They ignore exchanges that began in another epoch.
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
    /// Most exchanges in flight at once during the window.
    peak: u32,
    /// Samples still to ignore: these exchanges queued behind load from before the measurement.
    skip: u32,
    /// Start of the refusals during the current measurement.
    refusing_since_us: Option<u64>,
    /// Time of the next measurement of the baseline latency.
    measure_at_us: u64,
    /// Limit before the measurement; restored at its end.
    limit_before: f64,
    /// Limit with its fraction, because one adjustment may be smaller than 1.
    limit: f64,
}

/// An exchange in flight. It is counted until its response begins or the guard is dropped.
pub(super) struct AdaptiveLimitGuard {
    limiter: Arc<AdaptiveLimiter>,
    epoch: u32,
    /// Start of the first attempt, in microseconds.
    attempted_us: Cell<Option<u64>>,
    is_counted: Cell<bool>,
}

impl AdaptiveLimitGuard {
    /// Counts one more exchange, or returns `None` at the limit.
    pub(super) fn enter(limiter: &Arc<AdaptiveLimiter>, now_us: u64) -> Option<AdaptiveLimitGuard> {
        // A measurement that refuses for too long is aborted; the usual limit decides then.
        let again = || if limiter.aborts_measurement(now_us) { limiter.count_in() } else { None };
        let Some(epoch) = limiter.count_in().or_else(again) else {
            limiter.refused.fetch_add(1, Relaxed);
            return None;
        };
        let limiter = limiter.clone();
        Some(AdaptiveLimitGuard {
            limiter,
            epoch,
            attempted_us: Cell::default(),
            is_counted: Cell::new(true),
        })
    }

    pub(super) fn is_of(&self, limiter: &Arc<AdaptiveLimiter>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter)
    }

    /// Records the start of an attempt. Only the first attempt counts.
    pub(super) fn note_attempt(&self, now_us: u64) {
        self.attempted_us.set(self.attempted_us.get().or(Some(now_us)));
    }

    /// Time since the first attempt in microseconds; `None` without an attempt.
    pub(super) fn took_us(&self, now_us: u64) -> Option<u64> {
        Some(now_us.saturating_sub(self.attempted_us.get()?))
    }

    /// Releases the count; further calls have no effect.
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
        // The first epoch measures, because no baseline latency exists yet.
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

    /// Counts one more exchange and returns its epoch, or `None` at the limit.
    fn count_in(&self) -> Option<u32> {
        // Relaxed throughout: the counts publish no other memory.
        let epoch = self.epoch();
        if !epoch.is_measuring() {
            let limit = self.limit();
            let more = |running: u32| (running < limit).then_some(running + 1);
            return self.running.fetch_update(Relaxed, Relaxed, more).ok().map(|_| epoch.number());
        }
        // Exchanges from before the measurement are not counted against it: a tunnel may last for hours.
        let more = |word: u64| (MeasureEpoch(word).running() < self.rules.min).then_some(word + 1);
        let counted = self.epoch.fetch_update(Relaxed, Relaxed, more).ok()?;
        // The total goes on during a measurement, because the usual limit applies to it afterwards.
        self.running.fetch_add(1, Relaxed);
        Some(MeasureEpoch(counted).number())
    }

    fn count_out(&self, epoch: u32) {
        self.running.fetch_sub(1, Relaxed);
        let less = |word: u64| {
            let now = MeasureEpoch(word);
            (now.number() == epoch && now.running() > 0).then_some(word - 1)
        };
        // The counts of an ended epoch no longer matter.
        let _ = self.epoch.fetch_update(Relaxed, Relaxed, less);
    }

    fn epoch(&self) -> MeasureEpoch {
        MeasureEpoch(self.epoch.load(Relaxed))
    }

    /// The current limit.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// The number of exchanges in flight.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }

    /// The number of exchanges in flight that count against the current limit.
    pub(super) fn limited(&self) -> u32 {
        let epoch = self.epoch();
        if epoch.is_measuring() { epoch.running() } else { self.running() }
    }

    /// The number of refused exchanges since the limiter was created.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Baseline latency of the upstream in microseconds; 0 before the first measurement.
    pub(super) fn baseline_us(&self) -> u64 {
        self.baseline_us.load(Relaxed)
    }

    /// Feeds the sample of one exchange to the control loop. `lot` is a random number that spreads the
    /// measurements.
    pub(super) fn learn(&self, guard: &AdaptiveLimitGuard, sample: ConcurrencySample, now_us: u64, lot: u64) {
        // Under contention the sample is skipped: a response never waits for the state.
        let Ok(mut state) = self.state.try_lock() else { return };
        let epoch = self.epoch();
        // Only exchanges that began in the measurement show the latency without load.
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

    /// Ends the measurement. With too few samples the previous baseline remains.
    fn end_measuring(&self, state: &mut AdaptiveLimiterState, now_us: u64, lot: u64) {
        if state.count >= SAMPLES_MIN.min(self.rules.measure_requests) {
            self.baseline_us.store(state.average_us(), Relaxed);
        }
        self.epoch.store(self.epoch().next().0, Relaxed);
        let interval_us = self.rules.measure_interval_us;
        // Measurements of nodes that started together drift apart by a random part of the interval.
        let spread_us = interval_us / 5;
        state.measure_at_us = now_us + interval_us - spread_us / 2 + lot % spread_us.max(1);
        state.window_ends_us = now_us + self.rules.window_us;
        let limit = state.limit_before;
        self.set_limit(state, limit);
        state.clear();
    }

    /// Ends the measurement if requests were refused for longer than its budget; returns whether it did.
    fn aborts_measurement(&self, now_us: u64) -> bool {
        if !self.epoch().is_measuring() {
            return false;
        }
        let Ok(mut state) = self.state.try_lock() else { return false };
        let since_us = *state.refusing_since_us.get_or_insert(now_us);
        let patience_us = (self.rules.measure_interval_us / 10).clamp(PATIENCE_US.0, PATIENCE_US.1);
        // Another worker may have ended the measurement before this one got the lock.
        if now_us.saturating_sub(since_us) < patience_us || !self.epoch().is_measuring() {
            return false;
        }
        // No random number is at hand here: the middle of the range is as good.
        self.end_measuring(&mut state, now_us, self.rules.measure_interval_us / 10);
        true
    }

    fn adapt(&self, state: &mut AdaptiveLimiterState) {
        if self.baseline_us() == 0 && state.count > 0 {
            // The measurement failed. The current latency is the baseline until the next measurement.
            self.baseline_us.store(state.average_us(), Relaxed);
        }
        let limit = match state.has_overload {
            true => state.limit * BACKOFF,
            false => {
                // Only the headroom raises the limit, never a latency below the baseline, hence `min(1.0)`.
                let average_us = state.average_us() as f64;
                let fine_us = self.baseline_us() as f64 * self.rules.tolerance;
                let gradient = (fine_us / average_us).clamp(*GRADIENT.start(), *GRADIENT.end()).min(1.0);
                // Headroom for a short queue, which lets the limit grow.
                let target = state.limit * gradient + state.limit.sqrt();
                // Without load near the limit, the latency is no evidence for a higher limit.
                let is_used = f64::from(state.peak) * 2.0 >= state.limit;
                if is_used { target } else { target.min(state.limit) }
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
