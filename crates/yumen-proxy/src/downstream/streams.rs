//! Which streams of a connection are open, and how it ends without refusing any that was asked in time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use super::DRAIN_GRACE_MS;
use crate::clock;
use crate::disposition::After;
use crate::timers::Timer;
use crate::worker::Worker;

/// A client that goes on asking although it was told to go is refused after this long, in milliseconds.
const LEAVE_MS_MAX: u64 = 5000;

/// Whether a connection takes further streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStage {
    Serving,
    /// The client was told then to ask elsewhere; what it asked before it heard is served.
    GoawaySent {
        told_ms: u64,
    },
    /// It was told which stream is the last. Nothing it asks after that is served.
    Ending,
}

/// The open streams of a connection, and since when there are none.
pub(super) struct StreamSet {
    worker: Rc<Worker>,
    /// The connection's.
    pub(super) timer: Timer,
    open: Cell<usize>,
    /// Of these, those on which all was said, which the client has still to acknowledge.
    said: Cell<usize>,
    /// It idles while none is open: neither does it end nor has the client something to take.
    may_idle: Cell<bool>,
    last_end_ms: Cell<u64>,
    /// An answer was the last for which the connection should be used.
    is_closing: Cell<bool>,
    /// Who drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl StreamSet {
    pub(super) fn new(worker: &Rc<Worker>, timer: Timer) -> Rc<StreamSet> {
        let last_end_ms = Cell::new(clock::now().mono_ms());
        Rc::new(StreamSet {
            worker: worker.clone(),
            timer,
            open: Cell::new(0),
            said: Cell::new(0),
            may_idle: Cell::new(false),
            last_end_ms,
            is_closing: Cell::new(false),
            driver: RefCell::default(),
        })
    }

    pub(super) fn enter(self: &Rc<Self>) -> StreamGuard {
        self.open.set(self.open.get() + 1);
        self.timer.set_idle(false);
        StreamGuard { streams: self.clone(), is_said: Cell::new(false) }
    }

    /// Notes how the connection goes on after one of them.
    pub(super) fn note(&self, after: After) {
        if after == After::Leave {
            self.is_closing.set(true);
            self.driver.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the client is to be told to ask elsewhere: the worker drains, or one of them was answered so.
    pub(super) fn is_to_leave(&self) -> bool {
        self.is_closing.get() || self.worker.draining.get()
    }

    /// The same, for whoever drives the connection, and is woken when it comes to that.
    pub(super) fn should_leave(&self, cx: &Context<'_>) -> bool {
        match &mut *self.driver.borrow_mut() {
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.is_to_leave()
    }

    /// Whether the connection, at this stage, is to end because nothing is asked on it and others find no room. Whoever
    /// drives it asks when it is woken.
    pub(super) fn gives_way(&self, stage: DrainStage, now_ms: u64) -> bool {
        self.may_idle.set(stage == DrainStage::Serving);
        self.mark_idle() && self.worker.is_ending_idle() && self.worker.takes_room(self.idle_ms(now_ms))
    }

    /// Says that the connection does not idle: its client does not take what is sent.
    pub(super) fn hold(&self) {
        self.may_idle.set(false);
        self.mark_idle();
    }

    /// Has the timer know whether the connection idles, and says so.
    fn mark_idle(&self) -> bool {
        let is_idle = self.may_idle.get() && self.is_idle();
        self.timer.set_idle(is_idle);
        is_idle
    }

    /// Whether nothing is left of those that are open but that the client acknowledges what was said.
    pub(super) fn are_all_sent(&self) -> bool {
        !self.is_idle() && self.said.get() == self.open.get()
    }

    /// Begins to count anew for how long the connection has been idle.
    pub(super) fn wait_anew(&self, now_ms: u64) {
        self.last_end_ms.set(now_ms);
    }

    /// Whether none is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// For how long none has been open.
    pub(super) fn idle_ms(&self, now_ms: u64) -> u64 {
        if !self.is_idle() { 0 } else { now_ms.saturating_sub(self.last_end_ms.get()) }
    }

    /// How long a client that was told to go is still served, in milliseconds: until it has been quiet for
    /// a while, as what it asked before it heard may be on its way (RFC 9113 §6.8, RFC 9114 §5.2).
    pub(super) fn leave_ms(&self, told_ms: u64, round_trip_ms: u64, now_ms: u64) -> u64 {
        let since_told_ms = now_ms.saturating_sub(told_ms);
        let quiet_ms = self.idle_ms(now_ms).min(since_told_ms);
        let grace_ms = DRAIN_GRACE_MS + round_trip_ms;
        grace_ms.saturating_sub(quiet_ms).min(LEAVE_MS_MAX.saturating_sub(since_told_ms))
    }
}

/// Counts a stream out, however it ends.
pub(super) struct StreamGuard {
    streams: Rc<StreamSet>,
    is_said: Cell<bool>,
}

impl StreamGuard {
    /// Notes how the connection goes on after it.
    pub(super) fn note(&self, after: After) {
        self.streams.note(after);
    }

    /// Notes that all was said on it, and has only to be acknowledged.
    pub(super) fn mark_sent(&self) {
        if !self.is_said.replace(true) {
            self.streams.said.set(self.streams.said.get() + 1);
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        streams.said.set(streams.said.get() - usize::from(self.is_said.get()));
        streams.last_end_ms.set(clock::now().mono_ms());
        // The driver may sleep until somebody asks again.
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
    fn who_was_told_to_go_is_served_until_he_is_quiet_and_not_for_ever() {
        let worker = worker(Arc::new(Publisher::default()));
        let streams = StreamSet::new(&worker, worker.timers.timer());
        let told_ms = clock::now().mono_ms();
        let left_ms = |round_trip_ms, later_ms| streams.leave_ms(told_ms, round_trip_ms, told_ms + later_ms);
        assert_eq!((left_ms(0, 0), left_ms(80, 0)), (DRAIN_GRACE_MS, DRAIN_GRACE_MS + 80));
        assert_eq!((left_ms(0, DRAIN_GRACE_MS), left_ms(80, DRAIN_GRACE_MS)), (0, 80));
        let entered = streams.enter();
        assert_eq!(left_ms(0, 1000), DRAIN_GRACE_MS, "what is open may be followed by more");
        assert_eq!(left_ms(0, LEAVE_MS_MAX - 100), 100);
        assert_eq!(left_ms(0, LEAVE_MS_MAX + 100), 0);
        drop(entered);
        assert_eq!(streams.idle_ms(told_ms), 0);
    }
}
