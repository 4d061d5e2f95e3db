//! Clock of a worker: read once per batch of events and cached between.
//!
//! Time is monotonic, with Unix time derived from it.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};
use yumen_base::Now;

thread_local! {
    static CACHED: Cell<Now> = const { Cell::new(Now { mono_us: 0, unix_ms: 0 }) };
    static SINCE_READ: Cell<u32> = const { Cell::new(0) };
    /// Offset from monotonic milliseconds to Unix time.
    static UNIX_BASE_MS: Cell<u64> = const { Cell::new(0) };
    /// Monotonic time at which the offset must be read again.
    static BASE_UNTIL_US: Cell<u64> = const { Cell::new(0) };
}

/// Reads of the cached time after which a busy worker reads the clock without an event wait.
const QUESTIONS_MAX: u32 = 16;

/// Reads the clock; called when the worker wakes from waiting for events.
pub(crate) fn refresh() {
    let mono_us = mono_us();
    // The offset follows changes of the wall clock within a second.
    if mono_us >= BASE_UNTIL_US.get() {
        UNIX_BASE_MS.set(unix_ms().saturating_sub(mono_us / 1000));
        BASE_UNTIL_US.set(mono_us + 1_000_000);
    }
    CACHED.set(Now { mono_us, unix_ms: UNIX_BASE_MS.get() + mono_us / 1000 });
    SINCE_READ.set(0);
}

/// Cached time of the current batch of events.
pub(crate) fn now() -> Now {
    let reads = SINCE_READ.get();
    if reads >= QUESTIONS_MAX {
        refresh();
    } else {
        SINCE_READ.set(reads + 1);
    }
    CACHED.get()
}

/// Monotonic time in microseconds.
fn mono_us() -> u64 {
    #[cfg(test)]
    if let Some(mono_us) = SIMULATED_US.get() {
        return mono_us;
    }
    // One second ahead, so that 0 can mean "not set".
    crate::sys::monotonic_us() + 1_000_000
}

/// Monotonic time in nanoseconds, uncached: for measured exchanges only.
pub(crate) fn nanos() -> u64 {
    #[cfg(test)]
    if let Some(mono_us) = SIMULATED_US.get() {
        return mono_us * 1000;
    }
    crate::sys::monotonic_ns()
}

/// Uncached time, for measurements and for threads other than workers.
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

/// Sets the simulated time without a refresh of the cache.
#[cfg(test)]
pub(crate) fn simulate_unseen(mono_us: u64) {
    SIMULATED_US.set(Some(mono_us));
}

/// Sets the simulated time of this thread.
#[cfg(test)]
pub(crate) fn simulate(mono_us: u64) {
    SIMULATED_US.set(Some(mono_us));
    refresh();
}
