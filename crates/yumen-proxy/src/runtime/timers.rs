//! Timers of a worker. Moving a deadline costs one store.
//!
//! Each request of a connection moves its deadline several times, so nearly every deadline moves before it
//! passes. A move writes only the slot; the queue compares when the old deadline comes. A free slot is reused
//! with its queue position.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::sync::Notify;

use crate::runtime::clock;

/// Timers fire at most 2^`GRAIN_BITS` milliseconds late.
const GRAIN_BITS: u32 = 4;
const NEVER: u64 = u64::MAX;

struct TimerSlot {
    deadline_ms: Cell<u64>,
    /// The tick at which the queue examines the slot; `NEVER` if it is not queued.
    queued_ms: Cell<u64>,
    /// Start of the idle time of the task; `NEVER` while it is not idle.
    idle_since_ms: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

/// The timers of a worker.
pub(crate) struct Timers {
    grain_bits: u32,
    queue: RefCell<BTreeMap<u64, Vec<Rc<TimerSlot>>>>,
    free: RefCell<Vec<Rc<TimerSlot>>>,
    /// The tick at which the driver wakes next.
    wakes_ms: Cell<u64>,
    earlier: Notify,
}

/// One timer, used by one task at a time.
pub(crate) struct Timer {
    slot: Rc<TimerSlot>,
    /// The latest deadline that may be set.
    cap_ms: Cell<u64>,
    timers: Rc<Timers>,
}

impl Default for Timers {
    fn default() -> Self {
        Timers::with_grain(GRAIN_BITS)
    }
}

impl Timers {
    fn with_grain(grain_bits: u32) -> Timers {
        Timers {
            grain_bits,
            queue: RefCell::default(),
            free: RefCell::default(),
            wakes_ms: Cell::default(),
            earlier: Notify::new(),
        }
    }

    /// Timers that fire to the millisecond.
    pub(crate) fn millisecond_precise() -> Timers {
        Timers::with_grain(0)
    }

    /// Creates a timer without a deadline.
    pub(crate) fn timer(self: &Rc<Self>) -> Timer {
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            Rc::new(TimerSlot {
                deadline_ms: Cell::new(NEVER),
                queued_ms: Cell::new(NEVER),
                idle_since_ms: Cell::new(NEVER),
                waker: RefCell::new(None),
            })
        });
        Timer { slot, cap_ms: Cell::new(NEVER), timers: self.clone() }
    }

    /// Wakes tasks whose deadlines pass; runs for the life of the worker.
    ///
    /// One timer descriptor serves all deadlines, so the tokio runtime needs no clock of its own. That saves
    /// some 1 100 instructions per wait for events.
    pub(crate) async fn drive(self: Rc<Self>) -> io::Result<()> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let alarm = crate::sys::watch(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        loop {
            let next = self.queue.borrow().keys().next().copied();
            self.wakes_ms.set(next.unwrap_or(NEVER));
            let wait_ms =
                // 0 would disarm the descriptor.
                next.map(|at| (at << self.grain_bits).saturating_sub(clock::exact().mono_ms()).max(1));
            set_alarm(alarm.get_ref(), wait_ms.unwrap_or(0))?;
            tokio::select! {
                ready = alarm.readable() => {
                    // Reading resets the descriptor; the number of expirations does not matter.
                    let _ = rustix::io::read(alarm.get_ref(), &mut [0u8; 8]);
                    ready?.clear_ready();
                }
                () = self.earlier.notified() => {}
            }
            // Woken tasks read the cached clock. If it lagged behind, they would see their deadlines as not
            // yet passed, and nothing would wake them again.
            clock::refresh();
            self.fire(clock::now().mono_ms());
        }
    }

    /// Sleeps for `delay_ms` milliseconds, at least 1.
    pub(crate) async fn sleep(self: Rc<Self>, delay_ms: u64) {
        let timer = self.timer();
        timer.set(delay_ms.max(1));
        poll_fn(|cx| if timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    pub(crate) fn fire(&self, now_ms: u64) {
        loop {
            // The borrow ends before slots are queued again.
            let due = {
                let mut queue = self.queue.borrow_mut();
                match queue.first_key_value() {
                    Some((at, _)) if at << self.grain_bits <= now_ms => queue.pop_first(),
                    _ => None,
                }
            };
            let Some((at, slots)) = due else { return };
            for slot in slots {
                // A slot that was queued again for an earlier tick is examined only there.
                if slot.queued_ms.get() != at {
                    continue;
                }
                slot.queued_ms.set(NEVER);
                let deadline = slot.deadline_ms.get();
                if deadline <= now_ms {
                    if let Some(waker) = slot.waker.borrow().as_ref() {
                        waker.wake_by_ref();
                    }
                } else if deadline != NEVER {
                    self.enqueue(&slot, deadline);
                }
            }
        }
    }

    /// The time at which `fire` next has work, for a simulation that drives the timers.
    #[cfg(test)]
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().keys().next().map(|at| at << self.grain_bits)
    }

    fn enqueue(&self, slot: &Rc<TimerSlot>, deadline_ms: u64) {
        // Rounded up, so that no timer fires before its deadline.
        let at = (deadline_ms >> self.grain_bits) + 1;
        slot.queued_ms.set(at);
        self.queue.borrow_mut().entry(at).or_default().push(slot.clone());
        if at < self.wakes_ms.get() {
            self.wakes_ms.set(at);
            self.earlier.notify_one();
        }
    }

    /// Wakes the `count` tasks with the longest idle time.
    pub(crate) fn wake_idle(&self, count: usize) {
        let queue = self.queue.borrow();
        let slots = queue.iter().flat_map(|(at, slots)| slots.iter().map(move |slot| (at, slot)));
        let is_idle =
            |at: u64, slot: &TimerSlot| slot.idle_since_ms.get() != NEVER && slot.queued_ms.get() == at;
        let idle = slots.filter(|(at, slot)| is_idle(**at, slot));
        let mut idle: Vec<_> = idle.map(|(_, slot)| (slot.idle_since_ms.get(), slot)).collect();
        if idle.len() > count {
            // Only membership matters, not the order, so a partial sort suffices.
            idle.select_nth_unstable_by_key(count, |(since_ms, _)| *since_ms);
            idle.truncate(count);
        }
        for (_, slot) in idle {
            if let Some(waker) = slot.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    /// Wakes all waiting tasks, so that they notice a drain.
    pub(crate) fn wake_all(&self) {
        let queue = self.queue.borrow();
        for slot in queue.values().flatten() {
            if let Some(waker) = slot.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }
}

/// Sets the descriptor to expire once after `wait_ms` milliseconds; 0 disarms it.
fn set_alarm(alarm: &OwnedFd, wait_ms: u64) -> io::Result<()> {
    let nanos = (wait_ms % 1000) * 1_000_000;
    let value = Timespec { tv_sec: (wait_ms / 1000) as i64, tv_nsec: nanos as _ };
    let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = Itimerspec { it_interval: never_again, it_value: value };
    rustix::time::timerfd_settime(alarm, TimerfdTimerFlags::empty(), &setting)?;
    Ok(())
}

impl Timer {
    /// Sets the deadline to `timeout_ms` milliseconds from now, at most the cap; 0 removes it.
    pub(crate) fn set(&self, timeout_ms: u64) {
        let requested = if timeout_ms == 0 { NEVER } else { clock::now().mono_ms() + timeout_ms };
        let deadline = requested.min(self.cap_ms.get());
        self.slot.deadline_ms.set(deadline);
        if deadline == NEVER {
            return;
        }
        let queued = self.slot.queued_ms.get();
        // An earlier queue entry stays: `fire` queues the slot again when that tick comes.
        if queued == NEVER || (queued - 1) << self.timers.grain_bits > deadline {
            self.timers.enqueue(&self.slot, deadline);
        }
    }

    /// The time until the deadline, in milliseconds; `None` without a deadline.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        let deadline = Some(self.slot.deadline_ms.get()).filter(|deadline| *deadline != NEVER)?;
        Some(deadline.saturating_sub(clock::now().mono_ms()))
    }

    /// Limits all further deadlines to this time of the monotonic clock.
    pub(crate) fn cap(&self, at_ms: u64) {
        self.cap_ms.set(at_ms);
    }

    /// Removes the cap.
    pub(crate) fn uncap(&self) {
        self.cap_ms.set(NEVER);
    }

    /// The cap, if one is set.
    pub(crate) fn cap_ms(&self) -> Option<u64> {
        Some(self.cap_ms.get()).filter(|cap_ms| *cap_ms != NEVER)
    }

    /// Marks the task as idle or busy. Idle tasks are the first to end when the worker nears its connection
    /// limit.
    #[inline]
    pub(crate) fn set_idle(&self, is_idle: bool) {
        let since_ms = self.slot.idle_since_ms.get();
        self.slot.idle_since_ms.set(match is_idle {
            true if since_ms == NEVER => clock::now().mono_ms(),
            true => since_ms,
            false => NEVER,
        });
    }

    /// Whether the deadline has passed; otherwise registers the task to be woken then.
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        let deadline = self.slot.deadline_ms.get();
        if deadline != NEVER && clock::now().mono_ms() >= deadline {
            return true;
        }
        let mut waker = self.slot.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        false
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.slot.deadline_ms.set(NEVER);
        self.slot.idle_since_ms.set(NEVER);
        self.slot.waker.borrow_mut().take();
        // The queue entry stays and serves the next owner of the slot.
        let mut free = self.timers.free.borrow_mut();
        // Bounds the memory that a burst of connections leaves behind.
        if free.len() < 65_536 {
            free.push(self.slot.clone());
        }
    }
}

/// The output of `future`, or `None` once the deadline has passed.
pub(crate) async fn until<F: Future>(timer: &Timer, mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    // The output counts even if the deadline has passed meanwhile.
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if timer.is_over(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests;
