//! What the streams of one connection have queued for a peer that does not take it, bounded together.
//!
//! Each may queue some for itself, so that they do not wait for each other; a hundred of them would queue a hundred
//! times that for a client that does not read.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

const BYTES_MAX: usize = 1024 * 1024;

/// Room of a connection, shared by its streams.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Queue>);

#[derive(Default)]
struct Queue {
    bytes: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

/// Data that is in the queue for as long as it lives: until it was written, or its stream was given up.
struct Queued {
    data: Bytes,
    queue: Arc<Queue>,
}

impl Room {
    /// Ready while less is queued than may be.
    #[inline]
    pub(super) fn poll_free(&self, cx: &Context<'_>) -> Poll<()> {
        if self.0.bytes.load(Relaxed) < BYTES_MAX { Poll::Ready(()) } else { self.0.wait(cx.waker()) }
    }

    /// Data that counts as queued until it is let go.
    pub(super) fn queue(&self, data: Bytes) -> Bytes {
        self.0.bytes.fetch_add(data.len(), Relaxed);
        Bytes::from_owner(Queued { data, queue: self.0.clone() })
    }
}

impl Queue {
    #[cold]
    fn wait(&self, waker: &Waker) -> Poll<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        Poll::Pending
    }

    /// Wakes all that wait: in the order in which they came, and each queues again behind the others.
    #[cold]
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let before = self.queue.bytes.fetch_sub(self.data.len(), Relaxed);
        // At half, so that those who wait are not woken for each frame that leaves.
        let half = BYTES_MAX / 2;
        if before > half && before - self.data.len() <= half {
            self.queue.wake();
        }
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

    #[test]
    fn whoever_finds_no_room_is_woken_when_half_of_it_is_free() {
        let (room, woken) = (Room::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        let piece = || room.queue(Bytes::from(vec![0; BYTES_MAX / 4]));
        let mut queued: Vec<Bytes> = (0..4).map(|_| piece()).collect();
        assert!(room.poll_free(&cx).is_pending() && room.poll_free(&cx).is_pending());
        assert_eq!(room.0.waiting.lock().unwrap().len(), 1);
        queued.pop();
        assert!(!woken.0.load(Relaxed) && room.poll_free(&cx).is_ready());
        // A part that lives on keeps the whole.
        let part = queued.pop().unwrap().slice(..1);
        assert!(!woken.0.load(Relaxed));
        drop(part);
        assert!(woken.0.load(Relaxed));
        drop(queued);
        assert_eq!(room.0.bytes.load(Relaxed), 0);
    }
}
