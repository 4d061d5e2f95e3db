//! One HTTP/2 stream of either side, as a transport for body bytes. Heads and trailers use separate calls.
//!
//! A flow control window is reopened only as bytes are consumed, so the receive window bounds the buffered
//! bytes. Must not depend on exchanges.

mod incoming;
mod outgoing;

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
use crate::runtime::buffer::{Buffers, Inbox};
use crate::runtime::timers::Timer;
use crate::settings::HeadLimits;
use incoming::{Http2Body, Http2Incoming};
use outgoing::Http2Outgoing;

/// One HTTP/2 stream.
pub(crate) struct Http2Duplex {
    role: Http2Role,
    /// The peer's side.
    incoming: Http2Incoming,
    /// The gateway's side.
    outgoing: Http2Outgoing,
}

/// Side of the gateway on the stream.
enum Http2Role {
    /// A client's request.
    Server {
        /// The stream's share of the connection's send queue.
        queue: StreamQueue,
        purpose: StreamPurpose,
        /// Set by [`Http2Duplex::set_deadline`].
        deadline: Option<Timer>,
    },
    /// A request of the gateway.
    Client {
        permit: StreamPermit,
        /// As for a server, from the first body byte on.
        queue: Option<StreamQueue>,
    },
}

/// The meaning of the bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPurpose {
    /// The body of a message.
    Message,
    /// As `Message`, while the request asks for a tunnel (CONNECT).
    TunnelRequest,
    /// A tunnel, after the upgrade.
    Tunnel,
}

/// A response head to fill, and the rules for it.
pub(crate) struct ResponseHeadTarget<'a> {
    pub(crate) limits: &'a HeadLimits,
    /// The method of the request.
    pub(crate) method: Method,
    pub(crate) head: &'a mut ResponseHead,
}

impl Http2Duplex {
    /// Stream of a client's request.
    ///
    /// `is_connect` means that the request asks for a tunnel. The limits of the head apply to trailers too.
    pub(crate) fn served(
        incoming: RecvStream,
        respond: SendResponse<Bytes>,
        queue: StreamQueue,
        is_connect: bool,
        limits: &HeadLimits,
    ) -> Http2Duplex {
        let purpose = if is_connect { StreamPurpose::TunnelRequest } else { StreamPurpose::Message };
        Http2Duplex {
            role: Http2Role::Server { queue, purpose, deadline: None },
            incoming: Http2Incoming::Body(Http2Body::new(incoming, limits.head_bytes_max)),
            outgoing: Http2Outgoing::AwaitsHead(respond),
        }
    }

    /// Stream of a request that the gateway has sent. `is_whole` means that no body follows.
    pub(crate) fn client(
        response: ResponseFuture,
        outgoing: SendStream<Bytes>,
        is_whole: bool,
        permit: StreamPermit,
    ) -> Http2Duplex {
        Http2Duplex {
            role: Http2Role::Client { permit, queue: None },
            incoming: Http2Incoming::AwaitsHead(response),
            outgoing: Http2Outgoing::after_head(outgoing, is_whole),
        }
    }

    /// Reports a response timeout to the connection, which may be dead.
    pub(crate) fn report_timeout(&self) {
        if let Http2Role::Client { permit, .. } = &self.role {
            permit.report_timeout();
        }
    }

    /// Received bytes that are not consumed yet.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        self.incoming.unread_bytes()
    }

    /// The trailers of the peer, as field lines, once it has ended its side and all its bytes were consumed;
    /// empty if there are none.
    pub(crate) fn end_trailers(&self) -> Option<&[u8]> {
        self.incoming.end_trailers()
    }

    /// Whether the gateway has ended its side.
    pub(crate) fn is_finished(&self) -> bool {
        self.outgoing.is_finished()
    }

    /// Moves at most `bytes_max` received bytes into the inbox; 0 is the end of the body.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        self.incoming.poll_fill(cx, inbox, buffers, bytes_max)
    }

    /// Marks the next write as the last.
    pub(crate) fn expect_end(&mut self) {
        self.outgoing.expect_end();
    }

    /// Sends as many bytes as the flow control window and the send queue allow.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let queue = match &mut self.role {
            Http2Role::Server { queue, .. } => queue,
            Http2Role::Client { permit, queue } => queue.get_or_insert_with(|| permit.queue()),
        };
        self.outgoing.poll_write(cx, slices, queue)
    }

    /// Ends the gateway's side, with trailers if there are any, given as field lines.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        self.outgoing.finish(trailers)
    }

    /// Resets the stream, so that the peer discards an incomplete message.
    pub(crate) fn reset(&mut self) {
        // A tunnel that broke off ends with CANCEL (RFC 8441 §5).
        let reason = match &self.role {
            Http2Role::Server { purpose: StreamPurpose::Tunnel, .. } => Reason::CANCEL,
            _ => Reason::INTERNAL_ERROR,
        };
        self.outgoing.reset(reason);
    }

    /// Fault of a client that no longer waits: it reset the stream, its connection was lost, or its deadline
    /// has passed.
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        // After a complete response, a reset by the client changes nothing.
        if self.outgoing.is_finished() {
            return None;
        }
        if self.outgoing.poll_reset(cx).is_ready() {
            return Some(FaultKind::ClientGone);
        }
        let Http2Role::Server { deadline: Some(deadline), .. } = &self.role else { return None };
        deadline.is_over(cx).then_some(FaultKind::Deadline)
    }

    /// Sets the deadline of the client for the whole response.
    pub(crate) fn set_deadline(&mut self, timer: Timer) {
        if let Http2Role::Server { deadline, .. } = &mut self.role {
            *deadline = Some(timer);
        }
    }

    /// Sends a response head, interim or final, given as HTTP/1 text. `ends` means that no body follows.
    pub(crate) fn send_head(&mut self, text: &[u8], ends: bool) -> io::Result<()> {
        let Http2Role::Server { purpose, .. } = &mut self.role else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let is_connect = *purpose != StreamPurpose::Message;
        let head = heads::response(text, is_connect).ok_or(io::ErrorKind::InvalidData)?;
        if heads::is_tunnel(text) {
            *purpose = StreamPurpose::Tunnel;
        }
        self.outgoing.send_head(head, ends)
    }

    /// Waits for the next response head, interim or final. Its limits apply to trailers too.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        target: ResponseHeadTarget<'_>,
    ) -> Poll<Result<(), Fault>> {
        let Http2Incoming::AwaitsHead(response) = &mut self.incoming else {
            return Poll::Ready(Err(FaultKind::UpstreamClosed.into()));
        };
        // An error of the final head is ignored here, because the poll below returns it again.
        if let Some(Ok(interim)) = ready!(response.poll_informational(cx)) {
            return Poll::Ready(target.read(&interim, false));
        }
        let response = ready!(Pin::new(response).poll(cx)).map_err(|error| fault(&error))?;
        let has_ended = response.body().is_end_stream();
        let trailer_bytes_max = target.limits.head_bytes_max;
        let read = target.read(&response, has_ended);
        self.incoming = Http2Incoming::Body(Http2Body::new(response.into_body(), trailer_bytes_max));
        Poll::Ready(read)
    }
}

impl ResponseHeadTarget<'_> {
    fn read<T>(self, response: &http::Response<T>, has_ended: bool) -> Result<(), Fault> {
        let ResponseHeadTarget { limits, method, head } = self;
        let read = heads::read_response(response, has_ended, limits, method, head);
        read.map_err(|error| FaultKind::UpstreamHead(error).into())
    }
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
