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
use crate::fault::FaultKind;
use crate::runtime::buffer::{Buffers, Inbox, gather};
use crate::runtime::timers::Timer;
use crate::transport::body::StreamWriteState;
use crate::transport::http2::heads;

/// The library's receiving half of a stream.
pub(crate) type Receiver = RequestStream<FilteredStream<QuicReceiveStream>, Bytes>;

/// The stream of a client's request.
pub(crate) struct Http3Duplex {
    incoming: Http3Incoming,
    outgoing: Rc<Http3SendQueue>,
    write_state: StreamWriteState,
    /// Whether the request asks for a tunnel (CONNECT).
    is_connect: bool,
    /// Receive window of the stream, in bytes.
    window_bytes: usize,
    deadline: Option<Timer>,
}

/// The client's side of a stream.
struct Http3Incoming {
    receiver: Receiver,
    /// Received body bytes that are not consumed yet.
    waiting: Bytes,
    state: Http3ReadState,
}

/// State of a received body.
enum Http3ReadState {
    /// More data may arrive: `left_bytes` if the head has a `Content-Length`.
    Data { left_bytes: Option<u64> },
    /// The data has ended; trailers may follow.
    AwaitsTrailers,
    /// The client has ended its side, with these trailers as field lines.
    Ended { trailers: Vec<u8> },
    /// The stream was reset, or body and `Content-Length` differ.
    Failed,
}

/// Reason that a body cannot be read further.
enum Http3ReadFailure {
    Stream(StreamError),
    /// Body and `Content-Length` differ.
    Length,
}

impl Http3Incoming {
    /// Ready when bytes wait or the body has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Http3ReadFailure>> {
        while self.waiting.is_empty() {
            match &mut self.state {
                Http3ReadState::Data { left_bytes } => {
                    let received = ready!(self.receiver.poll_recv_data(cx));
                    match received.map_err(Http3ReadFailure::Stream)? {
                        Some(mut data) => {
                            let data = data.copy_to_bytes(data.remaining());
                            if let Some(left) = left_bytes {
                                let less = left.checked_sub(data.len() as u64);
                                *left = less.ok_or(Http3ReadFailure::Length)?;
                            }
                            self.waiting = data;
                        }
                        None if left_bytes.is_some_and(|left| left > 0) => {
                            return Poll::Ready(Err(Http3ReadFailure::Length));
                        }
                        None => self.state = Http3ReadState::AwaitsTrailers,
                    }
                }
                Http3ReadState::AwaitsTrailers => {
                    let received = ready!(self.receiver.poll_recv_trailers(cx));
                    let trailers = received.map_err(Http3ReadFailure::Stream)?;
                    let trailers = trailers.as_ref().map(heads::trailer_lines).unwrap_or_default();
                    self.state = Http3ReadState::Ended { trailers };
                }
                Http3ReadState::Ended { .. } | Http3ReadState::Failed => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Http3Duplex {
    /// Wraps a stream. `length` is its `Content-Length`, `is_connect` means that the request asks for a
    /// tunnel, `window_bytes` is the receive window.
    pub(crate) fn new(
        receiver: Receiver,
        outgoing: Rc<Http3SendQueue>,
        length: Option<u64>,
        is_connect: bool,
        window_bytes: usize,
    ) -> Http3Duplex {
        let state = Http3ReadState::Data { left_bytes: length };
        Http3Duplex {
            incoming: Http3Incoming { receiver, waiting: Bytes::new(), state },
            outgoing,
            write_state: StreamWriteState::Open,
            is_connect,
            window_bytes,
            deadline: None,
        }
    }

    /// Upper bound of unread bytes: the library does not report their number, so the window is assumed.
    pub(crate) fn unread_bytes(&self) -> usize {
        match self.incoming.state {
            Http3ReadState::Data { .. } | Http3ReadState::Failed => self.window_bytes,
            Http3ReadState::AwaitsTrailers | Http3ReadState::Ended { .. } => self.incoming.waiting.len(),
        }
    }

    /// The trailers of the client, as field lines, once it has ended its side and all its bytes were consumed;
    /// empty if there are none.
    pub(crate) fn end_trailers(&self) -> Option<&[u8]> {
        match &self.incoming.state {
            Http3ReadState::Ended { trailers } if self.incoming.waiting.is_empty() => Some(trailers),
            _ => None,
        }
    }

    /// Whether the client's side failed.
    pub(crate) fn has_read_failed(&self) -> bool {
        matches!(self.incoming.state, Http3ReadState::Failed)
    }

    /// Ready when body bytes are available or the body has ended.
    ///
    /// Fails if the body differs from its `Content-Length` (RFC 9114 §4.1.2): the endpoint would otherwise
    /// read a wrong length.
    pub(crate) fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_read_failed() {
            // The library must not be polled after an error.
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let read = ready!(self.incoming.poll(cx));
        Poll::Ready(read.map_err(|failure| self.fail(failure)))
    }

    #[cold]
    fn fail(&mut self, failure: Http3ReadFailure) -> io::Error {
        self.incoming.state = Http3ReadState::Failed;
        match failure {
            Http3ReadFailure::Length => {
                self.outgoing.mark_malformed();
                io::ErrorKind::InvalidData.into()
            }
            // A truncated frame is a connection error (RFC 9114 §7.1), which the library does not raise.
            Http3ReadFailure::Stream(StreamError::Undefined(cause)) if cause.is::<TruncatedFrame>() => {
                let error = InternalConnectionError::new(Code::H3_FRAME_ERROR, TruncatedFrame.to_string());
                io::Error::other(self.incoming.receiver.handle_connection_error_on_stream(error))
            }
            Http3ReadFailure::Stream(error) => io::Error::other(error),
        }
    }

    /// Sends STOP_SENDING for the unread rest of the request (RFC 9114 §4.1).
    pub(crate) fn stop_incoming(&mut self) {
        if matches!(self.incoming.state, Http3ReadState::Ended { .. }) {
            return;
        }
        let is_answered = self.is_finished() && !self.outgoing.is_malformed();
        let code = if is_answered { Code::H3_NO_ERROR } else { self.outgoing.reset_code() };
        self.incoming.receiver.stop_sending(code);
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
        if self.incoming.waiting.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let count = inbox.take_from(&mut self.incoming.waiting, buffers, bytes_max);
        // The end of the body is detected only by a further poll.
        if let Poll::Ready(Err(error)) = self.poll_incoming(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    fn is_finished(&self) -> bool {
        self.write_state == StreamWriteState::Finished
    }

    /// Queues the end of the stream.
    fn end(&mut self) {
        self.write_state = StreamWriteState::Finished;
        self.outgoing.end();
    }

    /// Marks the next write as the last.
    pub(crate) fn expect_end(&mut self) {
        self.write_state.expect_end();
    }

    /// Queues as many bytes as the send queue has capacity for.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested: usize = slices.iter().map(|slice| slice.len()).sum();
        let count = ready!(self.outgoing.poll_room(cx))?.min(requested);
        if count > 0 {
            self.outgoing.send(gather(slices, count));
        }
        if self.write_state == StreamWriteState::LastWrite && count == requested {
            self.end();
        }
        Poll::Ready(Ok(count))
    }

    /// Ends the gateway's side, with trailers if there are any, given as field lines.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        if !trailers.is_empty() {
            self.outgoing.send_trailers(heads::trailers(trailers));
        }
        self.end();
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
            self.outgoing.mark_tunnel();
        }
        self.outgoing.send_head(head);
        if ends && !is_interim {
            self.end();
        }
        Ok(())
    }

    /// Fault of a client that no longer waits: it stopped reading, its connection was lost, or its deadline
    /// has passed.
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        if self.is_finished() {
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
        if !self.is_finished() {
            self.outgoing.give_up();
        }
    }
}
