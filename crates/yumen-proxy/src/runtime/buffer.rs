//! Read buffers of a worker, lent to connections only while they contain bytes.
//!
//! A connection takes a large buffer for a read and returns it when the bytes are consumed, so idle
//! connections hold none.

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};

use crate::runtime::backlog::{BodyBacklog, READ_AHEAD_BYTES};

/// Size of a read buffer, in bytes. Below 32 KiB large bodies cost a third more; above 64 KiB there is no
/// gain.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// Size of a buffer for short stream data, in bytes: a worker may serve hundreds of streams at once, most
/// with messages of a few bytes.
const SMALL_BYTES: usize = READ_AHEAD_BYTES;

/// Idle buffers that a worker retains.
const KEPT: usize = 32;
const SMALL_KEPT: usize = 256;

/// Longest content of a parked inbox that moves to memory of its own size, in bytes.
const PARKED_BYTES_MAX: usize = 8 * 1024;

/// Idle buffers of a worker.
#[derive(Default)]
pub(crate) struct Buffers {
    spare: RefCell<Vec<Box<[u8]>>>,
    small: RefCell<Vec<Box<[u8]>>>,
    texts: RefCell<Vec<Vec<u8>>>,
    /// Bytes that wait for slow peers.
    pub(crate) backlog: Rc<BodyBacklog>,
}

impl Buffers {
    /// Creates buffers with a backlog of at most `bytes_max` bytes.
    pub(crate) fn with_backlog(bytes_max: usize) -> Buffers {
        Buffers { backlog: Rc::new(BodyBacklog::new(bytes_max)), ..Buffers::default() }
    }

    pub(crate) fn take(&self) -> Box<[u8]> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    fn take_small(&self) -> Box<[u8]> {
        self.small.borrow_mut().pop().unwrap_or_else(|| vec![0; SMALL_BYTES].into_boxed_slice())
    }

    pub(crate) fn give(&self, buffer: Box<[u8]>) {
        let (pooled, pooled_max) = match buffer.len() {
            BUFFER_BYTES => (&self.spare, KEPT),
            SMALL_BYTES => (&self.small, SMALL_KEPT),
            // Parked content has a buffer of its own size, which fits no other inbox.
            _ => return,
        };
        let mut pooled = pooled.borrow_mut();
        if pooled.len() < pooled_max {
            pooled.push(buffer);
        }
    }

    /// Empty vector for a serialized head.
    pub(crate) fn take_text(&self) -> Vec<u8> {
        self.texts.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a vector, at most 16 KiB of capacity, for the next head.
    pub(crate) fn put_text(&self, mut text: Vec<u8>) {
        let mut texts = self.texts.borrow_mut();
        if text.capacity() > 0 && text.capacity() <= 16 * 1024 && texts.len() < KEPT {
            text.clear();
            texts.push(text);
        }
    }
}

/// Received bytes of a connection that are not consumed yet.
#[derive(Default)]
pub(crate) struct Inbox {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    /// Number of times that bytes were added or moved; invalidates older marks.
    fills: u64,
}

/// Position in an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboxMark {
    start: usize,
    fills: u64,
}

impl Inbox {
    /// Bytes that are not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[self.start..self.end],
            None => &[],
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer[self.start..self.end],
            None => &mut [],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Memory in use, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
    }

    /// Shortens the content to `count` bytes.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    /// Returns the buffer if it is empty.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        if self.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            buffers.give(buffer);
            (self.start, self.end) = (0, 0);
        }
    }

    /// Returns the large buffer while the connection waits: content of at most `PARKED_BYTES_MAX` moves to
    /// memory of its own size.
    pub(crate) fn park(&mut self, buffers: &Buffers) {
        self.release(buffers);
        let waiting = self.len();
        let holds_large = self.buffer.as_ref().is_some_and(|buffer| buffer.len() == BUFFER_BYTES);
        if !holds_large || waiting > PARKED_BYTES_MAX {
            return;
        }
        let small = Box::from(self.bytes());
        if let Some(large) = self.buffer.replace(small) {
            buffers.give(large);
        }
        (self.start, self.end) = (0, waiting);
        // The content has moved, so older marks are invalid.
        self.fills += 1;
    }

    /// Free space behind the content, for the next read; empty when the inbox is full.
    pub(crate) fn room(&mut self, buffers: &Buffers) -> &mut [u8] {
        self.fills += 1;
        if self.buffer.is_none() {
            (self.start, self.end) = (0, 0);
            return self.buffer.insert(buffers.take());
        }
        self.more_room(buffers)
    }

    /// Free space for `count` bytes that are already received, or for as many as fit.
    pub(crate) fn spare_capacity(&mut self, count: usize, buffers: &Buffers) -> &mut [u8] {
        if self.is_empty() && count <= SMALL_BYTES {
            self.fills += 1;
            (self.start, self.end) = (0, 0);
            return self.buffer.get_or_insert_with(|| buffers.take_small());
        }
        self.room(buffers)
    }

    fn more_room(&mut self, buffers: &Buffers) -> &mut [u8] {
        let is_large = self.buffer.as_ref().is_some_and(|buffer| buffer.len() == BUFFER_BYTES);
        if !is_large {
            let waiting = self.len();
            let mut large = buffers.take();
            large[..waiting].copy_from_slice(self.bytes());
            self.buffer.replace(large).into_iter().for_each(|small| buffers.give(small));
            (self.start, self.end) = (0, waiting);
        } else if self.is_empty() {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && BUFFER_BYTES - self.end < BUFFER_BYTES / 4 {
            let waiting = self.len();
            let (start, end) = (self.start, self.end);
            if let Some(buffer) = &mut self.buffer {
                // Only with less than a quarter of the buffer free behind the content, which bounds the
                // copying.
                buffer.copy_within(start..end, 0);
            }
            (self.start, self.end) = (0, waiting);
        }
        let end = self.end;
        match &mut self.buffer {
            Some(buffer) => &mut buffer[end..],
            None => &mut [],
        }
    }

    /// Moves at most `bytes_max` bytes out of `waiting`, as far as they fit; returns their number.
    pub(crate) fn take_from(&mut self, waiting: &mut Bytes, buffers: &Buffers, bytes_max: usize) -> usize {
        let count_max = waiting.len().min(bytes_max);
        let room = self.spare_capacity(count_max, buffers);
        let count = room.len().min(count_max);
        room[..count].copy_from_slice(&waiting[..count]);
        waiting.advance(count);
        self.filled(count);
        count
    }

    /// Adds the `count` bytes that were written into the free space.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Invalidates marks after input bypassed the inbox (splice).
    pub(crate) fn mark_bypassed(&mut self) {
        self.fills += 1;
    }

    /// Mark to rewind to, valid until the next read. Without a buffer the position is lost, so the mark
    /// matches only an inbox without one.
    pub(crate) fn mark(&self) -> InboxMark {
        InboxMark { start: if self.buffer.is_some() { self.start } else { usize::MAX }, fills: self.fills }
    }

    /// Whether the position is `mark`, or can be rewound to it.
    pub(crate) fn can_rewind(&self, mark: InboxMark) -> bool {
        self.mark() == mark || (mark.fills == self.fills && self.buffer.is_some())
    }

    /// Rewinds to `mark`; false if that is impossible.
    pub(crate) fn rewind(&mut self, mark: InboxMark) -> bool {
        let can = self.can_rewind(mark);
        // The mark of an inbox without a buffer is not an index, so `start` stays.
        if can && self.buffer.is_some() {
            self.start = mark.start;
        }
        can
    }
}

/// Copies the first bytes of the slices, at most `bytes_max`.
pub(crate) fn gather(slices: &[IoSlice<'_>], bytes_max: usize) -> Bytes {
    let mut data = BytesMut::with_capacity(bytes_max);
    for slice in slices {
        let taken = slice.len().min(bytes_max - data.len());
        data.extend_from_slice(&slice[..taken]);
    }
    data.freeze()
}

#[cfg(test)]
mod tests;
