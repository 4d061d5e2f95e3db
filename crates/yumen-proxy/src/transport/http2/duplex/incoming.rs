//! The peer's side of an HTTP/2 stream.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;

use crate::runtime::buffer::{Buffers, Inbox};
use crate::transport::http2::heads;

/// State of the peer's side.
pub(super) enum Http2Incoming {
    /// The final response head has not arrived.
    AwaitsHead(ResponseFuture),
    Body(Http2Body),
    /// The message was aborted: its trailers exceed their limit. Nothing more is read.
    Aborted,
}

/// A body that the peer sends.
pub(super) struct Http2Body {
    stream: RecvStream,
    /// Received bytes that are not consumed yet.
    waiting: Bytes,
    state: Http2ReadState,
    trailer_bytes_max: usize,
}

/// State of a received body.
enum Http2ReadState {
    /// More data, or trailers, may arrive.
    Open,
    /// The peer has ended its side, with these trailers as field lines.
    Ended { trailers: Vec<u8> },
}

impl Http2Incoming {
    /// Received bytes that are not consumed yet.
    pub(super) fn unread_bytes(&mut self) -> usize {
        match self {
            Http2Incoming::Body(body) => body.stream.flow_control().used_capacity(),
            Http2Incoming::AwaitsHead(_) | Http2Incoming::Aborted => 0,
        }
    }

    /// Moves at most `bytes_max` received bytes into the inbox; 0 is the end of the body.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let Http2Incoming::Body(body) = self else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        ready!(body.poll_data(cx))?;
        if !body.waiting.is_empty() {
            return Poll::Ready(Ok(body.take_data(inbox, buffers, bytes_max)));
        }
        if body.has_excess_trailers() {
            // Without its trailers the message is incomplete.
            *self = Http2Incoming::Aborted;
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(0))
    }

    /// The trailers, once the peer has ended its side and all bytes were consumed.
    pub(super) fn end_trailers(&self) -> Option<&[u8]> {
        match self {
            Http2Incoming::Body(Http2Body { waiting, state: Http2ReadState::Ended { trailers }, .. })
                if waiting.is_empty() =>
            {
                Some(trailers)
            }
            _ => None,
        }
    }
}

impl Http2ReadState {
    /// The peer has ended its side with a DATA or HEADERS frame and without trailers.
    const PLAIN_END: Http2ReadState = Http2ReadState::Ended { trailers: Vec::new() };
}

impl Http2Body {
    pub(super) fn new(stream: RecvStream, trailer_bytes_max: usize) -> Http2Body {
        let has_ended = stream.is_end_stream();
        let state = if has_ended { Http2ReadState::PLAIN_END } else { Http2ReadState::Open };
        Http2Body { stream, waiting: Bytes::new(), state, trailer_bytes_max }
    }

    /// Ready when bytes wait or the body has ended.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting.is_empty() && matches!(self.state, Http2ReadState::Open) {
            match ready!(self.stream.poll_data(cx)) {
                Some(data) => self.waiting = data.map_err(io::Error::other)?,
                None => {
                    let trailers = ready!(self.stream.poll_trailers(cx)).map_err(io::Error::other)?;
                    let trailers = trailers.as_ref().map(heads::trailer_lines).unwrap_or_default();
                    self.state = Http2ReadState::Ended { trailers };
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn has_excess_trailers(&self) -> bool {
        let Http2ReadState::Ended { trailers } = &self.state else { return false };
        trailers.len() > self.trailer_bytes_max
    }

    /// Moves at most `bytes_max` waiting bytes into the inbox; returns their number.
    fn take_data(&mut self, inbox: &mut Inbox, buffers: &Buffers, bytes_max: usize) -> usize {
        let count = inbox.take_from(&mut self.waiting, buffers, bytes_max);
        // Fails only for more bytes than were received.
        let _ = self.stream.flow_control().release_capacity(count);
        if matches!(self.state, Http2ReadState::Open) && self.stream.is_end_stream() {
            self.state = Http2ReadState::PLAIN_END;
        }
        count
    }
}
