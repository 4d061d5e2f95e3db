//! One HTTP/2 stream of either side, as a transport for body bytes. Heads and trailers use separate calls.
//!
//! A flow control window is reopened only as bytes are consumed, so the receive window bounds the buffered
//! bytes. Must not depend on exchanges.

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
use crate::fault::{Fault, FaultKind};
use crate::runtime::backlog::StreamQueue;
use crate::runtime::buffer::{Buffers, Inbox, gather};
use crate::runtime::timers::Timer;
use crate::settings::HeadLimits;

/// One HTTP/2 stream.
pub(crate) struct Http2Duplex {
    part: Http2Role,
    /// The peer's body, once its head was received.
    incoming: Option<RecvStream>,
    /// Received body bytes that are not consumed yet.
    waiting: Bytes,
    /// Trailers of the peer, as field lines.
    trailers: Vec<u8>,
    trailer_bytes_max: usize,
    has_ended: bool,
    /// The gateway's body, once its head was sent.
    outgoing: Option<SendStream<Bytes>>,
    /// Whether the next write ends the stream.
    is_last: bool,
    is_finished: bool,
    /// Whether the request asks for a tunnel (CONNECT).
    is_connect: bool,
    /// Whether the stream was upgraded: its bytes belong to a tunnel and not to a message.
    is_tunnel: bool,
    deadline: Option<Timer>,
}

/// Side of the gateway on the stream.
enum Http2Role {
    /// A client's request, and the stream's share of the connection's send queue.
    Server(SendResponse<Bytes>, StreamQueue),
    /// A request of the gateway; the response is set until its final head has arrived.
    Client { answer: Option<ResponseFuture>, occupied: StreamPermit, queue: Option<StreamQueue> },
}

/// Target of a response head: the limits, the request method, the head to fill.
pub(crate) type Answer<'a> = (&'a HeadLimits, Method, &'a mut ResponseHead);

impl Http2Duplex {
    /// Stream of a client's request.
    ///
    /// `is_connect` means that the request asks for a tunnel. The limits of the head apply to trailers too.
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

    /// Stream of a request that the gateway has sent. `is_whole` means that no body follows; the limits apply
    /// to the trailers of the response.
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

    /// Reports a response timeout to the connection, which may be dead.
    pub(crate) fn doubt(&self) {
        if let Http2Role::Client { occupied, .. } = &self.part {
            occupied.doubt();
        }
    }

    /// Received bytes that are not consumed yet.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        self.incoming.as_mut().map_or(0, |incoming| incoming.flow_control().used_capacity())
    }

    /// Whether the peer has ended its side and all its bytes were consumed.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Whether the gateway has ended its side.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether trailers followed the peer's body.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    /// Trailers of the peer, as field lines.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Moves at most `bytes_max` received bytes into the inbox; 0 is the end of the body.
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
                        // Without its trailers the message is incomplete: it is aborted, and nothing more is
                        // read.
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
            // Fails only for more bytes than were received.
            let _ = incoming.flow_control().release_capacity(count);
            self.has_ended |= incoming.is_end_stream();
        }
        Poll::Ready(Ok(count))
    }

    /// Marks the next write as the last.
    pub(crate) fn expect_end(&mut self) {
        self.is_last = true;
    }

    /// Sends as many bytes as the flow control window and the send queue allow.
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
        // A window is reserved only with queue space at hand: the library would withhold it from other
        // streams.
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

    /// Ends the gateway's side, with trailers if there are any, given as field lines.
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

    /// Resets the stream, so that the peer discards an incomplete message.
    pub(crate) fn reset(&mut self) {
        self.is_finished = true;
        // A tunnel that broke off ends with CANCEL (RFC 8441 §5).
        let reason = if self.is_tunnel { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
        match (&mut self.outgoing, &mut self.part) {
            (Some(outgoing), _) => outgoing.send_reset(reason),
            (None, Http2Role::Server(respond, _)) => respond.send_reset(reason),
            (None, Http2Role::Client { .. }) => {}
        }
    }

    /// Fault of a client that no longer waits: it reset the stream, its connection was lost, or its deadline
    /// has passed.
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

    /// Sets the deadline of the client for the whole response.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        self.deadline = Some(deadline);
    }

    /// Sends a response head, interim or final, given as HTTP/1 text. `ends` means that no body follows.
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

    /// Waits for the next response head, interim or final.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        (limits, asked, head): Answer<'_>,
    ) -> Poll<Result<(), Fault>> {
        let Http2Role::Client { answer: Some(answer), .. } = &mut self.part else {
            return Poll::Ready(Err(FaultKind::UpstreamClosed.into()));
        };
        // An error of the final head is ignored here, because the poll below returns it again.
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

/// Fault of a request without a response. The endpoint has not processed a refused stream, nor one beyond the
/// last stream of its GOAWAY (RFC 9113 §8.7), so those may be retried. Any other reset concerns this request
/// and not the age of the connection. The library resets streams whose response is malformed.
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
