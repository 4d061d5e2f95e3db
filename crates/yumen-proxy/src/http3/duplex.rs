//! One stream of an HTTP/3 connection as bytes in and bytes out: the bodies. Heads and trailers go beside them.
//!
//! The client's window is opened again only as bytes are taken, so what waits here is bounded by it. Knows
//! nothing of exchanges.

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

/// The library's half of a stream that receives.
pub(crate) type Receiver = RequestStream<FilteredStream<QuicReceiveStream>, Bytes>;

/// A stream that carries a client's request.
pub(crate) struct Http3Duplex {
    incoming: Receiver,
    /// What came of the body and was not taken.
    waiting: Bytes,
    /// What is still to come of it, where the head says how long it is.
    left_bytes: Option<u64>,
    /// It asks for a tunnel.
    is_connect: bool,
    trailers: Vec<u8>,
    /// The body is over, and its trailers are still to come.
    has_data_ended: bool,
    has_ended: bool,
    /// The client took the body back, or it was not what its head said.
    is_torn: bool,
    outgoing: Rc<Http3SendQueue>,
    is_last: bool,
    is_finished: bool,
    /// How much the client may send before it was taken.
    window_bytes: usize,
    deadline: Option<Timer>,
}

impl Http3Duplex {
    /// `length` is what the head says of the body's, `is_connect` that it asks for a tunnel, `window_bytes` how much the
    /// client may send before it was taken.
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

    /// The most that the client has sent and that was not taken: the library tells no number, so it is the window.
    pub(crate) fn unread_bytes(&self) -> usize {
        if self.has_data_ended { self.waiting.len() } else { self.window_bytes }
    }

    /// Whether the client has said all it has to say and all of it was taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Whether the client's part broke off.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Whether trailers came behind the body.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    /// The trailers that came behind the body.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Ready when something of the body waits or it has ended.
    ///
    /// The head's length is held against the body: an endpoint that believes the one must not get the other.
    pub(crate) fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_torn {
            // What the library failed in once, it is not asked for again.
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

    /// The body is not as long as its head says.
    #[cold]
    fn malformed(&self) -> io::Error {
        self.outgoing.set_malformed();
        io::ErrorKind::InvalidData.into()
    }

    /// A frame that was cut is the whole connection's fault (RFC 9114 §7.1), which the library does not see.
    #[cold]
    fn failed(&mut self, error: StreamError) -> io::Error {
        io::Error::other(match error {
            StreamError::Undefined(cause) if cause.is::<TruncatedFrame>() => {
                let told = InternalConnectionError::new(Code::H3_FRAME_ERROR, TruncatedFrame.to_string());
                self.incoming.handle_connection_error_on_stream(told)
            }
            error => error,
        })
    }

    /// Has the client stop sending what nobody will read, and says why (RFC 9114 §4.1).
    pub(crate) fn stop_incoming(&mut self) {
        if self.has_ended {
            return;
        }
        let is_answered = self.is_finished && !self.outgoing.is_malformed();
        self.incoming.stop_sending(if is_answered { Code::H3_NO_ERROR } else { self.outgoing.code() });
    }

    /// Takes what came into the inbox, at most so many bytes; 0 is the end.
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
        // Whether that was the end is known only by asking for more.
        if let Poll::Ready(Err(error)) = self.poll_incoming(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    /// Says that the next bytes written are the last.
    pub(crate) fn expect_end(&mut self) {
        self.is_last = true;
    }

    /// Takes as much as there is room for.
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

    /// Ends what we send, with trailers if there are any, given as field lines.
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

    /// Answers the client with a head of HTTP/1 text, interim or final; `ends` says that no body follows.
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

    /// Why the client waits no more, if so: it takes nothing more, its connection is lost, or the time it gave
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

    /// How long the client waits for all of its answer.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        self.deadline = Some(deadline);
    }
}

impl Drop for Http3Duplex {
    /// The client is told where what it got is not whole, also by an exchange that panicked.
    fn drop(&mut self) {
        if !self.is_finished {
            self.outgoing.give_up();
        }
    }
}
