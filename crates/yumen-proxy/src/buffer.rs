//! Read buffers, lent to connections only while bytes are waiting in them.
//!
//! A worker keeps a few large buffers. A connection takes one to read into and gives it back as
//! soon as what it read was consumed, so idle connections hold none.

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};

use crate::backlog::{BodyBacklog, READ_AHEAD_BYTES};

/// Size of a read buffer. Below 32 KiB large bodies cost a third more; above 64 KiB nothing is won.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// Size of a buffer for what a stream brought, where that is little: a worker may serve hundreds of streams at
/// once, most of them with messages of a few bytes.
const SMALL_BYTES: usize = READ_AHEAD_BYTES;

/// How many idle buffers a worker keeps.
const KEPT: usize = 32;
const SMALL_KEPT: usize = 256;

/// What is waiting in a parked inbox may not hold a whole buffer if it is at most this long.
const PARKED_BYTES_MAX: usize = 8 * 1024;

/// A worker's spare buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    spare: RefCell<Vec<Box<[u8]>>>,
    small: RefCell<Vec<Box<[u8]>>>,
    texts: RefCell<Vec<Vec<u8>>>,
    /// Bytes that wait for peers that do not take them.
    pub(crate) backlog: Rc<BodyBacklog>,
}

impl Buffers {
    /// Buffers of which at most so many bytes wait for peers that do not take them.
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
        let (kept, kept_max) = match buffer.len() {
            BUFFER_BYTES => (&self.spare, KEPT),
            SMALL_BYTES => (&self.small, SMALL_KEPT),
            _ => return,
        };
        let mut kept = kept.borrow_mut();
        if kept.len() < kept_max {
            kept.push(buffer);
        }
    }

    /// An empty vector for a head being written.
    pub(crate) fn take_text(&self) -> Vec<u8> {
        self.texts.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a vector's memory for the next head.
    pub(crate) fn put_text(&self, mut text: Vec<u8>) {
        let mut texts = self.texts.borrow_mut();
        if text.capacity() > 0 && text.capacity() <= 16 * 1024 && texts.len() < KEPT {
            text.clear();
            texts.push(text);
        }
    }
}

/// Bytes received and not yet consumed.
#[derive(Default)]
pub(crate) struct Inbox {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    /// How often bytes were added; tells whether a position remembered is still good.
    fills: u64,
}

/// A position in an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboxMark {
    start: usize,
    fills: u64,
}

impl Inbox {
    /// What is waiting.
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

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
    }

    /// Drops bytes from the end, down to so many.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    /// Gives the buffer back if nothing is waiting in it.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        if self.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            buffers.give(buffer);
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives up the large buffer while the connection waits: little that is waiting moves to memory
    /// of its own size.
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
        self.fills += 1;
    }

    /// Room behind what is waiting, for the next read; empty when the inbox is full.
    pub(crate) fn room(&mut self, buffers: &Buffers) -> &mut [u8] {
        self.fills += 1;
        if self.buffer.is_none() {
            (self.start, self.end) = (0, 0);
            return self.buffer.insert(buffers.take());
        }
        self.more_room(buffers)
    }

    /// Room for bytes that have come already, `count` of them or as many as fit.
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

    /// Moves in what waits elsewhere, as much as there is room for and at most so many bytes; says how much.
    pub(crate) fn take_from(&mut self, waiting: &mut Bytes, buffers: &Buffers, bytes_max: usize) -> usize {
        let wanted = waiting.len().min(bytes_max);
        let room = self.spare_capacity(wanted, buffers);
        let count = room.len().min(wanted);
        room[..count].copy_from_slice(&waiting[..count]);
        waiting.advance(count);
        self.filled(count);
        count
    }

    /// So many bytes were read into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// What would have been read went elsewhere: there is no going back to before it.
    pub(crate) fn mark_bypassed(&mut self) {
        self.fills += 1;
    }

    /// A position to go back to, as long as nothing is read in between. Without a buffer there is none that has
    /// one: what was at its front is gone.
    pub(crate) fn mark(&self) -> InboxMark {
        InboxMark { start: if self.buffer.is_some() { self.start } else { usize::MAX }, fills: self.fills }
    }

    /// Whether it is at a mark, or can go back to it.
    pub(crate) fn can_rewind(&self, mark: InboxMark) -> bool {
        self.mark() == mark || (mark.fills == self.fills && self.buffer.is_some())
    }

    /// Goes back to a mark; says whether it still could.
    pub(crate) fn rewind(&mut self, mark: InboxMark) -> bool {
        let can = self.can_rewind(mark);
        if can && self.buffer.is_some() {
            self.start = mark.start;
        }
        can
    }
}

/// The first bytes of the slices in one piece, at most so many.
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
