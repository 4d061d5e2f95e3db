//! One stream of an HTTP/2 connection, of either side, as bytes in and bytes out: the bodies. Heads and
//! trailers go beside them.
//!
//! Flow control is the peer's room for our bytes and ours for the peer's: a window is opened again only
//! as bytes are taken, so what waits here is bounded by the window. Knows nothing of exchanges.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use yumen_http::{HeadError, Method, ResponseHead};

use super::connection::StreamPermit;
use super::heads;
use crate::backlog::StreamQueue;
use crate::buffer::{Buffers, Inbox, gather};
use crate::fault::{Fault, FaultKind};
use crate::settings::HeadLimits;
use crate::timers::Timer;

/// A stream.
pub(crate) struct Http2Duplex {
    part: Http2Role,
    /// The peer's body, once its head is known.
    incoming: Option<RecvStream>,
    /// What came of it and was not taken.
    waiting: Bytes,
    /// Trailers that came behind it, as field lines.
    trailers: Vec<u8>,
    trailer_bytes_max: usize,
    has_ended: bool,
    /// Our body, once our head was sent.
    outgoing: Option<SendStream<Bytes>>,
    /// The next bytes sent are the last, and nothing follows them.
    is_last: bool,
    is_finished: bool,
    /// It asks for a tunnel.
    is_connect: bool,
    /// It changed protocols: its bytes are no message's.
    is_tunnel: bool,
    deadline: Option<Timer>,
}

/// Whose request it carries.
enum Http2Role {
    /// A client's, to be answered where its connection has room.
    Server(SendResponse<Bytes>, StreamQueue),
    /// Ours; the answer, as long as its head has not come.
    Client { answer: Option<ResponseFuture>, occupied: StreamPermit, queue: Option<StreamQueue> },
}

/// What stands at the head of an answer.
pub(crate) type Answer<'a> = (&'a HeadLimits, Method, &'a mut ResponseHead);

impl Http2Duplex {
    /// A client's request.
    ///
    /// `is_connect` says that it asks for a tunnel. Trailers are held to the limits of its head.
    pub(crate) fn served(
        incoming: RecvStream,
        (respond, queue): (SendResponse<Bytes>, StreamQueue),
        is_connect: bool,
        limits: &HeadLimits,
    ) -> Http2Duplex {
        let has_ended = incoming.is_end_stream();
        let duplex = Http2Duplex::new(Http2Role::Server(respond, queue), limits);
        Http2Duplex { incoming: Some(incoming), has_ended, is_connect, ..duplex }
    }

    /// A request of ours; `is_whole` says that its head is all there is of it. The trailers of the answer are held to
    /// these limits.
    pub(crate) fn asked(
        answer: ResponseFuture,
        outgoing: SendStream<Bytes>,
        is_whole: bool,
        occupied: StreamPermit,
        limits: &HeadLimits,
    ) -> Http2Duplex {
        let part = Http2Role::Client { answer: Some(answer), occupied, queue: None };
        Http2Duplex { outgoing: Some(outgoing), is_finished: is_whole, ..Http2Duplex::new(part, limits) }
    }

    fn new(part: Http2Role, limits: &HeadLimits) -> Http2Duplex {
        Http2Duplex {
            part,
            incoming: None,
            waiting: Bytes::new(),
            trailers: Vec::new(),
            trailer_bytes_max: limits.head_bytes_max,
            has_ended: false,
            outgoing: None,
            is_last: false,
            is_finished: false,
            is_connect: false,
            is_tunnel: false,
            deadline: None,
        }
    }

    /// Tells the connection that no answer came in time.
    pub(crate) fn doubt(&self) {
        if let Http2Role::Client { occupied, .. } = &self.part {
            occupied.doubt();
        }
    }

    /// Bytes that the peer has sent and that were not taken.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        self.incoming.as_mut().map_or(0, |incoming| incoming.flow_control().used_capacity())
    }

    /// Whether the peer has said all it has to say and all of it was taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Whether all was sent that there was to send.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether trailers came behind the peer's body.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    /// The trailers that came behind the peer's body.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Takes what came into the inbox, at most so many bytes; 0 is the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        while self.waiting.is_empty() {
            if self.has_ended {
                return Poll::Ready(Ok(0));
            }
            let Some(incoming) = &mut self.incoming else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            match ready!(incoming.poll_data(cx)) {
                Some(data) => self.waiting = data.map_err(io::Error::other)?,
                None => {
                    let trailers = ready!(incoming.poll_trailers(cx)).map_err(io::Error::other)?;
                    let trailers = trailers.as_ref().map(heads::trailer_lines).unwrap_or_default();
                    if trailers.len() > self.trailer_bytes_max {
                        // Without them the message is not what was sent: it breaks off, and is not read on.
                        self.incoming = None;
                        return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                    }
                    self.trailers = trailers;
                    self.has_ended = true;
                }
            }
        }
        let count = inbox.take_from(&mut self.waiting, buffers, bytes_max);
        if let Some(incoming) = &mut self.incoming {
            // It fails only for more than was received.
            let _ = incoming.flow_control().release_capacity(count);
            self.has_ended |= incoming.is_end_stream();
        }
        Poll::Ready(Ok(count))
    }

    /// Says that the next bytes written are the last.
    pub(crate) fn expect_end(&mut self) {
        self.is_last = true;
    }

    /// Sends as much as the peer has room for.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outgoing = self.outgoing.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let queue = match &mut self.part {
            Http2Role::Server(_, queue) => queue,
            Http2Role::Client { occupied, queue, .. } => queue.get_or_insert_with(|| occupied.queue()),
        };
        let free = ready!(queue.poll_free(cx));
        outgoing.reserve_capacity(wanted);
        let mut room = outgoing.capacity();
        while room == 0 && wanted > 0 {
            match ready!(outgoing.poll_capacity(cx)) {
                Some(Ok(more)) => room = more,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let data = gather(slices, wanted.min(room).min(free));
        let count = data.len();
        let data = queue.queue(data);
        let is_end = self.is_last && count == wanted;
        outgoing.send_data(data, is_end).map_err(io::Error::other)?;
        self.is_finished |= is_end;
        Poll::Ready(Ok(count))
    }

    /// Ends what we send, with trailers if there are any, given as field lines.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if self.is_finished {
            return Ok(());
        }
        let outgoing = self.outgoing.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.is_finished = true;
        if trailers.is_empty() {
            return outgoing.send_data(Bytes::new(), true).map_err(io::Error::other);
        }
        outgoing.send_trailers(heads::trailers(trailers)).map_err(io::Error::other)
    }

    /// Gives the stream up: the peer is told that what it got is not whole.
    pub(crate) fn reset(&mut self) {
        self.is_finished = true;
        // How a connection that broke off is told (RFC 8441 §5).
        let reason = if self.is_tunnel { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
        match (&mut self.outgoing, &mut self.part) {
            (Some(outgoing), _) => outgoing.send_reset(reason),
            (None, Http2Role::Server(respond, _)) => respond.send_reset(reason),
            (None, Http2Role::Client { .. }) => {}
        }
    }

    /// Why a client waits no more, if so: it took its request back, its connection is lost, or the time
    /// it gave has passed.
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        if self.is_finished {
            return None;
        }
        let reset = match (&mut self.outgoing, &mut self.part) {
            (Some(outgoing), _) => outgoing.poll_reset(cx).map(drop),
            (None, Http2Role::Server(respond, _)) => respond.poll_reset(cx).map(drop),
            (None, Http2Role::Client { .. }) => Poll::Pending,
        };
        if reset.is_ready() {
            return Some(FaultKind::ClientGone);
        }
        self.deadline.as_ref().filter(|deadline| deadline.is_over(cx)).map(|_| FaultKind::Deadline)
    }

    /// How long the client waits for all of its answer.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        self.deadline = Some(deadline);
    }

    /// Answers a client with a head of HTTP/1 text, interim or final; `ends` says that no body follows.
    pub(crate) fn send_head(&mut self, text: &[u8], ends: bool) -> io::Result<()> {
        let Http2Role::Server(respond, _) = &mut self.part else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let head = heads::response(text, self.is_connect).ok_or(io::ErrorKind::InvalidData)?;
        self.is_tunnel = heads::is_tunnel(text);
        if head.status().is_informational() {
            return respond.send_informational(head).map_err(io::Error::other);
        }
        self.outgoing = Some(respond.send_response(head, ends).map_err(io::Error::other)?);
        self.is_finished = ends;
        Ok(())
    }

    /// Waits for the next head of the answer, interim or final.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        (limits, asked, head): Answer<'_>,
    ) -> Poll<Result<(), Fault>> {
        let Http2Role::Client { answer: Some(answer), .. } = &mut self.part else {
            return Poll::Ready(Err(FaultKind::UpstreamClosed.into()));
        };
        // What it says of the final one it says again.
        if let Some(Ok(interim)) = ready!(answer.poll_informational(cx)) {
            return Poll::Ready(read_head(&interim, false, (limits, asked, head)));
        }
        let response = ready!(Pin::new(&mut *answer).poll(cx)).map_err(|error| fault(&error))?;
        self.part.answered();
        self.has_ended = response.body().is_end_stream();
        let read = read_head(&response, self.has_ended, (limits, asked, head));
        self.incoming = Some(response.into_body());
        Poll::Ready(read)
    }
}

impl Http2Role {
    fn answered(&mut self) {
        if let Http2Role::Client { answer, .. } = self {
            *answer = None;
        }
    }
}

fn read_head<T>(
    response: &http::Response<T>,
    has_ended: bool,
    (limits, asked, head): Answer<'_>,
) -> Result<(), Fault> {
    let read = heads::read_response(response, has_ended, limits, asked, head);
    read.map_err(|error| FaultKind::UpstreamHead(error).into())
}

/// What a request came to that was not answered. A stream that was refused, or is beyond what the
/// endpoint will still look at, was not acted on (RFC 9113 §8.7). One that was reset for another reason was: that is
/// about this request, and not about how old the connection is. The library resets those whose answer is none.
fn fault(error: &h2::Error) -> Fault {
    let is_reset = error.is_reset() && error.is_remote();
    let is_refused = is_reset && error.reason() == Some(Reason::REFUSED_STREAM);
    let is_beyond = error.is_go_away() && error.is_remote();
    let is_malformed = error.is_reset() && error.is_library();
    let kind = match is_reset && !is_refused {
        true => FaultKind::UpstreamReset,
        false if is_malformed => FaultKind::UpstreamHead(HeadError::Malformed("the head is malformed")),
        false => FaultKind::UpstreamClosed,
    };
    Fault { kind, unsent: is_refused || is_beyond }
}
