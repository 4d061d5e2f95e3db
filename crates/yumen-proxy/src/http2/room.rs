//! What the streams of one connection have queued for a peer that does not take it, bounded together.
//!
//! Each may queue some for itself, so that they do not wait for each other; a hundred of them would queue a hundred
//! times that for a client that does not read. One that has hardly anything queued may always add a frame: however
//! much the others would send, its turn comes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

const BYTES_MAX: usize = 1024 * 1024;
/// What a stream may queue where all the room is taken, and holds less than this already.
const FRAME_BYTES: usize = 16 * 1024;

/// Room of a connection.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Queue>);

#[derive(Default)]
struct Queue {
    bytes: AtomicUsize,
    waiting: Waiting,
}

/// What one stream has in the queue.
pub(crate) struct Share(Arc<Own>);

struct Own {
    all: Arc<Queue>,
    bytes: AtomicUsize,
    waiting: Waiting,
}

/// Data that is in the queue for as long as it lives: until it was written, or its stream was given up.
struct Queued {
    data: Bytes,
    own: Arc<Own>,
}

impl Room {
    /// For one stream more.
    pub(crate) fn share(&self) -> Share {
        let (bytes, waiting) = Default::default();
        Share(Arc::new(Own { all: self.0.clone(), bytes, waiting }))
    }
}

impl Share {
    /// How much may be queued now, once that is anything.
    #[inline]
    pub(super) fn poll_free(&self, cx: &Context<'_>) -> Poll<usize> {
        let is_free = self.0.all.bytes.load(Relaxed) < BYTES_MAX;
        if is_free { Poll::Ready(usize::MAX) } else { self.poll_frame(cx) }
    }

    #[cold]
    fn poll_frame(&self, cx: &Context<'_>) -> Poll<usize> {
        if self.0.bytes.load(Relaxed) < FRAME_BYTES {
            return Poll::Ready(FRAME_BYTES);
        }
        self.0.waiting.add(cx.waker());
        self.0.all.waiting.add(cx.waker());
        Poll::Pending
    }

    /// Data that counts as queued until it is let go.
    pub(super) fn queue(&self, data: Bytes) -> Bytes {
        self.0.bytes.fetch_add(data.len(), Relaxed);
        self.0.all.bytes.fetch_add(data.len(), Relaxed);
        Bytes::from_owner(Queued { data, own: self.0.clone() })
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Own { all, bytes, waiting } = &*self.own;
        waiting.wake_below(FRAME_BYTES, bytes, self.data.len());
        // At half, so that those who wait are not woken for each frame that leaves.
        all.waiting.wake_below(BYTES_MAX / 2 + 1, &all.bytes, self.data.len());
    }
}

/// Who wants to know when there is less.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut waiting = self.lock();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Takes what left from the sum, and wakes all, in the order in which they came, once it comes below the bound.
    #[inline]
    fn wake_below(&self, bound: usize, sum: &AtomicUsize, left: usize) {
        let before = sum.fetch_sub(left, Relaxed);
        if before >= bound && before - left < bound {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    fn bytes(count: usize) -> Bytes {
        Bytes::from(vec![0; count])
    }

    #[test]
    fn whoever_finds_no_room_is_woken_when_half_of_it_is_free() {
        let (room, woken) = (Room::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let share = room.share();
        let mut queued: Vec<Bytes> = (0..4).map(|_| share.queue(bytes(BYTES_MAX / 4))).collect();
        assert!(share.poll_free(&cx).is_pending() && share.poll_free(&cx).is_pending());
        assert_eq!(room.0.waiting.lock().len(), 1);
        queued.pop();
        assert!(!woken.0.load(Relaxed) && share.poll_free(&cx).is_ready());
        // A part that lives on keeps the whole.
        let part = queued.pop().unwrap().slice(..1);
        assert!(!woken.0.load(Relaxed));
        drop(part);
        assert!(woken.0.load(Relaxed));
        drop(queued);
        assert_eq!(room.0.bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_stream_with_nothing_queued_adds_a_frame_however_full_it_is() {
        let (room, woken) = (Room::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let (large, small) = (room.share(), room.share());
        let _queued = large.queue(bytes(2 * BYTES_MAX));
        assert!(large.poll_free(&cx).is_pending());
        assert_eq!(small.poll_free(&cx), Poll::Ready(FRAME_BYTES));
        let little = small.queue(bytes(FRAME_BYTES - 1));
        assert_eq!(small.poll_free(&cx), Poll::Ready(FRAME_BYTES));
        let more = small.queue(bytes(FRAME_BYTES));
        assert!(small.poll_free(&cx).is_pending());
        drop(little);
        assert!(!woken.0.load(Relaxed) && small.poll_free(&cx).is_pending());
        // its own have left, those of the others have not
        drop(more);
        assert!(woken.0.load(Relaxed) && small.poll_free(&cx).is_ready());
    }
}
