//! The bytes of an HTTP/2 connection: frames of many streams leave together, and floods are noticed.
//!
//! The library writes into a buffer and believes it flushed; whoever drives the connection sends the
//! buffer once, when every stream that was ready has been served. Knows frames only to count them.

mod frame_budget;
mod frames;

use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::clock;
use crate::stream::TransportStream;

pub(crate) use frame_budget::FrameBudget;

/// A GOAWAY that takes nothing back: no error, and any stream may still be the last (RFC 9113 §6.8).
const GOODBYE: [u8; 17] = *b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0";

/// A connection's bytes, shared by the library and whoever drives the connection.
#[derive(Clone)]
pub(crate) struct Http2Transport(Rc<RefCell<Http2TransportState>>);

pub(crate) struct Http2TransportState {
    pub(crate) stream: TransportStream,
    /// Received before it was known that HTTP/2 is spoken.
    early: Inbox,
    /// Frames to send, in a buffer of the worker's that is held only while there are any. When it is full
    /// it is sent, whoever is still to be served.
    pending: Option<Box<[u8]>>,
    pending_range: Range<usize>,
    /// Where what leaves next ends in it: an answer's end and a reset behind it are not sent as one.
    leaving_end: usize,
    /// What is pending, or was sent, ends where a frame does.
    is_between_frames: bool,
    buffers: Rc<Buffers>,
    /// Bytes the socket took so far.
    pub(crate) sent_bytes: u64,
    /// Bytes the socket gave so far.
    pub(crate) received_bytes: u64,
    pub(crate) patience: FrameBudget,
}

impl Http2Transport {
    pub(crate) fn new(
        stream: TransportStream,
        early: Inbox,
        patience: FrameBudget,
        buffers: Rc<Buffers>,
    ) -> Http2Transport {
        Http2Transport(Rc::new(RefCell::new(Http2TransportState {
            stream,
            early,
            pending: None,
            pending_range: 0..0,
            leaving_end: 0,
            is_between_frames: true,
            buffers,
            sent_bytes: 0,
            received_bytes: 0,
            patience,
        })))
    }

    pub(crate) fn inner(&self) -> RefMut<'_, Http2TransportState> {
        self.0.borrow_mut()
    }

    /// Sends what is buffered; ready when all is gone.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.borrow_mut();
        ready!(inner.poll_send(cx))?;
        inner.stream.poll_flush(cx)
    }

    /// Tells the peer to ask elsewhere from now on. False where it is to be tried again: another frame is
    /// half written.
    ///
    /// The library says this and asks for a round trip in one go; a client that answers the latter before
    /// it sends what it had already asked would be refused (the library as a client does).
    pub(crate) fn announce_end(&self) -> bool {
        let mut inner = self.0.borrow_mut();
        let has_room = BUFFER_BYTES - inner.pending_range.end >= GOODBYE.len();
        let may_write = inner.is_between_frames && has_room;
        if may_write {
            inner.append(&GOODBYE);
        }
        may_write
    }
}

impl Http2TransportState {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(pending) = &self.pending else { return Poll::Ready(Ok(())) };
        while !self.pending_range.is_empty() {
            if self.pending_range.start == self.leaving_end {
                self.leaving_end += self.patience.send(&pending[self.pending_range.clone()]);
            }
            let leaving = &pending[self.pending_range.start..self.leaving_end];
            let sent = ready!(self.stream.poll_write(cx, &[IoSlice::new(leaving)]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending_range.start += sent;
            self.sent_bytes += sent as u64;
        }
        (self.pending_range, self.leaving_end) = (0..0, 0);
        self.pending.take().into_iter().for_each(|buffer| self.buffers.give(buffer));
        Poll::Ready(Ok(()))
    }

    fn poll_buffer(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.pending_range.end == BUFFER_BYTES {
            ready!(self.poll_send(cx))?;
        }
        self.is_between_frames = false;
        Poll::Ready(Ok(slices.iter().map(|slice| self.append(slice)).sum()))
    }

    /// Buffers as much as there is room for.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let buffer = self.pending.get_or_insert_with(|| self.buffers.take());
        let end = self.pending_range.end;
        let count = bytes.len().min(BUFFER_BYTES - end);
        buffer[end..end + count].copy_from_slice(&bytes[..count]);
        self.pending_range.end += count;
        count
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.patience.is_over() {
            // Its driver says goodbye; nothing more is listened to.
            return Poll::Pending;
        }
        let before = room.filled().len();
        if self.early.is_empty() {
            ready!(self.stream.poll_read(cx, room))?;
        } else {
            let count = self.early.len().min(room.remaining());
            room.put_slice(&self.early.bytes()[..count]);
            self.early.consume(count);
            self.early.release(&self.buffers);
        }
        self.received_bytes += (room.filled().len() - before) as u64;
        self.patience.received(&room.filled()[before..], clock::now().mono_ms());
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Http2Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_receive(cx, room)
    }
}

impl AsyncWrite for Http2Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_buffer(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Asked for when the library has written whole frames.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().is_between_frames = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }
}

#[cfg(test)]
mod tests;
