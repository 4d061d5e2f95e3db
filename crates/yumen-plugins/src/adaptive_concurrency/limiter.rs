//! The limit and how it moves: by the ratio of the upstream's own latency to that of now, plus a little
//! room to grow, and down at once where it is plainly too much.
//!
//! All workers share it. The counts are atomics; what decides is under a lock that is only tried, since a
//! sample more or less does not matter.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How the limit may move. Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rules {
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
const SAMPLES_MIN: u32 = 10;
/// The most the limit changes at once.
const GRADIENT: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// What is left of the limit after an overload.
const BACKOFF: f64 = 0.9;

/// What one exchange tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// The upstream took so many microseconds.
    Took(u64),
    /// It could not, or said that it could not.
    Overload,
}

/// A limit.
#[derive(Debug)]
pub(crate) struct Limiter {
    rules: Rules,
    limit: AtomicU32,
    running: AtomicU32,
    refused: AtomicU64,
    /// The upstream's own latency in microseconds; 0 before it was measured.
    baseline_us: AtomicU64,
    /// Odd while that is measured; exchanges that began in another epoch do not count then.
    epoch: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window_ends_us: u64,
    sum_us: u64,
    count: u32,
    has_overload: bool,
    /// The most that ran at once in the window.
    peak: u32,
    /// When the upstream's own latency is measured again.
    measure_at_us: u64,
    /// The limit before measuring.
    limit_before: f64,
    /// Exactly, since it moves by less than one.
    limit: f64,
}

/// An exchange under way, counted until it is dropped.
pub(super) struct Guard {
    limiter: Arc<Limiter>,
    epoch: u32,
}

impl Guard {
    /// Counts one more, unless there are as many as may be.
    pub(super) fn enter(limiter: &Arc<Limiter>) -> Option<Guard> {
        let limit = limiter.limit();
        let more = |running: u32| (running < limit).then_some(running + 1);
        match limiter.running.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Some(Guard { limiter: limiter.clone(), epoch: limiter.epoch.load(Relaxed) }),
            Err(_) => {
                limiter.refused.fetch_add(1, Relaxed);
                None
            }
        }
    }

    pub(super) fn is_of(&self, limiter: &Arc<Limiter>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.limiter.running.fetch_sub(1, Relaxed);
    }
}

impl Limiter {
    pub(super) fn new(rules: Rules) -> Limiter {
        // The first exchanges measure.
        Limiter {
            limit: AtomicU32::new(rules.min),
            running: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            baseline_us: AtomicU64::new(0),
            epoch: AtomicU32::new(1),
            state: Mutex::new(State {
                limit: f64::from(rules.min),
                limit_before: f64::from(rules.first),
                ..State::default()
            }),
            rules,
        }
    }

    /// How many may run.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// How many run.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }

    /// How many were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The upstream's own latency, in microseconds; 0 before it was measured.
    pub(super) fn baseline_us(&self) -> u64 {
        self.baseline_us.load(Relaxed)
    }

    /// Learns from an exchange that is over. `lot` is a random number.
    pub(super) fn finished(&self, guard: &Guard, sample: Sample, now_us: u64, lot: u64) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let epoch = self.epoch.load(Relaxed);
        let is_measuring = epoch % 2 == 1;
        if is_measuring && guard.epoch != epoch {
            return;
        }
        match sample {
            Sample::Took(took_us) => {
                state.sum_us += took_us;
                state.count += 1;
            }
            Sample::Overload => state.has_overload = true,
        }
        state.peak = state.peak.max(self.running());
        if is_measuring {
            self.measure(&mut state, now_us, lot);
        } else if now_us >= state.measure_at_us {
            state.limit_before = state.limit;
            self.set_limit(&mut state, f64::from(self.rules.min));
            self.epoch.store(epoch.wrapping_add(1), Relaxed);
            state.clear();
        } else if now_us >= state.window_ends_us && (state.count >= SAMPLES_MIN || state.has_overload) {
            self.adapt(&mut state);
            state.window_ends_us = now_us + self.rules.window_us;
        }
    }

    /// Ends measuring when there are enough samples.
    fn measure(&self, state: &mut State, now_us: u64, lot: u64) {
        if state.count < self.rules.measure_requests {
            return;
        }
        self.baseline_us.store((state.sum_us / u64::from(state.count)).max(1), Relaxed);
        self.epoch.fetch_add(1, Relaxed);
        let interval_us = self.rules.measure_interval_us;
        let spread_us = interval_us / 5;
        state.measure_at_us = now_us + interval_us - spread_us / 2 + lot % spread_us.max(1);
        state.window_ends_us = now_us + self.rules.window_us;
        let limit = state.limit_before;
        self.set_limit(state, limit);
        state.clear();
    }

    fn adapt(&self, state: &mut State) {
        let limit = match state.has_overload {
            true => state.limit * BACKOFF,
            false => {
                let average_us = (state.sum_us as f64 / f64::from(state.count)).max(1.0);
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

    fn set_limit(&self, state: &mut State, limit: f64) {
        state.limit = limit.clamp(f64::from(self.rules.min), f64::from(self.rules.max));
        self.limit.store(state.limit as u32, Relaxed);
    }
}

impl State {
    fn clear(&mut self) {
        (self.sum_us, self.count, self.peak, self.has_overload) = (0, 0, 0, false);
    }
}
