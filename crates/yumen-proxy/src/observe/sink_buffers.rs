//! Entries of loggers on a worker, before their sender takes them.
//!
//! A sender is woken per chunk and not per entry, since a wake-up is a system call. This file must not know entries
//! or transports.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use yumen_plugin::{SinkChunk, SinkHandle};

/// Bytes after which a chunk is handed over at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Entries after which a chunk is handed over at once.
const CHUNK_ENTRIES: usize = 64;
/// Memory for a chunk: its last entry may exceed the bound.
const CHUNK_CAPACITY: usize = CHUNK_BYTES + 2048;
/// Time after which a shorter chunk is handed over, in milliseconds.
pub(crate) const FLUSH_AFTER_MS: u64 = 50;

/// The chunks that a worker is filling, by the number of their queue.
#[derive(Default)]
pub(crate) struct SinkBuffers {
    open: RefCell<HashMap<u64, OpenChunk, foldhash::fast::RandomState>>,
    is_flush_due: Cell<bool>,
}

struct OpenChunk {
    sink: SinkHandle,
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl SinkBuffers {
    /// Appends an entry that `render` writes. Returns whether the caller must call [`SinkBuffers::flush`] after
    /// [`FLUSH_AFTER_MS`].
    pub(crate) fn append(&self, sink: &SinkHandle, render: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        let mut open = self.open.borrow_mut();
        let number = sink.queue().number;
        let waiting = open.get(&number).map_or(0, |chunk| chunk.ends.len() as u64);
        if !sink.admit(waiting) {
            return false;
        }
        let chunk = open.entry(number).or_insert_with(|| OpenChunk::new(sink.clone()));
        let is_single = sink.queue().spec.policy.batch_max_size == 1;
        if !is_single && chunk.bytes.capacity() == 0 {
            chunk.bytes.reserve(CHUNK_CAPACITY);
            chunk.ends.reserve(CHUNK_ENTRIES);
        }
        chunk.append(render);
        if is_single || chunk.bytes.len() >= CHUNK_BYTES || chunk.ends.len() >= CHUNK_ENTRIES {
            chunk.hand_over();
            return false;
        }
        // A flush that is due covers this entry as well.
        !chunk.ends.is_empty() && !self.is_flush_due.replace(true)
    }

    /// Hands all chunks over. Their handles are dropped, so that a sink without further users can end.
    pub(crate) fn flush(&self) {
        self.is_flush_due.set(false);
        let chunks = std::mem::take(&mut *self.open.borrow_mut());
        chunks.into_values().for_each(|mut chunk| chunk.hand_over());
    }
}

impl OpenChunk {
    fn new(sink: SinkHandle) -> OpenChunk {
        OpenChunk { sink, bytes: Vec::new(), ends: Vec::new() }
    }

    fn append(&mut self, render: &mut dyn FnMut(&mut Vec<u8>)) {
        let before = self.bytes.len();
        if !self.ends.is_empty() {
            self.bytes.extend_from_slice(self.sink.separator());
        }
        let begin = self.bytes.len();
        render(&mut self.bytes);
        if self.bytes.len() == begin {
            // The logger has left this exchange out.
            self.bytes.truncate(before);
            return;
        }
        self.ends.push(self.bytes.len() as u32);
    }

    fn hand_over(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        // A waiting chunk counts with its length, so it must not hold much more memory.
        if self.bytes.len() < CHUNK_CAPACITY / 2 {
            self.bytes.shrink_to_fit();
        }
        let ends = std::mem::take(&mut self.ends).into_boxed_slice();
        let bytes = std::mem::take(&mut self.bytes).into();
        self.sink.push_chunk(SinkChunk { bytes, ends });
    }
}

#[cfg(test)]
mod tests;
