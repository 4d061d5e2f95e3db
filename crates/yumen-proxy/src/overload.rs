//! What a worker takes on: how many exchanges at a time, and what part of them when events wait too long
//! to be looked at or memory runs short.
//!
//! Knows no connection: it is asked once per exchange, and only where it is configured.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock;
use crate::fault::Kind;
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
/// So many measurements make a verdict: one slow turn is no overload.
const SAMPLES: u32 = 5;
/// The share shed, in 1024ths: at most so much, so that what is served can tell that it is over.
const SHED_MAX: u32 = 972;

/// The guard of one worker.
#[derive(Debug)]
pub(crate) struct Overload {
    settings: OverloadSettings,
    running: Rc<Cell<u32>>,
    lag: Cell<Lag>,
}

/// One exchange under way.
pub(crate) struct Running(Rc<Cell<u32>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Overload {
    /// The guard, where there is something to guard.
    pub(crate) fn new(settings: &OverloadSettings) -> Option<Overload> {
        let settings = settings.clone();
        settings.is_set().then(|| Overload { settings, running: Rc::default(), lag: Cell::default() })
    }

    /// Counts one exchange in, or says why not. `lot` is a random number.
    pub(crate) fn admit(&self, path: &[u8], lot: u64) -> Result<Running, Kind> {
        let is_memory_full = self.settings.memory_full.as_ref().is_some_and(|full| full.load(Relaxed));
        let is_full = self.settings.exchanges_max != 0 && self.running.get() >= self.settings.exchanges_max;
        let is_too_much = is_full || self.lag.get().sheds(lot);
        if is_memory_full || (is_too_much && !self.is_spared(path)) {
            return Err(Kind::Overloaded);
        }
        self.running.set(self.running.get() + 1);
        Ok(Running(self.running.clone()))
    }

    fn is_spared(&self, path: &[u8]) -> bool {
        self.settings.spared_paths.iter().any(|spared| path.starts_with(spared.as_bytes()))
    }

    /// Measures for as long as the worker runs how long events wait.
    pub(crate) async fn watch(&self, timers: &Rc<Timers>) {
        if self.settings.lag_ms == 0 {
            return;
        }
        loop {
            timers.clone().sleep(SAMPLE_MS).await;
            let before_us = clock::exact().mono_us;
            // Behind all that is ready, and behind what the next look at the sockets makes ready.
            tokio::task::yield_now().await;
            let waited_us = clock::exact().mono_us.saturating_sub(before_us);
            let mut lag = self.lag.get();
            lag.note(waited_us, self.settings.lag_ms * 1000);
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
struct Lag {
    shortest_us: u64,
    samples: u32,
    shed: u32,
}

impl Lag {
    /// Notes one wait. The shortest of several counts: a queue that does not go away is an overload, one
    /// that comes and goes is none.
    fn note(&mut self, waited_us: u64, target_us: u64) {
        self.shortest_us = if self.samples == 0 { waited_us } else { self.shortest_us.min(waited_us) };
        self.samples += 1;
        if self.samples < SAMPLES {
            return;
        }
        self.shed = match self.shortest_us > target_us {
            // A tenth of what is still served, so that it ends where it is enough.
            true => (self.shed + (1024 - self.shed) / 10 + 1).min(SHED_MAX),
            false => self.shed - self.shed.div_ceil(8),
        };
        self.samples = 0;
    }

    fn sheds(self, lot: u64) -> bool {
        self.shed != 0 && ((lot >> 32) % 1024) < u64::from(self.shed)
    }
}

#[cfg(test)]
mod tests;
