//! What a worker takes on: how many exchanges at a time, and what part of them when events wait too long
//! to be looked at or memory runs short.
//!
//! Knows no connection: it is asked once per exchange, and only where it is configured.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock;
use crate::fault::FaultKind;
use crate::timers::Timers;

/// When a node takes no more.
#[derive(Debug, Clone, Default)]
pub struct OverloadSettings {
    /// Exchanges one worker has under way; 0 is no bound.
    pub exchanges_max: u32,
    /// How long events may wait before requests are shed, in milliseconds; 0 does not look.
    pub lag_ms: u64,
    /// Paths that begin so are served all the same, but not while memory is full: then nothing else is served
    /// either, and whoever asks for health shall send clients elsewhere.
    pub spared_paths: Vec<String>,
    /// Set by others while the process holds more memory than it should.
    pub memory_full: Option<Arc<AtomicBool>>,
}

impl OverloadSettings {
    fn is_set(&self) -> bool {
        self.exchanges_max != 0 || self.lag_ms != 0 || self.memory_full.is_some()
    }
}

/// How often the wait of events is measured, in milliseconds.
const SAMPLE_MS: u64 = 20;
/// A step of the share shed is for so long, however seldom an overloaded worker comes to look.
const STEP_US: u64 = 100_000;
/// More steps at once change nothing any more.
const STEPS_MAX: u64 = 100;
/// After so many steps in which nothing waits each gives back half of the share.
const CALM_STEPS_MAX: u32 = 32;
/// The share shed, in 1024ths: at most so much, so that what is served can tell that it is over.
const SHED_MAX: u32 = 972;

/// The guard of one worker.
#[derive(Debug)]
pub(crate) struct OverloadGuard {
    settings: OverloadSettings,
    running: Rc<Cell<u32>>,
    lag: Cell<EventLag>,
}

/// One exchange under way.
pub(crate) struct InFlightExchange(Rc<Cell<u32>>);

impl Drop for InFlightExchange {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl OverloadGuard {
    /// The guard, where there is something to guard.
    pub(crate) fn new(settings: &OverloadSettings) -> Option<OverloadGuard> {
        let settings = settings.clone();
        settings.is_set().then(|| OverloadGuard { settings, running: Rc::default(), lag: Cell::default() })
    }

    /// Counts one exchange in, or says why not. `lot` is a random number.
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

    /// Measures for as long as the worker runs how long events wait.
    pub(crate) async fn watch(&self, timers: &Rc<Timers>) {
        if self.settings.lag_ms == 0 {
            return;
        }
        self.lag.set(EventLag::since(clock::exact().mono_us));
        loop {
            timers.clone().sleep(SAMPLE_MS).await;
            let before_us = clock::exact().mono_us;
            // Behind all that is ready, and behind what the next look at the sockets makes ready.
            tokio::task::yield_now().await;
            let now_us = clock::exact().mono_us;
            let mut lag = self.lag.get();
            lag.note(now_us, now_us.saturating_sub(before_us), self.settings.lag_ms * 1000);
            self.lag.set(lag);
        }
    }

    /// The share of requests that is shed, from 0 to 1.
    pub(crate) fn shed_share(&self) -> f64 {
        f64::from(self.lag.get().shed) / 1024.0
    }
}

/// How long events waited lately, and what share of requests is shed for it, in 1024ths.
#[derive(Debug, Clone, Copy, Default)]
struct EventLag {
    /// The shortest wait since the last verdict, and the one before that.
    shortest_us: u64,
    /// Up to when there were verdicts.
    judged_us: u64,
    /// For how many steps next to nothing has waited.
    calm_steps: u32,
    shed: u32,
}

impl EventLag {
    fn since(now_us: u64) -> EventLag {
        EventLag { judged_us: now_us, ..EventLag::default() }
    }

    /// Notes one wait. The shortest of at least two counts: a queue that does not go away is an overload, one that
    /// comes and goes is none. The time that passed counts, not the looks: the worse the overload, the fewer there are.
    fn note(&mut self, now_us: u64, waited_us: u64, target_us: u64) {
        self.shortest_us = self.shortest_us.min(waited_us);
        let steps = now_us.saturating_sub(self.judged_us) / STEP_US;
        if steps == 0 {
            return;
        }
        for _ in 0..steps.min(STEPS_MAX) {
            self.step(target_us);
        }
        self.judged_us += steps * STEP_US;
        self.shortest_us = waited_us;
    }

    fn step(&mut self, target_us: u64) {
        if self.shortest_us > target_us {
            // A tenth of what is still served, so that it ends where it is enough.
            self.shed = (self.shed + (1024 - self.shed) / 10 + 1).min(SHED_MAX);
            self.calm_steps = 0;
        } else if self.shortest_us > target_us / 4 {
            self.shed -= self.shed.div_ceil(8);
            self.calm_steps = 0;
        } else {
            // Nothing waits, be it because just enough is shed: the longer that lasts, the more is let in again.
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
