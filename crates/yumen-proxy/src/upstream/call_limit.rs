//! Bounds of plugin calls to a service, per worker: the number in flight, and a pause after time-outs.
//!
//! A service that accepts connections and never responds would otherwise hold every request that asks it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Calls that time out in a row before calls pause.
const TIMEOUTS_MAX: u32 = 5;
/// Length of the pause, after which one call probes the service, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// The calls of a worker, by upstream slot.
#[derive(Debug, Default)]
pub(crate) struct CallLimiter {
    /// Slots with calls in flight or with time-outs; others have no entry.
    targets: RefCell<HashMap<u32, TargetCalls, foldhash::fast::RandomState>>,
}

/// The calls to one upstream.
#[derive(Debug, Default)]
struct TargetCalls {
    in_flight: u32,
    /// Time-outs since the last response.
    timeouts: u32,
    /// Monotonic end of the pause in milliseconds.
    paused_until_ms: u64,
    is_probing: bool,
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// A response head arrived.
    Answered,
    /// The connection failed.
    Failed,
    /// The time limit passed before a response head.
    TimedOut,
}

/// The right to one call; released on drop.
#[derive(Debug)]
pub(crate) struct CallPermit {
    limiter: Rc<CallLimiter>,
    slot: u32,
    is_probe: bool,
}

impl CallLimiter {
    /// A permit for a call to the upstream in `slot`; `None` if `in_flight_max` calls are in flight, or if the last calls
    /// timed out.
    pub(crate) fn begin(self: &Rc<Self>, slot: u32, in_flight_max: u32, now_ms: u64) -> Option<CallPermit> {
        let mut targets = self.targets.borrow_mut();
        let target = targets.entry(slot).or_default();
        let is_probe = target.timeouts >= TIMEOUTS_MAX;
        let is_paused = is_probe && (target.is_probing || now_ms < target.paused_until_ms);
        if is_paused || target.in_flight >= in_flight_max {
            return None;
        }
        target.in_flight += 1;
        target.is_probing |= is_probe;
        Some(CallPermit { limiter: self.clone(), slot, is_probe })
    }
}

impl CallPermit {
    /// Records the end of the call. A permit that is dropped without it, such as by a client that left, changes no pause.
    pub(crate) fn finish(self, end: CallEnd, now_ms: u64) {
        let mut targets = self.limiter.targets.borrow_mut();
        let Some(target) = targets.get_mut(&self.slot) else { return };
        match end {
            CallEnd::Answered => target.timeouts = 0,
            CallEnd::TimedOut => {
                target.timeouts = target.timeouts.saturating_add(1);
                target.paused_until_ms = now_ms + PAUSE_MS;
            }
            // A probe that failed proves no recovery.
            CallEnd::Failed if self.is_probe => target.paused_until_ms = now_ms + PAUSE_MS,
            CallEnd::Failed => {}
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut targets = self.limiter.targets.borrow_mut();
        let Some(target) = targets.get_mut(&self.slot) else { return };
        target.in_flight -= 1;
        if self.is_probe {
            target.is_probing = false;
        }
        // Slots are used again, and a table of all past ones would grow.
        if target.in_flight == 0 && target.timeouts == 0 {
            targets.remove(&self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Rc<CallLimiter> {
        Rc::default()
    }

    fn time_out(limiter: &Rc<CallLimiter>, count: u32, now_ms: u64) {
        for _ in 0..count {
            limiter.begin(1, 10, now_ms).expect("calls are admitted").finish(CallEnd::TimedOut, now_ms);
        }
    }

    #[test]
    fn calls_beyond_the_bound_are_refused_at_once() {
        let limiter = limiter();
        let first = limiter.begin(1, 2, 0);
        let second = limiter.begin(1, 2, 0);
        assert!(first.is_some() && second.is_some() && limiter.begin(1, 2, 0).is_none());
        // Another upstream has its own bound.
        assert!(limiter.begin(2, 2, 0).is_some());
        drop(second);
        assert!(limiter.begin(1, 2, 0).is_some());
        drop(first);
        assert!(limiter.targets.borrow().is_empty());
    }

    #[test]
    fn five_time_outs_in_a_row_pause_calls_for_a_second() {
        let limiter = limiter();
        time_out(&limiter, 4, 0);
        limiter.begin(1, 10, 0).unwrap().finish(CallEnd::Answered, 0);
        time_out(&limiter, 5, 100);
        assert!(limiter.begin(1, 10, 1099).is_none());
        assert!(limiter.begin(2, 10, 1099).is_some());
        // One call probes; others wait for its end.
        let probe = limiter.begin(1, 10, 1100).expect("a probe");
        assert!(limiter.begin(1, 10, 1100).is_none());
        probe.finish(CallEnd::TimedOut, 1200);
        assert!(limiter.begin(1, 10, 2199).is_none());
        let probe = limiter.begin(1, 10, 2200).expect("a probe");
        probe.finish(CallEnd::Answered, 2200);
        let calls: Vec<_> = (0..3).map(|_| limiter.begin(1, 10, 2200)).collect();
        assert!(calls.iter().all(Option::is_some));
        drop(calls);
        assert!(limiter.targets.borrow().is_empty());
    }

    #[test]
    fn a_failed_or_abandoned_probe_ends_no_pause() {
        let limiter = limiter();
        time_out(&limiter, 5, 0);
        limiter.begin(1, 10, 1000).expect("a probe").finish(CallEnd::Failed, 1000);
        assert!(limiter.begin(1, 10, 1999).is_none());
        drop(limiter.begin(1, 10, 2000).expect("a probe"));
        // The next call probes at once.
        assert!(limiter.begin(1, 10, 2000).is_some());
    }
}
