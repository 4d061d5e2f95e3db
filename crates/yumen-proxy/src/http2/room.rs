//! What the streams of one connection have queued for a peer that does not take it, bounded together.
//!
//! Each may queue some for itself, so that they do not wait for each other; a hundred of them would queue a hundred
//! times that for a client that does not read. One that has hardly anything queued may always add a frame: however
//! much the others would send, its turn comes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    /// Streams that want to know when there is less.
    waiting: Mutex<Vec<Weak<Own>>>,
}

/// What one stream has in the queue.
pub(crate) struct Share(Arc<Own>);

struct Own {
    all: Arc<Queue>,
    bytes: AtomicUsize,
    /// Whether the connection's queue knows that it waits.
    is_waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Data that is in the queue for as long as it lives: until it was written, or its stream was given up.
struct Queued {
    data: Bytes,
    own: Arc<Own>,
}

impl Room {
    /// For one stream more.
    pub(crate) fn share(&self) -> Share {
        Share(Arc::new(Own {
            all: self.0.clone(),
            bytes: AtomicUsize::default(),
            is_waiting: AtomicBool::default(),
            waker: Mutex::default(),
        }))
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
        let own = &self.0;
        if own.bytes.load(Relaxed) < FRAME_BYTES {
            return Poll::Ready(FRAME_BYTES);
        }
        *lock(&own.waker) = Some(cx.waker().clone());
        if !own.is_waiting.swap(true, Relaxed) {
            lock(&own.all.waiting).push(Arc::downgrade(own));
        }
        Poll::Pending
    }

    /// Data that counts as queued until it is let go.
    pub(super) fn queue(&self, data: Bytes) -> Bytes {
        self.0.bytes.fetch_add(data.len(), Relaxed);
        self.0.all.bytes.fetch_add(data.len(), Relaxed);
        Bytes::from_owner(Queued { data, own: self.0.clone() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.0.is_waiting.load(Relaxed) {
            let own = Arc::as_ptr(&self.0);
            lock(&self.0.all.waiting).retain(|other| !std::ptr::eq(other.as_ptr(), own));
        }
    }
}

impl Own {
    #[cold]
    fn wake(&self) {
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    /// Wakes all that wait, in the order in which they came.
    #[cold]
    fn wake(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for own in waiting.iter().filter_map(Weak::upgrade) {
            own.is_waiting.store(false, Relaxed);
            own.wake();
        }
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let (own, left) = (&*self.own, self.data.len());
        if falls_below(FRAME_BYTES, &own.bytes, left) {
            own.wake();
        }
        // At half, so that those who wait are not woken for each frame that leaves.
        if falls_below(BYTES_MAX / 2 + 1, &own.all.bytes, left) {
            own.all.wake();
        }
    }
}

/// Takes what left from the sum; whether that brought it below the bound.
#[inline]
fn falls_below(bound: usize, sum: &AtomicUsize, left: usize) -> bool {
    let before = sum.fetch_sub(left, Relaxed);
    before >= bound && before - left < bound
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
        assert_eq!(lock(&room.0.waiting).len(), 1);
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
        // who has gone is not remembered, however long there is no room
        assert_eq!(lock(&room.0.waiting).len(), 2);
        drop(small);
        assert_eq!(lock(&room.0.waiting).len(), 1);
    }
}
