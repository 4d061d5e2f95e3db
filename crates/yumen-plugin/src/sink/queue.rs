//! The queue of one sink: many workers push, one sender takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::registry::SINK_BYTES_MAX;
use super::{SinkChunk, SinkEncoder, SinkFraming, SinkSpec};

/// A queue of chunks between workers and a sender, with its counts.
pub struct SinkQueue {
    /// The sink.
    pub spec: SinkSpec,
    /// The payload form.
    pub encoder: Arc<dyn SinkEncoder>,
    /// Number of the queue, unique in the process.
    pub number: u64,
    framing: SinkFraming,
    chunks: Sender<SinkChunk>,
    /// Taken once, by the sender.
    receiver: Mutex<Option<Receiver<SinkChunk>>>,
    /// Number of handles. At 0 the queue is closed for good.
    producers: AtomicU64,
    counts: SinkCounts,
    /// Waiting bytes of all queues of the registry.
    bytes_of_all: Arc<AtomicU64>,
    is_sleeping: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Counts of one queue. Workers and the sender write them, once per chunk and per batch.
#[derive(Debug, Default)]
struct SinkCounts {
    waiting_entries: AtomicU64,
    waiting_bytes: AtomicU64,
    by_result: [AtomicU64; SinkResult::ALL.len()],
}

/// The end of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkResult {
    /// The sink has it.
    Sent,
    /// The queue was full.
    DroppedFull,
    /// The sink refused it, or all repetitions failed.
    DroppedFailed,
    /// The process ended first.
    DroppedStop,
}

impl SinkResult {
    /// All results.
    pub const ALL: [SinkResult; 4] =
        [SinkResult::Sent, SinkResult::DroppedFull, SinkResult::DroppedFailed, SinkResult::DroppedStop];

    /// The value of the metric label.
    pub fn name(self) -> &'static str {
        match self {
            SinkResult::Sent => "sent",
            SinkResult::DroppedFull => "dropped_full",
            SinkResult::DroppedFailed => "dropped_failed",
            SinkResult::DroppedStop => "dropped_stop",
        }
    }
}

impl SinkQueue {
    pub(super) fn new(
        spec: SinkSpec,
        encoder: Arc<dyn SinkEncoder>,
        number: u64,
        bytes_of_all: Arc<AtomicU64>,
    ) -> SinkQueue {
        let (chunks, receiver) = mpsc::channel();
        SinkQueue {
            framing: encoder.framing(),
            spec,
            encoder,
            number,
            chunks,
            receiver: Mutex::new(Some(receiver)),
            producers: AtomicU64::new(0),
            counts: SinkCounts::default(),
            bytes_of_all,
            is_sleeping: AtomicBool::new(false),
            waker: Mutex::default(),
        }
    }

    /// Returns a handle, unless the queue is closed. `is_new` opens a queue that has had none.
    pub(super) fn handle(self: &Arc<Self>, is_new: bool) -> Option<SinkHandle> {
        let join = |producers: u64| (is_new || producers > 0).then_some(producers + 1);
        self.producers.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).ok()?;
        Some(SinkHandle { queue: self.clone() })
    }

    /// Takes the receiving side; `None` if a sender has it.
    pub fn take_receiver(self: &Arc<Self>) -> Option<SinkReceiver> {
        let chunks = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(SinkReceiver { queue: self.clone(), chunks })
    }

    /// Whether all handles were dropped, so that no chunk follows.
    pub fn is_closed(&self) -> bool {
        self.producers.load(Ordering::Acquire) == 0
    }

    /// Waiting entries and bytes, including those of the batch that is being sent.
    pub fn waiting(&self) -> (u64, u64) {
        let counts = &self.counts;
        (counts.waiting_entries.load(Ordering::Relaxed), counts.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Number of entries that ended so.
    pub fn ended(&self, result: SinkResult) -> u64 {
        self.counts.by_result[result as usize].load(Ordering::Relaxed)
    }

    /// Counts entries that left the queue.
    pub fn settle(&self, entries: u64, bytes: u64, result: SinkResult) {
        self.counts.waiting_entries.fetch_sub(entries, Ordering::Relaxed);
        self.counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes_of_all.fetch_sub(bytes, Ordering::Relaxed);
        self.count(entries, result);
    }

    fn count(&self, entries: u64, result: SinkResult) {
        self.counts.by_result[result as usize].fetch_add(entries, Ordering::Relaxed);
    }

    fn push_chunk(&self, chunk: SinkChunk) {
        let (entries, bytes) = (chunk.len() as u64, chunk.bytes.len() as u64);
        self.counts.waiting_entries.fetch_add(entries, Ordering::Relaxed);
        self.counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_of_all.fetch_add(bytes, Ordering::Relaxed);
        if self.chunks.send(chunk).is_err() {
            // The sender ended with the process.
            self.settle(entries, bytes, SinkResult::DroppedStop);
        }
        self.wake();
    }

    /// Wakes the sender if it sleeps. A wake-up is a system call, so a busy sender gets none.
    fn wake(&self) {
        if self.is_sleeping.swap(false, Ordering::SeqCst) {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The right to push entries. The queue closes when the last handle is dropped, and its sender ends when it is empty.
pub struct SinkHandle {
    queue: Arc<SinkQueue>,
}

impl Clone for SinkHandle {
    fn clone(&self) -> SinkHandle {
        self.queue.producers.fetch_add(1, Ordering::AcqRel);
        SinkHandle { queue: self.queue.clone() }
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        if self.queue.producers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.queue.wake();
        }
    }
}

impl SinkHandle {
    /// The queue.
    pub fn queue(&self) -> &Arc<SinkQueue> {
        &self.queue
    }

    /// Bytes between two entries of a chunk.
    pub fn separator(&self) -> &'static [u8] {
        self.queue.framing.separator
    }

    /// Whether the queue takes an entry beside `more` entries that the caller holds. Counts a refused one as dropped.
    pub fn admit(&self, more: u64) -> bool {
        let (entries, bytes) = self.queue.waiting();
        let policy = &self.queue.spec.policy;
        let has_room = entries + more < policy.pending_entries_max
            && bytes < policy.pending_bytes_max
            && self.queue.bytes_of_all.load(Ordering::Relaxed) < SINK_BYTES_MAX;
        if !has_room {
            self.queue.count(1, SinkResult::DroppedFull);
        }
        has_room
    }

    /// Pushes a chunk whose entries were admitted.
    pub fn push_chunk(&self, chunk: SinkChunk) {
        self.queue.push_chunk(chunk);
    }

    /// Pushes one entry beside the buffers of the worker, from any thread. Returns false if the queue is full.
    pub fn push(&self, entry: Vec<u8>) -> bool {
        let has_room = self.admit(0);
        if has_room {
            self.queue.push_chunk(SinkChunk::single(entry));
        }
        has_room
    }
}

/// The receiving side of a queue.
pub struct SinkReceiver {
    /// The queue.
    pub queue: Arc<SinkQueue>,
    chunks: Receiver<SinkChunk>,
}

impl SinkReceiver {
    /// The next chunk; `None` when the queue is closed and empty.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<SinkChunk>> {
        if let Ok(chunk) = self.chunks.try_recv() {
            return Poll::Ready(Some(chunk));
        }
        *self.queue.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        self.queue.is_sleeping.store(true, Ordering::SeqCst);
        // Read before the last look: a producer pushes, then drops its handle.
        let is_closed = self.queue.is_closed();
        // A producer that pushed before it saw the flag wakes no sender.
        match self.chunks.try_recv() {
            Ok(chunk) => {
                self.queue.is_sleeping.store(false, Ordering::SeqCst);
                Poll::Ready(Some(chunk))
            }
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) if is_closed => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}
