//! One clock and one timer descriptor for all deadlines and due times of a thread.
//! Independent of the purpose of a timer.
//!
//! The runtime's own timers have millisecond resolution, which hides the latencies of an open loop, and cost
//! more than the rest of a request.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const NEVER: u64 = u64::MAX;

/// Nanoseconds since the start of a run, identical on all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start: Instant,
    /// Start on the kernel's monotonic clock, which the timer descriptor uses.
    start_kernel_ns: u64,
}

impl RunClock {
    pub(crate) fn start() -> Self {
        // In this order the descriptor fires slightly late on this clock. Firing early would cost an extra
        // wakeup.
        let start = Instant::now();
        let kernel = clock_gettime(ClockId::Monotonic);
        let start_kernel_ns = kernel.tv_sec as u64 * 1_000_000_000 + kernel.tv_nsec as u64;
        Self { start, start_kernel_ns }
    }

    pub(crate) fn now_ns(self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

#[derive(Debug)]
struct AlarmSlot {
    due_ns: Cell<u64>,
    /// Time of the queue entry in force; `NEVER` if not queued.
    queued_ns: Cell<u64>,
    rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct AlarmEntry(Reverse<u64>, Rc<AlarmSlot>);

impl PartialEq for AlarmEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for AlarmEntry {}
impl PartialOrd for AlarmEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for AlarmEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// Queue of all timers of a thread. The descriptor fires at the earliest one.
pub(crate) struct AlarmQueue {
    clock: RunClock,
    descriptor: AsyncFd<OwnedFd>,
    queue: RefCell<BinaryHeap<AlarmEntry>>,
    /// Time that the descriptor is set to.
    armed_ns: Cell<u64>,
}

/// A timer for one task at a time.
pub(crate) struct AlarmTimer {
    slot: Rc<AlarmSlot>,
    alarm: Rc<AlarmQueue>,
}

impl AlarmQueue {
    /// Creates the queue; must be called inside the thread's runtime.
    pub(crate) fn new(clock: RunClock) -> io::Result<Rc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[allow(
            deprecated,
            reason = "its owner keeps one descriptor open; what replaces it is not safe to call"
        )]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Rc::new(Self {
            clock,
            descriptor,
            queue: RefCell::new(BinaryHeap::new()),
            armed_ns: Cell::new(NEVER),
        }))
    }

    /// Wakes the tasks of expired timers; runs for the lifetime of the thread.
    pub(crate) async fn drive(self: Rc<Self>) -> io::Result<()> {
        loop {
            // `timerfd_settime` resets the expiration count, so the descriptor needs no read.
            self.descriptor.readable().await?.clear_ready();
            self.ring();
        }
    }

    /// Creates a disarmed timer.
    pub(crate) fn timer(self: &Rc<Self>) -> AlarmTimer {
        let slot = AlarmSlot {
            due_ns: Cell::new(NEVER),
            queued_ns: Cell::new(NEVER),
            rung: Cell::new(false),
            waker: RefCell::new(None),
        };
        AlarmTimer { slot: Rc::new(slot), alarm: self.clone() }
    }

    fn ring(&self) {
        // Read once: a timer that expires during the loop fires by the next arming.
        let now = self.clock.now_ns();
        let mut queue = self.queue.borrow_mut();
        while queue.peek().is_some_and(|entry| entry.0.0 <= now) {
            let Some(AlarmEntry(Reverse(at), slot)) = queue.pop() else { break };
            // The entry is stale: the slot was queued again for an earlier time.
            if slot.queued_ns.get() != at {
                continue;
            }
            let due = slot.due_ns.get();
            slot.queued_ns.set(NEVER);
            if due <= now {
                slot.rung.set(true);
                if let Some(waker) = slot.waker.borrow().as_ref() {
                    waker.wake_by_ref();
                }
            } else if due != NEVER {
                slot.queued_ns.set(due);
                // The timer was set to a later time, for which `set` queued nothing.
                queue.push(AlarmEntry(Reverse(due), slot));
            }
        }
        let next = queue.peek().map_or(NEVER, |entry| entry.0.0);
        drop(queue);
        // The descriptor fires once, so it has to be set again.
        self.armed_ns.set(NEVER);
        self.arm(next);
    }

    fn arm(&self, at_ns: u64) {
        // The descriptor already fires in time.
        if at_ns >= self.armed_ns.get() {
            return;
        }
        self.armed_ns.set(at_ns);
        let at = self.clock.start_kernel_ns + at_ns;
        let value = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &setting)
            .expect("the descriptor is a timer and the moment is a valid time");
    }
}

impl AlarmTimer {
    /// Sets the timer. A later time is only stored; an earlier one costs a system call.
    pub(crate) fn set(&self, at_ns: u64) {
        let slot = &self.slot;
        slot.due_ns.set(at_ns);
        slot.rung.set(false);
        // Most timers are timeouts that are set again before they expire. A later time reuses the queued entry, and `ring`
        // moves it.
        if at_ns < slot.queued_ns.get() {
            slot.queued_ns.set(at_ns);
            self.alarm.queue.borrow_mut().push(AlarmEntry(Reverse(at_ns), slot.clone()));
            self.alarm.arm(at_ns);
        }
    }

    /// Whether the timer has expired. If not, the task is woken on expiry.
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        if self.slot.rung.get() {
            return true;
        }
        let mut waker = self.slot.waker.borrow_mut();
        // Cloning a waker costs more than the comparison.
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        false
    }

    /// Waits until `at_ns`; returns immediately if that time has passed.
    pub(crate) async fn until(&self, at_ns: u64) {
        if at_ns <= self.alarm.clock.now_ns() {
            return;
        }
        self.set(at_ns);
        poll_fn(|cx| if self.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl AlarmTimer {
    /// Returns the future's output, or `None` if `at_ns` comes first.
    pub(crate) async fn within<T>(&self, at_ns: u64, future: impl Future<Output = T>) -> Option<T> {
        self.set(at_ns);
        let mut future = pin!(future);
        // The future first: its result counts even if the timer has expired.
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.is_over(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

impl Drop for AlarmTimer {
    fn drop(&mut self) {
        // The entry in the queue cannot be found cheaply; `ring` discards it when its time comes.
        self.slot.due_ns.set(NEVER);
        self.slot.waker.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests;
