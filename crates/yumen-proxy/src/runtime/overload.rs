//! Load shedding of a worker: limits of concurrent exchanges, event delay and memory.
//!
//! This file must not know connections: it is called once per exchange, and only if configured.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::fault::FaultKind;
use crate::runtime::clock;
use crate::runtime::timers::Timers;

/// The limits above which new exchanges are refused.
#[derive(Debug, Clone, Default)]
pub struct OverloadSettings {
    /// Maximum number of exchanges in flight per worker; 0 is no limit.
    pub exchanges_max: u32,
    /// Event delay from which requests are shed, in milliseconds; 0 disables the measurement.
    pub lag_ms: u64,
    /// Path prefixes that are exempt from shedding, except at the memory limit: a health check must fail
    /// then, so that load balancers select another node.
    pub spared_paths: Vec<String>,
    /// Shared flag: true while the memory of the process exceeds its limit.
    pub memory_full: Option<Arc<AtomicBool>>,
}

impl OverloadSettings {
    fn is_set(&self) -> bool {
        self.exchanges_max != 0 || self.lag_ms != 0 || self.memory_full.is_some()
    }
}

/// Interval of the delay measurement, in milliseconds.
const SAMPLE_MS: u64 = 20;
/// Duration of one step of the shed share, in microseconds, independent of the number of measurements.
const STEP_US: u64 = 100_000;
/// Maximum number of steps applied at once; more would not change the result.
const STEPS_MAX: u64 = 100;
/// Number of calm steps after which each step halves the share.
const CALM_STEPS_MAX: u32 = 32;
/// Maximum share, in 1024ths. The rest of the requests shows when the overload ends.
const SHED_MAX: u32 = 972;

/// The load shedding state of one worker.
#[derive(Debug)]
pub(crate) struct OverloadGuard {
    settings: OverloadSettings,
    running: Rc<Cell<u32>>,
    lag: Cell<EventLag>,
}

/// The count of one exchange in flight; released on drop.
pub(crate) struct InFlightExchange(Rc<Cell<u32>>);

impl Drop for InFlightExchange {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl OverloadGuard {
    /// Creates the guard, or `None` if no limit is configured.
    pub(crate) fn new(settings: &OverloadSettings) -> Option<OverloadGuard> {
        let settings = settings.clone();
        settings.is_set().then(|| OverloadGuard { settings, running: Rc::default(), lag: Cell::default() })
    }

    /// Admits an exchange. `lot` is a random number.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Overloaded`] if a limit is exceeded.
    pub(crate) fn admit(&self, path: &[u8], lot: u64) -> Result<InFlightExchange, FaultKind> {
        let is_memory_full = self.settings.memory_full.as_ref().is_some_and(|full| full.load(Relaxed));
        let is_full = self.settings.exchanges_max != 0 && self.running.get() >= self.settings.exchanges_max;
        let is_too_much = is_full || self.lag.get().sheds(lot);
        if is_memory_full || (is_too_much && !self.is_spared(path)) {
            return Err(FaultKind::Overloaded);
        }
        self.running.set(self.running.get() + 1);
        Ok(InFlightExchange(self.running.clone()))
    }

    fn is_spared(&self, path: &[u8]) -> bool {
        self.settings.spared_paths.iter().any(|spared| path.starts_with(spared.as_bytes()))
    }

    /// Measures the event delay for the life of the worker.
    pub(crate) async fn watch(&self, timers: &Rc<Timers>) {
        if self.settings.lag_ms == 0 {
            return;
        }
        self.lag.set(EventLag::since(clock::exact().mono_us));
        loop {
            timers.clone().sleep(SAMPLE_MS).await;
            let before_us = clock::exact().mono_us;
            // The yielded task runs after all ready tasks and after the next poll of the reactor.
            tokio::task::yield_now().await;
            let now_us = clock::exact().mono_us;
            let mut lag = self.lag.get();
            lag.note(now_us, now_us.saturating_sub(before_us), self.settings.lag_ms * 1000);
            self.lag.set(lag);
        }
    }

    /// Returns the share of shed requests, from 0 to 1.
    pub(crate) fn shed_share(&self) -> f64 {
        f64::from(self.lag.get().shed) / 1024.0
    }
}

/// The recent event delay, and the resulting share of shed requests in 1024ths.
#[derive(Debug, Clone, Copy, Default)]
struct EventLag {
    /// The shortest delay since the last step, including the last measurement before it.
    shortest_us: u64,
    /// Time up to which steps were applied.
    measured_us: u64,
    /// Number of consecutive steps with almost no delay.
    calm_steps: u32,
    shed: u32,
}

impl EventLag {
    fn since(now_us: u64) -> EventLag {
        EventLag { measured_us: now_us, ..EventLag::default() }
    }

    /// Records one delay. The shortest of at least two counts: a standing queue is an overload, a burst is
    /// not. Steps follow the elapsed time, since an overloaded worker measures less often.
    fn note(&mut self, now_us: u64, waited_us: u64, target_us: u64) {
        self.shortest_us = self.shortest_us.min(waited_us);
        let steps = now_us.saturating_sub(self.measured_us) / STEP_US;
        if steps == 0 {
            return;
        }
        for _ in 0..steps.min(STEPS_MAX) {
            self.step(target_us);
        }
        self.measured_us += steps * STEP_US;
        self.shortest_us = waited_us;
    }

    fn step(&mut self, target_us: u64) {
        if self.shortest_us > target_us {
            // A tenth of the requests still served, so that the share converges to the required one.
            self.shed = (self.shed + (1024 - self.shed) / 10 + 1).min(SHED_MAX);
            self.calm_steps = 0;
        } else if self.shortest_us > target_us / 4 {
            self.shed -= self.shed.div_ceil(8);
            self.calm_steps = 0;
        } else {
            // The delay is low, perhaps only because of shedding. The longer that lasts, the faster the share
            // decreases.
            self.calm_steps = (self.calm_steps + 1).min(CALM_STEPS_MAX);
            self.shed -= (self.shed * self.calm_steps).div_ceil(2 * CALM_STEPS_MAX);
        }
    }

    fn sheds(self, lot: u64) -> bool {
        self.shed != 0 && ((lot >> 32) % 1024) < u64::from(self.shed)
    }
}

#[cfg(test)]
mod tests;
