//! Byte transport below the HTTP/2 library: sends frames of many streams together and detects floods.
//!
//! The library writes into a buffer and takes it for flushed. The driver sends the buffer once per turn,
//! after every ready stream was served. Reads frame heads only.

mod frame_budget;
mod frames;

use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::runtime::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::runtime::clock;
use crate::transport::stream::TransportStream;

pub(crate) use frame_budget::FrameBudget;

/// A GOAWAY without an error and with the highest stream identifier: refuses no stream yet (RFC 9113 §6.8).
const GRACEFUL_GOAWAY: [u8; 17] = *b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0";

/// Transport of a connection, shared by the library and the driver.
#[derive(Clone)]
pub(crate) struct Http2Transport(Rc<RefCell<Http2TransportState>>);

pub(crate) struct Http2TransportState {
    pub(crate) stream: TransportStream,
    /// Bytes received before the protocol was detected.
    early: Inbox,
    /// Frames to send, in a worker buffer that is held only while it contains any. A full buffer is sent
    /// before the end of the turn.
    pending: Option<Box<[u8]>>,
    pending_range: Range<usize>,
    /// End of the bytes for the next write: a reset is written separately from the end of a response before
    /// it.
    leaving_end: usize,
    /// Whether the last byte written ends a frame.
    is_between_frames: bool,
    buffers: Rc<Buffers>,
    /// Bytes that the socket accepted.
    pub(crate) sent_bytes: u64,
    /// Bytes that the socket delivered.
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

    /// Sends the buffered frames; ready when all are sent.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.borrow_mut();
        ready!(inner.poll_send(cx))?;
        inner.stream.poll_flush(cx)
    }

    /// Appends a GOAWAY that announces the drain. False if it must be tried again: a frame is half written,
    /// or the buffer is full.
    ///
    /// The library sends this GOAWAY together with a PING. A client that acknowledges the PING before it
    /// sends its pending requests would have those refused; the library behaves like that as a client.
    pub(crate) fn announce_end(&self) -> bool {
        let mut inner = self.0.borrow_mut();
        let has_room = BUFFER_BYTES - inner.pending_range.end >= GRACEFUL_GOAWAY.len();
        let may_write = inner.is_between_frames && has_room;
        if may_write {
            inner.append(&GRACEFUL_GOAWAY);
        }
        may_write
    }
}

impl Http2TransportState {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(pending) = &self.pending else { return Poll::Ready(Ok(())) };
        while !self.pending_range.is_empty() {
            // After a partial write the end stays: the budget counts each byte once.
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

    /// Buffers as many bytes as fit; returns their number.
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
            // The budget is exhausted: the driver sends GOAWAY, and nothing more is read.
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

    /// The library flushes after whole frames, so a GOAWAY may be inserted here.
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
