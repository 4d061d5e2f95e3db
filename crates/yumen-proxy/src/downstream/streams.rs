//! The open streams of a multiplexed downstream connection, and its drain: no stream that the client opened
//! in time is refused.
//!
//! Must not depend on HTTP versions or exchanges.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use super::DRAIN_GRACE_MS;
use crate::exchange::disposition::After;
use crate::runtime::clock;
use crate::runtime::timers::Timer;
use crate::worker::Worker;

/// Longest time between the first GOAWAY and the last, in milliseconds, for a client that keeps opening
/// streams.
const LEAVE_MS_MAX: u64 = 5000;

/// Stage of the drain of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStage {
    Serving,
    /// The first GOAWAY was sent at `goaway_ms`. Streams that the client opened before it arrived are served.
    GoawaySent {
        goaway_ms: u64,
    },
    /// The GOAWAY with the last stream was sent. Later streams are rejected.
    Ending,
}

/// The open streams of a connection, and the time since it has none.
pub(super) struct StreamSet {
    worker: Rc<Worker>,
    /// The timer of the connection.
    pub(super) timer: Timer,
    open: Cell<usize>,
    /// Open streams whose response was sent and that only wait for acknowledgement.
    fully_sent: Cell<usize>,
    /// Whether the connection counts as idle without open streams: false during drain and while the client
    /// does not read.
    may_idle: Cell<bool>,
    last_end_ms: Cell<u64>,
    /// Whether a response asked for the end of the connection.
    is_closing: Cell<bool>,
    /// Waker of the task that drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl StreamSet {
    pub(super) fn new(worker: &Rc<Worker>, timer: Timer) -> Rc<StreamSet> {
        let last_end_ms = Cell::new(clock::now().mono_ms());
        Rc::new(StreamSet {
            worker: worker.clone(),
            timer,
            open: Cell::new(0),
            fully_sent: Cell::new(0),
            may_idle: Cell::new(false),
            last_end_ms,
            is_closing: Cell::new(false),
            driver: RefCell::default(),
        })
    }

    pub(super) fn enter(self: &Rc<Self>) -> StreamGuard {
        self.open.set(self.open.get() + 1);
        self.timer.set_idle(false);
        StreamGuard { streams: self.clone(), is_sent: Cell::new(false) }
    }

    /// Records how the connection continues after an exchange.
    pub(super) fn note(&self, after: After) {
        if after == After::Leave {
            self.is_closing.set(true);
            self.driver.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a GOAWAY is due: the worker drains, or a response asked for the end of the connection.
    pub(super) fn is_to_leave(&self) -> bool {
        self.is_closing.get() || self.worker.admission.is_draining()
    }

    /// As `is_to_leave`, and registers the task of the driver.
    pub(super) fn should_leave(&self, cx: &Context<'_>) -> bool {
        match &mut *self.driver.borrow_mut() {
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.is_to_leave()
    }

    /// Whether the connection is to end because it is idle and the worker needs capacity. The driver checks
    /// after each wake.
    pub(super) fn should_free_capacity(&self, stage: DrainStage, now_ms: u64) -> bool {
        self.may_idle.set(stage == DrainStage::Serving);
        self.mark_idle() && self.worker.is_ending_idle() && self.worker.takes_room(self.idle_ms(now_ms))
    }

    /// Marks the connection as not idle while its client does not read.
    pub(super) fn hold(&self) {
        self.may_idle.set(false);
        self.mark_idle();
    }

    /// Updates the idle mark of the timer, and returns it.
    fn mark_idle(&self) -> bool {
        let is_idle = self.may_idle.get() && self.is_idle();
        self.timer.set_idle(is_idle);
        is_idle
    }

    /// Whether every open stream only waits for acknowledgement; false without streams.
    pub(super) fn are_all_sent(&self) -> bool {
        !self.is_idle() && self.fully_sent.get() == self.open.get()
    }

    /// Restarts the idle time of the connection.
    pub(super) fn wait_anew(&self, now_ms: u64) {
        self.last_end_ms.set(now_ms);
    }

    /// Whether no stream is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// Time since the last stream ended, in milliseconds; 0 while a stream is open.
    pub(super) fn idle_ms(&self, now_ms: u64) -> u64 {
        if !self.is_idle() { 0 } else { now_ms.saturating_sub(self.last_end_ms.get()) }
    }

    /// Time that a client is still served after the first GOAWAY, in milliseconds. It ends after a quiet
    /// period, because requests that it sent before the GOAWAY arrived may be in flight (RFC 9113 §6.8,
    /// RFC 9114 §5.2).
    pub(super) fn leave_ms(&self, goaway_ms: u64, round_trip_ms: u64, now_ms: u64) -> u64 {
        let since_goaway_ms = now_ms.saturating_sub(goaway_ms);
        let quiet_ms = self.idle_ms(now_ms).min(since_goaway_ms);
        let grace_ms = DRAIN_GRACE_MS + round_trip_ms;
        grace_ms.saturating_sub(quiet_ms).min(LEAVE_MS_MAX.saturating_sub(since_goaway_ms))
    }
}

/// Counts one open stream until it is dropped.
pub(super) struct StreamGuard {
    streams: Rc<StreamSet>,
    is_sent: Cell<bool>,
}

impl StreamGuard {
    /// Records how the connection continues after the stream.
    pub(super) fn note(&self, after: After) {
        self.streams.note(after);
    }

    /// Records that the whole response was sent, and only its acknowledgement is missing.
    pub(super) fn mark_sent(&self) {
        if !self.is_sent.replace(true) {
            self.streams.fully_sent.set(self.streams.fully_sent.get() + 1);
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        streams.fully_sent.set(streams.fully_sent.get() - usize::from(self.is_sent.get()));
        streams.last_end_ms.set(clock::now().mono_ms());
        // The driver may sleep until the next stream, so the idle mark is set here.
        streams.mark_idle();
        streams.worker.counters.note_panic();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use yumen_snapshot::Publisher;

    use super::*;
    use crate::worker::tests::worker;

    #[test]
    fn client_is_served_after_goaway_for_a_bounded_time() {
        let worker = worker(Arc::new(Publisher::default()));
        let streams = StreamSet::new(&worker, worker.timers.timer());
        let goaway_ms = clock::now().mono_ms();
        let left_ms =
            |round_trip_ms, later_ms| streams.leave_ms(goaway_ms, round_trip_ms, goaway_ms + later_ms);
        assert_eq!((left_ms(0, 0), left_ms(80, 0)), (DRAIN_GRACE_MS, DRAIN_GRACE_MS + 80));
        assert_eq!((left_ms(0, DRAIN_GRACE_MS), left_ms(80, DRAIN_GRACE_MS)), (0, 80));
        let entered = streams.enter();
        assert_eq!(left_ms(0, 1000), DRAIN_GRACE_MS, "what is open may be followed by more");
        assert_eq!(left_ms(0, LEAVE_MS_MAX - 100), 100);
        assert_eq!(left_ms(0, LEAVE_MS_MAX + 100), 0);
        drop(entered);
        assert_eq!(streams.idle_ms(goaway_ms), 0);
    }
}
