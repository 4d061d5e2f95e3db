//! One HTTP/3 stream as a transport for body bytes. Heads and trailers use separate calls.
//!
//! A flow control window is reopened only as bytes are consumed, so the receive window bounds the buffered
//! bytes. Must not depend on exchanges.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::connection_error_creators::CloseStream;
use h3::error::internal_error::InternalConnectionError;
use h3::error::{Code, StreamError};
use h3::server::RequestStream;

use super::quic::{FilteredStream, TruncatedFrame};
use super::send_queue::Http3SendQueue;
use super::transport::QuicReceiveStream;
use crate::buffer::{Buffers, Inbox, gather};
use crate::fault::FaultKind;
use crate::http2::heads;
use crate::timers::Timer;

/// The library's receiving half of a stream.
pub(crate) type Receiver = RequestStream<FilteredStream<QuicReceiveStream>, Bytes>;

/// The stream of a client's request.
pub(crate) struct Http3Duplex {
    incoming: Receiver,
    /// Received body bytes that are not consumed yet.
    waiting: Bytes,
    /// Missing body bytes, if the head has a `Content-Length`.
    left_bytes: Option<u64>,
    /// Whether the request asks for a tunnel (CONNECT).
    is_connect: bool,
    trailers: Vec<u8>,
    /// Whether the body has ended, with or without trailers to come.
    has_data_ended: bool,
    has_ended: bool,
    /// Whether the client's side failed: reset, or body and `Content-Length` differ.
    is_torn: bool,
    outgoing: Rc<Http3SendQueue>,
    is_last: bool,
    is_finished: bool,
    /// Receive window of the stream, in bytes.
    window_bytes: usize,
    deadline: Option<Timer>,
}

impl Http3Duplex {
    /// Wraps a stream. `length` is its `Content-Length`, `is_connect` means that the request asks for a
    /// tunnel, `window_bytes` is the receive window.
    pub(crate) fn new(
        incoming: Receiver,
        outgoing: Rc<Http3SendQueue>,
        length: Option<u64>,
        is_connect: bool,
        window_bytes: usize,
    ) -> Http3Duplex {
        Http3Duplex {
            incoming,
            waiting: Bytes::new(),
            left_bytes: length,
            is_connect,
            trailers: Vec::new(),
            has_data_ended: false,
            has_ended: false,
            is_torn: false,
            outgoing,
            is_last: false,
            is_finished: false,
            window_bytes,
            deadline: None,
        }
    }

    /// Upper bound of unread bytes: the library does not report their number, so the window is assumed.
    pub(crate) fn unread_bytes(&self) -> usize {
        if self.has_data_ended { self.waiting.len() } else { self.window_bytes }
    }

    /// Whether the client has ended its side and all its bytes were consumed.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Whether the client's side failed.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Whether trailers followed the body.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    /// Trailers of the client, as field lines.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Ready when body bytes are available or the body has ended.
    ///
    /// Fails if the body differs from its `Content-Length` (RFC 9114 §4.1.2): the endpoint would otherwise
    /// read a wrong length.
    pub(crate) fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_torn {
            // The library must not be polled after an error.
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let polled = self.poll_body(cx);
        self.is_torn |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting.is_empty() && !self.has_ended {
            if self.has_data_ended {
                let trailers =
                    ready!(self.incoming.poll_recv_trailers(cx)).map_err(|error| self.failed(error))?;
                self.trailers = trailers.as_ref().map(heads::trailer_lines).unwrap_or_default();
                self.has_ended = true;
                continue;
            }
            let data = ready!(self.incoming.poll_recv_data(cx));
            let data = data.map(|data| data.map(|mut data| data.copy_to_bytes(data.remaining())));
            let data = data.map_err(|error| self.failed(error))?;
            let Some(data) = data else {
                if self.left_bytes.is_some_and(|left| left > 0) {
                    return Poll::Ready(Err(self.malformed()));
                }
                self.has_data_ended = true;
                continue;
            };
            if let Some(left) = &mut self.left_bytes {
                match left.checked_sub(data.len() as u64) {
                    Some(less) => *left = less,
                    None => return Poll::Ready(Err(self.malformed())),
                }
            }
            self.waiting = data;
        }
        Poll::Ready(Ok(()))
    }

    /// Records that body and `Content-Length` differ, so that the stream is reset with H3_MESSAGE_ERROR.
    #[cold]
    fn malformed(&self) -> io::Error {
        self.outgoing.set_malformed();
        io::ErrorKind::InvalidData.into()
    }

    /// A truncated frame is a connection error (RFC 9114 §7.1), which the library does not raise.
    #[cold]
    fn failed(&mut self, error: StreamError) -> io::Error {
        io::Error::other(match error {
            StreamError::Undefined(cause) if cause.is::<TruncatedFrame>() => {
                let error = InternalConnectionError::new(Code::H3_FRAME_ERROR, TruncatedFrame.to_string());
                self.incoming.handle_connection_error_on_stream(error)
            }
            error => error,
        })
    }

    /// Sends STOP_SENDING for the unread rest of the request (RFC 9114 §4.1).
    pub(crate) fn stop_incoming(&mut self) {
        if self.has_ended {
            return;
        }
        let is_answered = self.is_finished && !self.outgoing.is_malformed();
        self.incoming.stop_sending(if is_answered { Code::H3_NO_ERROR } else { self.outgoing.code() });
    }

    /// Moves at most `bytes_max` received bytes into the inbox; 0 is the end of the body.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_incoming(cx))?;
        if self.waiting.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let count = inbox.take_from(&mut self.waiting, buffers, bytes_max);
        // The end of the body is detected only by a further poll.
        if let Poll::Ready(Err(error)) = self.poll_incoming(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    /// Marks the next write as the last.
    pub(crate) fn expect_end(&mut self) {
        self.is_last = true;
    }

    /// Queues as many bytes as the send queue has capacity for.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let count = ready!(self.outgoing.poll_room(cx))?.min(wanted);
        if count > 0 {
            self.outgoing.send(gather(slices, count));
        }
        if self.is_last && count == wanted && !self.is_finished {
            self.is_finished = true;
            self.outgoing.end();
        }
        Poll::Ready(Ok(count))
    }

    /// Ends the gateway's side, with trailers if there are any, given as field lines.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        if !trailers.is_empty() {
            self.outgoing.send_trailers(heads::trailers(trailers));
        }
        self.outgoing.end();
        Ok(())
    }

    /// Queues a response head, interim or final, given as HTTP/1 text. `ends` means that no body follows.
    pub(crate) fn send_head(&mut self, text: &[u8], ends: bool) -> io::Result<()> {
        if self.outgoing.is_broken() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let head = heads::response(text, self.is_connect).ok_or(io::ErrorKind::InvalidData)?;
        let is_interim = head.status().is_informational();
        if heads::is_tunnel(text) {
            self.outgoing.carries_tunnel();
        }
        self.outgoing.send_head(head);
        if ends && !is_interim {
            self.is_finished = true;
            self.outgoing.end();
        }
        Ok(())
    }

    /// Fault of a client that no longer waits: it stopped reading, its connection was lost, or its deadline
    /// has passed.
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        if self.is_finished {
            return None;
        }
        if self.outgoing.is_broken() {
            return Some(FaultKind::ClientGone);
        }
        self.outgoing.wait(cx);
        self.deadline.as_ref().filter(|deadline| deadline.is_over(cx)).map(|_| FaultKind::Deadline)
    }

    /// Sets the deadline of the client for the whole response.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        self.deadline = Some(deadline);
    }
}

impl Drop for Http3Duplex {
    /// Resets an incomplete stream, also after a panic of the exchange.
    fn drop(&mut self) {
        if !self.is_finished {
            self.outgoing.give_up();
        }
    }
}
