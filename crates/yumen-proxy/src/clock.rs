//! The worker's time: read once per batch of events, then free.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};
use yumen_base::Now;

thread_local! {
    static CACHED: Cell<Now> = const { Cell::new(Now { mono_us: 0, unix_ms: 0 }) };
    static SINCE_READ: Cell<u32> = const { Cell::new(0) };
    /// What to add to monotonic milliseconds to get Unix time.
    static UNIX_BASE_MS: Cell<u64> = const { Cell::new(0) };
    /// Until when that holds.
    static BASE_UNTIL_US: Cell<u64> = const { Cell::new(0) };
}

/// A busy worker reads the clock again after so many questions without an event wait.
const QUESTIONS_MAX: u32 = 16;

/// Reads the clock; run whenever the worker wakes from waiting for events.
pub(crate) fn refresh() {
    let mono_us = mono_us();
    // The offset follows the wall clock about once a second.
    if mono_us >= BASE_UNTIL_US.get() {
        UNIX_BASE_MS.set(unix_ms().saturating_sub(mono_us / 1000));
        BASE_UNTIL_US.set(mono_us + 1_000_000);
    }
    CACHED.set(Now { mono_us, unix_ms: UNIX_BASE_MS.get() + mono_us / 1000 });
    SINCE_READ.set(0);
}

/// The time of this batch of events.
pub(crate) fn now() -> Now {
    let asked = SINCE_READ.get();
    if asked >= QUESTIONS_MAX {
        refresh();
    } else {
        SINCE_READ.set(asked + 1);
    }
    CACHED.get()
}

/// Microseconds on the system's monotonic clock.
fn mono_us() -> u64 {
    #[cfg(test)]
    if let Some(mono_us) = SIMULATED_US.get() {
        return mono_us;
    }
    // One second ahead, so that zero never means now.
    crate::sys::monotonic_us() + 1_000_000
}

/// Nanoseconds on the monotonic clock, read now: only for exchanges that are measured.
pub(crate) fn nanos() -> u64 {
    #[cfg(test)]
    if let Some(mono_us) = SIMULATED_US.get() {
        return mono_us * 1000;
    }
    crate::sys::monotonic_ns()
}

/// The exact time, for whoever is not on a worker or measures.
pub fn exact() -> Now {
    Now { mono_us: mono_us(), unix_ms: unix_ms() }
}

fn unix_ms() -> u64 {
    #[cfg(test)]
    if let Some(mono_us) = SIMULATED_US.get() {
        return 1_700_000_000_000 + mono_us / 1000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
thread_local! {
    static SIMULATED_US: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lets time pass that this thread has not looked at yet.
#[cfg(test)]
pub(crate) fn simulate_unseen(mono_us: u64) {
    SIMULATED_US.set(Some(mono_us));
}

/// Makes this thread's time that of a simulation.
#[cfg(test)]
pub(crate) fn simulate(mono_us: u64) {
    SIMULATED_US.set(Some(mono_us));
    refresh();
}
