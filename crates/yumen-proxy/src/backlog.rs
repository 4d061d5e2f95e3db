//! Bytes of bodies that a worker holds for peers that do not take them, bounded together.
//!
//! Exchanges and tunnels report the buffers that wait for a peer; connections of HTTP/2 and HTTP/3 add the bytes in
//! their send queues. Above half the bound, exchanges read ahead less. Above the bound, those that have waited longest
//! end. Knows neither protocols nor sockets.

mod queue;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};

pub(crate) use queue::{SendQueue, StreamQueue};

use queue::QueueRegister;

/// The most that is read ahead for a sink while the worker holds too much: as much as fits a small buffer.
pub(crate) const READ_AHEAD_BYTES: usize = 2 * 1024;

/// A peer that has not taken within this time the bytes that waited for it, in milliseconds, counts as stalled.
const STALLED_MS: u64 = 5000;
/// The same where the backlog is half as much again as its bound: windows that were open before may fill it at once.
const STALLED_FAR_ABOVE_MS: u64 = 500;

/// A peer that has taken so many bytes of a body gets a full buffer of it read ahead at any time.
const TRUSTED_BYTES: u64 = 256 * 1024;

/// The backlog asks for freed memory to be returned to the system after it held so many bytes or more, and holds a
/// quarter of its peak or less.
const RELEASED_BYTES_MIN: usize = 4 * 1024 * 1024;

/// The backlog of one worker.
pub(crate) struct BodyBacklog {
    bytes_max: usize,
    /// Bytes in the send queues of connections.
    queued_bytes: Arc<AtomicUsize>,
    /// Bytes in the buffers of exchanges that wait.
    waiting_bytes: Cell<usize>,
    waiting: RefCell<WaitingExchanges>,
    queues: QueueRegister,
    peak_bytes: Cell<usize>,
}

/// Exchanges that wait for a peer, in slots that are used again.
#[derive(Default)]
struct WaitingExchanges {
    slots: Vec<Option<WaitingExchange>>,
    free: Vec<usize>,
}

struct WaitingExchange {
    /// When the bytes that wait began to wait.
    since_ms: u64,
    bytes: usize,
    waker: Waker,
    is_over: bool,
}

/// An exchange in the backlog; leaves it when dropped.
pub(crate) struct BacklogEntry {
    backlog: Rc<BodyBacklog>,
    slot: usize,
    /// Once the peer has taken so many bytes of the body, the bytes that waited at `since_ms` are gone.
    taken_target: u64,
}

impl Default for BodyBacklog {
    /// A backlog without a bound.
    fn default() -> BodyBacklog {
        BodyBacklog::new(0)
    }
}

impl BodyBacklog {
    /// A backlog of at most so many bytes; 0 is no bound.
    pub(crate) fn new(bytes_max: usize) -> BodyBacklog {
        BodyBacklog {
            bytes_max: if bytes_max == 0 { usize::MAX } else { bytes_max },
            queued_bytes: Arc::default(),
            waiting_bytes: Cell::new(0),
            waiting: RefCell::default(),
            queues: QueueRegister::default(),
            peak_bytes: Cell::new(0),
        }
    }

    /// Bytes held now.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.waiting_bytes.get() + self.queued_bytes.load(Relaxed)
    }

    /// Whether more than half of the bound is used.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.bytes() > self.bytes_max / 2
    }

    /// How many bytes of a body may be read at once, of which the sink has taken so many.
    #[inline]
    pub(crate) fn read_ahead(&self, taken_bytes: u64) -> usize {
        if self.is_pressed() && taken_bytes < TRUSTED_BYTES { READ_AHEAD_BYTES } else { usize::MAX }
    }

    /// A send queue for a connection of a client's, which is told when it is to end.
    pub(crate) fn client_queue(&self) -> SendQueue {
        let queue = self.queue();
        self.queues.add(&queue);
        queue
    }

    /// A send queue for a connection to an endpoint. It never is to end: the exchanges it carries are.
    pub(crate) fn queue(&self) -> SendQueue {
        SendQueue::new(self.queued_bytes.clone(), self.bytes_max / 2)
    }

    /// Adds an exchange that waits with so many bytes for a peer that has taken so many of the body.
    #[cold]
    fn enter(self: &Rc<Self>, cx: &Context<'_>, bytes: usize, taken_bytes: u64, now_ms: u64) -> BacklogEntry {
        let exchange = WaitingExchange { since_ms: now_ms, bytes, waker: cx.waker().clone(), is_over: false };
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes);
        let slot = self.waiting.borrow_mut().add(exchange);
        BacklogEntry { backlog: self.clone(), slot, taken_target: taken_bytes + bytes as u64 }
    }

    /// Notes that an exchange waits with so many bytes for a peer that has taken so many of the body; 0 is that it does
    /// not wait. True where it is to end.
    #[inline]
    pub(crate) fn note(
        self: &Rc<Self>,
        entry: &mut Option<BacklogEntry>,
        cx: &Context<'_>,
        (bytes, taken_bytes): (usize, u64),
        now_ms: u64,
    ) -> bool {
        match entry {
            None if bytes == 0 => false,
            None => {
                *entry = Some(self.enter(cx, bytes, taken_bytes, now_ms));
                false
            }
            Some(_) if bytes == 0 => {
                *entry = None;
                false
            }
            Some(entry) => entry.update(cx, bytes, taken_bytes, now_ms),
        }
    }

    /// Ends the exchanges, then the connections, that have stalled longest, until the backlog is within its bound; how
    /// many.
    pub(crate) fn enforce(&self, now_ms: u64) -> usize {
        if !self.is_pressed() {
            return 0;
        }
        let stalled = self.queues.stalled(now_ms);
        let mut excess_bytes = self.bytes().saturating_sub(self.bytes_max);
        if excess_bytes == 0 {
            return 0;
        }
        let is_far_above = excess_bytes > self.bytes_max / 2;
        let stalled_ms = if is_far_above { STALLED_FAR_ABOVE_MS } else { STALLED_MS };
        let before_ms = now_ms.saturating_sub(stalled_ms);
        let mut ended = self.waiting.borrow_mut().end_stalled(before_ms, &mut excess_bytes);
        for queue in stalled {
            if excess_bytes == 0 {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(queue.end());
            ended += 1;
        }
        ended
    }

    /// Whether the backlog was large since this last was true, and is not any more.
    pub(crate) fn has_shrunk(&self) -> bool {
        let (bytes, peak_bytes) = (self.bytes(), self.peak_bytes.get());
        let has_shrunk = peak_bytes >= RELEASED_BYTES_MIN && bytes <= peak_bytes / 4;
        self.peak_bytes.set(if has_shrunk { bytes } else { peak_bytes.max(bytes) });
        has_shrunk
    }
}

impl WaitingExchanges {
    fn add(&mut self, exchange: WaitingExchange) -> usize {
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(exchange);
            return slot;
        }
        self.slots.push(Some(exchange));
        self.slots.len() - 1
    }

    /// Ends those that wait since then or longer.
    fn end_stalled(&mut self, before_ms: u64, excess_bytes: &mut usize) -> usize {
        // Those that were told to end before and have not yet.
        let ending_bytes: usize =
            self.slots.iter().flatten().filter(|one| one.is_over).map(|one| one.bytes).sum();
        *excess_bytes = excess_bytes.saturating_sub(ending_bytes);
        let is_stalled = |one: &&mut WaitingExchange| !one.is_over && one.since_ms <= before_ms;
        let mut stalled: Vec<_> = self.slots.iter_mut().flatten().filter(is_stalled).collect();
        stalled.sort_unstable_by_key(|one| one.since_ms);
        let mut ended = 0;
        for one in stalled {
            if *excess_bytes == 0 {
                break;
            }
            *excess_bytes = excess_bytes.saturating_sub(one.bytes);
            one.is_over = true;
            one.waker.wake_by_ref();
            ended += 1;
        }
        ended
    }
}

impl BacklogEntry {
    fn update(&mut self, cx: &Context<'_>, bytes: usize, taken_bytes: u64, now_ms: u64) -> bool {
        let backlog = &self.backlog;
        let mut waiting = backlog.waiting.borrow_mut();
        let Some(Some(one)) = waiting.slots.get_mut(self.slot) else { return false };
        backlog.waiting_bytes.set(backlog.waiting_bytes.get() - one.bytes + bytes);
        one.bytes = bytes;
        // A peer that takes a byte now and then does not begin to wait anew.
        if taken_bytes >= self.taken_target {
            self.taken_target = taken_bytes + bytes as u64;
            one.since_ms = now_ms;
        }
        if !one.waker.will_wake(cx.waker()) {
            one.waker.clone_from(cx.waker());
        }
        one.is_over
    }
}

impl Drop for BacklogEntry {
    fn drop(&mut self) {
        let mut waiting = self.backlog.waiting.borrow_mut();
        if let Some(one) = waiting.slots.get_mut(self.slot).and_then(Option::take) {
            self.backlog.waiting_bytes.set(self.backlog.waiting_bytes.get() - one.bytes);
            waiting.free.push(self.slot);
        }
    }
}

#[cfg(test)]
mod tests;
