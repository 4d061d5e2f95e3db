//! Send queue of a multiplexed connection: bounds the bytes that all its streams have queued for a slow peer.
//!
//! Without a common bound, a hundred streams would queue a hundred times the limit of one. A stream with
//! little queued may always add a frame, so other streams cannot starve it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::STALLED_MS;

const BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a stream may add to a full queue, if it has fewer than that queued.
const FRAME_BYTES: usize = 16 * 1024;
/// Both limits under memory pressure. A connection whose peer reads needs no more, because its queue is sent
/// after each turn.
const PRESSED_BYTES_MAX: usize = 64 * 1024;
const PRESSED_FRAME_BYTES: usize = 2 * 1024;

/// Send queue of a connection.
#[derive(Clone)]
pub(crate) struct SendQueue(Arc<SendQueueState>);

struct SendQueueState {
    bytes: AtomicUsize,
    /// Bytes that have left the queue since its creation.
    left_bytes: AtomicUsize,
    /// Bytes in the queues of all connections of the worker, and the pressure threshold.
    worker_bytes: Arc<AtomicUsize>,
    worker_bytes_pressed: usize,
    /// Streams that wait for free capacity.
    waiting: Mutex<Vec<Weak<StreamQueueState>>>,
    stall: Mutex<StallMark>,
    is_over: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

/// Time of the check that found bytes in the queue, and the count of left bytes at which those have left.
#[derive(Default)]
struct StallMark {
    since_ms: Option<u64>,
    left_target: usize,
}

/// Downstream connections of a worker that have a send queue.
#[derive(Default)]
pub(super) struct QueueRegister(RefCell<Vec<Weak<SendQueueState>>>);

impl QueueRegister {
    pub(super) fn add(&self, queue: &SendQueue) {
        let mut queues = self.0.borrow_mut();
        // Entries of closed connections are removed only when the list would grow, which amortizes the scan.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(Arc::downgrade(&queue.0));
    }

    /// Queues whose peer has not accepted the marked bytes within [`STALLED_MS`], the longest stalled first.
    pub(super) fn stalled(&self, now_ms: u64) -> Vec<SendQueue> {
        let queues = self.0.borrow();
        let queues = queues.iter().filter_map(Weak::upgrade).map(SendQueue);
        let mut stalled: Vec<_> =
            queues.filter_map(|queue| Some((queue.stalled_since(now_ms)?, queue))).collect();
        stalled.sort_by_key(|(since_ms, _)| *since_ms);
        stalled.into_iter().map(|(_, queue)| queue).collect()
    }
}

/// Share of one stream in the queue.
pub(crate) struct StreamQueue(Arc<StreamQueueState>);

struct StreamQueueState {
    all: Arc<SendQueueState>,
    bytes: AtomicUsize,
    /// Whether the stream is in the list of waiting streams.
    is_waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Data that counts as queued until it is dropped: after the write, or when its stream was given up.
struct QueuedBytes {
    data: Bytes,
    own: Arc<StreamQueueState>,
}

impl SendQueue {
    pub(super) fn new(worker_bytes: Arc<AtomicUsize>, worker_bytes_pressed: usize) -> SendQueue {
        SendQueue(Arc::new(SendQueueState {
            bytes: AtomicUsize::default(),
            left_bytes: AtomicUsize::default(),
            worker_bytes,
            worker_bytes_pressed,
            waiting: Mutex::default(),
            stall: Mutex::default(),
            is_over: AtomicBool::default(),
            driver: Mutex::default(),
        }))
    }

    /// Adds a stream.
    pub(crate) fn stream(&self) -> StreamQueue {
        StreamQueue(Arc::new(StreamQueueState {
            all: self.0.clone(),
            bytes: AtomicUsize::default(),
            is_waiting: AtomicBool::default(),
            waker: Mutex::default(),
        }))
    }

    /// Whether the connection must end because its peer does not read. Registers the task of the driver.
    pub(crate) fn is_over(&self, cx: &Context<'_>) -> bool {
        let mut driver = lock(&self.0.driver);
        match &mut *driver {
            // `clone_from` retains a waker that wakes the same task.
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.0.is_over.load(Relaxed)
    }

    /// Ends the connection; returns its queued bytes.
    pub(super) fn end(&self) -> usize {
        self.0.is_over.store(true, Relaxed);
        let driver = lock(&self.0.driver).take();
        driver.into_iter().for_each(Waker::wake);
        self.0.bytes.load(Relaxed)
    }

    fn stalled_since(&self, now_ms: u64) -> Option<u64> {
        let (bytes, left_bytes) = (self.0.bytes.load(Relaxed), self.0.left_bytes.load(Relaxed));
        let mut mark = lock(&self.0.stall);
        if bytes == 0 {
            mark.since_ms = None;
            return None;
        }
        match mark.since_ms {
            Some(since_ms) if left_bytes < mark.left_target => {
                (now_ms.saturating_sub(since_ms) >= STALLED_MS).then_some(since_ms)
            }
            _ => {
                // All marked bytes have left, so the current content is marked.
                *mark = StallMark { since_ms: Some(now_ms), left_target: left_bytes + bytes };
                None
            }
        }
    }
}

impl StreamQueue {
    /// Bytes that may be queued now; ready when there are some.
    #[inline]
    pub(crate) fn poll_free(&self, cx: &Context<'_>) -> Poll<usize> {
        let all = &self.0.all;
        let is_free = all.bytes.load(Relaxed) < all.bytes_max();
        if is_free { Poll::Ready(usize::MAX) } else { self.poll_frame(cx) }
    }

    #[cold]
    fn poll_frame(&self, cx: &Context<'_>) -> Poll<usize> {
        let own = &self.0;
        let frame_bytes = own.all.frame_bytes();
        if own.bytes.load(Relaxed) < frame_bytes {
            return Poll::Ready(frame_bytes);
        }
        *lock(&own.waker) = Some(cx.waker().clone());
        // A stream is in the list at most once.
        if !own.is_waiting.swap(true, Relaxed) {
            lock(&own.all.waiting).push(Arc::downgrade(own));
        }
        Poll::Pending
    }

    /// Wraps data, so that it counts as queued until it is dropped.
    pub(crate) fn queue(&self, data: Bytes) -> Bytes {
        self.0.bytes.fetch_add(data.len(), Relaxed);
        self.0.all.bytes.fetch_add(data.len(), Relaxed);
        self.0.all.worker_bytes.fetch_add(data.len(), Relaxed);
        // `Bytes::from_owner` requires `Send`, hence the atomics although one thread uses the queue.
        Bytes::from_owner(QueuedBytes { data, own: self.0.clone() })
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        if self.0.is_waiting.load(Relaxed) {
            let own = Arc::as_ptr(&self.0);
            lock(&self.0.all.waiting).retain(|other| !std::ptr::eq(other.as_ptr(), own));
        }
    }
}

impl StreamQueueState {
    #[cold]
    fn wake(&self) {
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl SendQueueState {
    #[inline]
    fn is_pressed(&self) -> bool {
        self.worker_bytes.load(Relaxed) > self.worker_bytes_pressed
    }

    #[inline]
    fn bytes_max(&self) -> usize {
        if self.is_pressed() { PRESSED_BYTES_MAX } else { BYTES_MAX }
    }

    fn frame_bytes(&self) -> usize {
        if self.is_pressed() { PRESSED_FRAME_BYTES } else { FRAME_BYTES }
    }

    /// Wakes all waiting streams, in the order of arrival.
    #[cold]
    fn wake(&self) {
        // Taken first: no lock is held while tasks are woken.
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for own in waiting.iter().filter_map(Weak::upgrade) {
            own.is_waiting.store(false, Relaxed);
            own.wake();
        }
    }
}

impl AsRef<[u8]> for QueuedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        let (own, left) = (&*self.own, self.data.len());
        own.all.worker_bytes.fetch_sub(left, Relaxed);
        own.all.left_bytes.fetch_add(left, Relaxed);
        let own_bytes = own.bytes.fetch_sub(left, Relaxed) - left;
        // The limit may have grown since the stream began to wait.
        if own.is_waiting.load(Relaxed) && own_bytes < own.all.frame_bytes() {
            own.wake();
        }
        // Waiting streams are woken at half of either bound, not for each frame that leaves.
        let before = own.all.bytes.fetch_sub(left, Relaxed);
        let falls_to = |half: usize| before > half && before - left <= half;
        if falls_to(BYTES_MAX / 2) || falls_to(PRESSED_BYTES_MAX / 2) {
            own.all.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    fn queue() -> SendQueue {
        SendQueue::new(Arc::default(), usize::MAX / 2)
    }

    fn bytes(count: usize) -> Bytes {
        Bytes::from(vec![0; count])
    }

    #[test]
    fn waiting_writer_is_woken_at_half_capacity() {
        let (room, woken) = (queue(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let share = room.stream();
        let mut queued: Vec<Bytes> = (0..4).map(|_| share.queue(bytes(BYTES_MAX / 4))).collect();
        assert!(share.poll_free(&cx).is_pending() && share.poll_free(&cx).is_pending());
        assert_eq!(lock(&room.0.waiting).len(), 1);
        queued.pop();
        assert!(!woken.0.load(Relaxed) && share.poll_free(&cx).is_ready());
        // A slice keeps the whole buffer alive.
        let part = queued.pop().unwrap().slice(..1);
        assert!(!woken.0.load(Relaxed));
        drop(part);
        assert!(woken.0.load(Relaxed));
        drop(queued);
        assert_eq!(room.0.bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_stream_with_nothing_queued_adds_a_frame_however_full_it_is() {
        let (room, woken) = (queue(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let (large, small) = (room.stream(), room.stream());
        let _queued = large.queue(bytes(2 * BYTES_MAX));
        assert!(large.poll_free(&cx).is_pending());
        assert_eq!(small.poll_free(&cx), Poll::Ready(FRAME_BYTES));
        let little = small.queue(bytes(FRAME_BYTES - 1));
        assert_eq!(small.poll_free(&cx), Poll::Ready(FRAME_BYTES));
        let more = small.queue(bytes(FRAME_BYTES));
        assert!(small.poll_free(&cx).is_pending());
        drop(little);
        assert!(!woken.0.load(Relaxed) && small.poll_free(&cx).is_pending());
        // The stream's own bytes have left; those of the other stream have not.
        drop(more);
        assert!(woken.0.load(Relaxed) && small.poll_free(&cx).is_ready());
        // A dropped stream is removed from the list, although the queue stays full.
        assert_eq!(lock(&room.0.waiting).len(), 2);
        drop(small);
        assert_eq!(lock(&room.0.waiting).len(), 1);
    }
}
