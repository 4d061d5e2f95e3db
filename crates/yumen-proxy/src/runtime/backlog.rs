//! Backlog of a worker: bytes of bodies that wait for slow peers, with a common bound.
//!
//! Exchanges and tunnels report their buffers; HTTP/2 and HTTP/3 connections add their send queues. Above
//! half the bound, exchanges read ahead less. Above the bound, the longest stalled ones end. Must not depend
//! on protocols or sockets.

mod queue;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};

pub(crate) use queue::{SendQueue, StreamQueue};

use queue::QueueRegister;

/// Read-ahead limit under memory pressure, in bytes: the size of a small buffer.
pub(crate) const READ_AHEAD_BYTES: usize = 2 * 1024;

/// Time after which a peer counts as stalled, in milliseconds, if the bytes that wait for it were not
/// accepted.
const STALLED_MS: u64 = 5000;
/// The same while the backlog exceeds 1.5 times its bound: flow control windows that were open before may
/// fill it at once.
const STALLED_FAR_ABOVE_MS: u64 = 500;

/// Accepted bytes of a body after which read-ahead is no longer limited.
const TRUSTED_BYTES: u64 = 256 * 1024;

/// Smallest peak, in bytes, after which the backlog requests the return of freed memory to the system; the
/// request is made at a quarter of the peak.
const RELEASED_BYTES_MIN: usize = 4 * 1024 * 1024;

/// The backlog of one worker.
pub(crate) struct BodyBacklog {
    bytes_max: usize,
    /// Bytes in the send queues of connections.
    queued_bytes: Arc<AtomicUsize>,
    /// Bytes in the buffers of waiting exchanges.
    waiting_bytes: Cell<usize>,
    waiting: RefCell<WaitingExchanges>,
    queues: QueueRegister,
    peak_bytes: Cell<usize>,
    /// Exchanges and connections that ended since [`BodyBacklog::take_ended`].
    ended: Cell<usize>,
}

/// Exchanges that wait for a peer, in reusable slots.
#[derive(Default)]
struct WaitingExchanges {
    slots: Vec<Option<WaitingExchange>>,
    free: Vec<usize>,
}

struct WaitingExchange {
    mark: WaitMark,
    /// Bytes of the body that the peer has accepted.
    taken_bytes: u64,
    bytes: usize,
    waker: Waker,
    /// Chosen to end. The wake-up retries the write first: the peer may have read since the last one.
    is_over: bool,
}

/// The bytes that waited at one moment.
struct WaitMark {
    since_ms: u64,
    bytes: usize,
    /// Count of accepted bytes at which all of them have been sent.
    taken_target: u64,
}

/// Exchanges that were chosen to end because their peers are stalled.
struct StalledExchanges {
    /// The number of exchanges that were not chosen before.
    count: usize,
    /// The bytes of all that were chosen.
    bytes: usize,
}

/// The bytes of an exchange that wait for a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingBytes {
    pub(crate) bytes: usize,
    /// Bytes of the body that the peer has accepted.
    pub(crate) taken_bytes: u64,
}

/// Entry of an exchange in the backlog; removed on drop.
pub(crate) struct BacklogEntry {
    backlog: Rc<BodyBacklog>,
    slot: usize,
}

impl Default for BodyBacklog {
    /// Creates a backlog without a bound.
    fn default() -> BodyBacklog {
        BodyBacklog::new(0)
    }
}

impl BodyBacklog {
    /// Creates a backlog of at most `bytes_max` bytes; 0 means no bound.
    pub(crate) fn new(bytes_max: usize) -> BodyBacklog {
        BodyBacklog {
            bytes_max: if bytes_max == 0 { usize::MAX } else { bytes_max },
            queued_bytes: Arc::default(),
            waiting_bytes: Cell::new(0),
            waiting: RefCell::default(),
            queues: QueueRegister::default(),
            peak_bytes: Cell::new(0),
            ended: Cell::new(0),
        }
    }

    /// Bytes in the backlog.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        // A bound on memory tolerates a stale count, so Relaxed suffices.
        self.waiting_bytes.get() + self.queued_bytes.load(Relaxed)
    }

    /// Whether more than half of the bound is used.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.bytes() > self.bytes_max / 2
    }

    /// Bytes of a body that may be read at once, when the sink has accepted `taken_bytes`.
    #[inline]
    pub(crate) fn read_ahead(&self, taken_bytes: u64) -> usize {
        if self.is_pressed() && taken_bytes < TRUSTED_BYTES { READ_AHEAD_BYTES } else { usize::MAX }
    }

    /// Creates the send queue of a downstream connection. `enforce` may end that connection.
    pub(crate) fn client_queue(&self) -> SendQueue {
        let queue = self.queue();
        self.queues.add(&queue);
        queue
    }

    /// Creates the send queue of an upstream connection. `enforce` ends its exchanges and not the connection.
    pub(crate) fn queue(&self) -> SendQueue {
        SendQueue::new(self.queued_bytes.clone(), self.bytes_max / 2)
    }

    /// Adds an exchange whose peer has accepted `taken_bytes` of the body while `bytes` wait.
    #[cold]
    fn enter(self: &Rc<Self>, cx: &Context<'_>, bytes: usize, taken_bytes: u64, now_ms: u64) -> BacklogEntry {
        let mark = WaitMark::new(bytes, taken_bytes, now_ms);
        let exchange =
            WaitingExchange { mark, taken_bytes, bytes, waker: cx.waker().clone(), is_over: false };
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes);
        BacklogEntry { backlog: self.clone(), slot: self.waiting.borrow_mut().add(exchange) }
    }

    /// Updates the entry of an exchange; without waiting bytes, removes it. True if the exchange must end.
    #[inline]
    pub(crate) fn note(
        self: &Rc<Self>,
        entry: &mut Option<BacklogEntry>,
        cx: &Context<'_>,
        waiting: WaitingBytes,
        now_ms: u64,
    ) -> bool {
        let WaitingBytes { bytes, taken_bytes } = waiting;
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

    /// Chooses stalled exchanges, then stalled connections, the longest stalled first, until the backlog is
    /// within its bound; returns their number. A chosen exchange continues if its peer has read in the meantime.
    pub(crate) fn enforce(&self, now_ms: u64) -> usize {
        if !self.is_pressed() {
            return 0;
        }
        // Called before the bound is checked: the call also sets the marks from which the stall time counts.
        let stalled = self.queues.stalled(now_ms);
        let mut excess_bytes = self.bytes().saturating_sub(self.bytes_max);
        if excess_bytes == 0 {
            return 0;
        }
        let is_far_above = excess_bytes > self.bytes_max / 2;
        let stalled_ms = if is_far_above { STALLED_FAR_ABOVE_MS } else { STALLED_MS };
        let before_ms = now_ms.saturating_sub(stalled_ms);
        let StalledExchanges { count: mut chosen, bytes } =
            self.waiting.borrow_mut().choose_stalled(now_ms, before_ms, excess_bytes);
        excess_bytes = excess_bytes.saturating_sub(bytes);
        for queue in stalled {
            if excess_bytes == 0 {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(queue.end());
            self.ended.set(self.ended.get() + 1);
            chosen += 1;
        }
        chosen
    }

    /// Returns the number of exchanges and connections that ended since the last call.
    pub(crate) fn take_ended(&self) -> usize {
        self.ended.take()
    }

    /// Whether the backlog has shrunk to a quarter of a large peak since the last time this was true.
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

    /// Chooses exchanges that wait since `before_ms` or longer, until `excess_bytes` are to be freed.
    fn choose_stalled(&mut self, now_ms: u64, before_ms: u64, excess_bytes: usize) -> StalledExchanges {
        // Exchanges that were chosen before may still hold their bytes.
        let mut bytes: usize =
            self.slots.iter().flatten().filter(|one| one.is_over).map(|one| one.bytes).sum();
        let is_stalled = |one: &&mut WaitingExchange| !one.is_over && one.mark.since_ms <= before_ms;
        let mut stalled: Vec<_> = self.slots.iter_mut().flatten().filter(is_stalled).collect();
        stalled.sort_unstable_by_key(|one| Reverse(one.mark.stalled_ms(one.taken_bytes, now_ms)));
        let mut count = 0;
        for one in stalled {
            if bytes >= excess_bytes {
                break;
            }
            bytes += one.bytes;
            one.is_over = true;
            one.waker.wake_by_ref();
            count += 1;
        }
        StalledExchanges { count, bytes }
    }
}

impl WaitMark {
    fn new(bytes: usize, taken_bytes: u64, now_ms: u64) -> WaitMark {
        WaitMark { since_ms: now_ms, bytes, taken_target: taken_bytes + bytes as u64 }
    }

    /// Time since the mark, reduced by the share of the bytes that the peer has accepted: a peer that reads ends
    /// after peers that read nothing, and a byte now and then changes nothing.
    fn stalled_ms(&self, taken_bytes: u64, now_ms: u64) -> u64 {
        let left_bytes = self.taken_target.saturating_sub(taken_bytes);
        now_ms.saturating_sub(self.since_ms) * left_bytes / self.bytes.max(1) as u64
    }
}

impl BacklogEntry {
    fn update(&mut self, cx: &Context<'_>, bytes: usize, taken_bytes: u64, now_ms: u64) -> bool {
        let backlog = &self.backlog;
        let mut waiting = backlog.waiting.borrow_mut();
        let Some(Some(one)) = waiting.slots.get_mut(self.slot) else { return false };
        backlog.waiting_bytes.set(backlog.waiting_bytes.get() - one.bytes + bytes);
        (one.bytes, one.taken_bytes) = (bytes, taken_bytes);
        // The wait restarts only after all earlier bytes were accepted, so a byte now and then does not
        // extend it.
        if taken_bytes >= one.mark.taken_target {
            one.mark = WaitMark::new(bytes, taken_bytes, now_ms);
            // The worker may have chosen the exchange before it noticed that the socket is writable: it ran late,
            // or the kernel reports that only once a third of the send buffer is free.
            one.is_over = false;
        }
        if !one.waker.will_wake(cx.waker()) {
            one.waker.clone_from(cx.waker());
        }
        if one.is_over {
            backlog.ended.set(backlog.ended.get() + 1);
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
