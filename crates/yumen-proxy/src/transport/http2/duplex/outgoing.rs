//! The gateway's side of an HTTP/2 stream.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::Response;

use crate::runtime::backlog::StreamQueue;
use crate::runtime::buffer::gather;
use crate::transport::body::StreamWriteState;
use crate::transport::http2::heads;

/// State of the gateway's side.
pub(super) enum Http2Outgoing {
    /// The final response head was not sent.
    AwaitsHead(SendResponse<Bytes>),
    /// The head was sent.
    Body { stream: SendStream<Bytes>, state: StreamWriteState },
    /// The stream was reset before its head.
    Reset,
}

impl Http2Outgoing {
    /// The state after a head; `ends` means that it carried END_STREAM.
    pub(super) fn after_head(stream: SendStream<Bytes>, ends: bool) -> Http2Outgoing {
        let state = if ends { StreamWriteState::Finished } else { StreamWriteState::Open };
        Http2Outgoing::Body { stream, state }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Http2Outgoing::AwaitsHead(_) => false,
            Http2Outgoing::Body { state, .. } => *state == StreamWriteState::Finished,
            Http2Outgoing::Reset => true,
        }
    }

    /// Sends a response head, interim or final.
    pub(super) fn send_head(&mut self, head: Response<()>, ends: bool) -> io::Result<()> {
        let Http2Outgoing::AwaitsHead(respond) = self else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if head.status().is_informational() {
            return respond.send_informational(head).map_err(io::Error::other);
        }
        let stream = respond.send_response(head, ends).map_err(io::Error::other)?;
        *self = Http2Outgoing::after_head(stream, ends);
        Ok(())
    }

    pub(super) fn expect_end(&mut self) {
        if let Http2Outgoing::Body { state, .. } = self {
            state.expect_end();
        }
    }

    /// Sends as many bytes as the flow control window and the send queue allow.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        queue: &mut StreamQueue,
    ) -> Poll<io::Result<usize>> {
        let Http2Outgoing::Body { stream, state } = self else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let requested: usize = slices.iter().map(|slice| slice.len()).sum();
        let free = ready!(queue.poll_free(cx));
        // A window is reserved only with queue space at hand: the library would withhold it from other
        // streams.
        stream.reserve_capacity(requested);
        let mut room = stream.capacity();
        while room == 0 && requested > 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(Ok(more)) => room = more,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let data = gather(slices, requested.min(room).min(free));
        let count = data.len();
        // END_STREAM on the last bytes saves an empty DATA frame.
        let is_end = *state == StreamWriteState::LastWrite && count == requested;
        stream.send_data(queue.queue(data), is_end).map_err(io::Error::other)?;
        if is_end {
            *state = StreamWriteState::Finished;
        }
        Poll::Ready(Ok(count))
    }

    /// Ends the stream, with trailers if there are any, given as field lines.
    pub(super) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        let (stream, state) = match self {
            Http2Outgoing::AwaitsHead(_) => return Err(io::ErrorKind::NotConnected.into()),
            Http2Outgoing::Body { state: StreamWriteState::Finished, .. } | Http2Outgoing::Reset => {
                return Ok(());
            }
            Http2Outgoing::Body { stream, state } => (stream, state),
        };
        *state = StreamWriteState::Finished;
        if trailers.is_empty() {
            return stream.send_data(Bytes::new(), true).map_err(io::Error::other);
        }
        stream.send_trailers(heads::trailers(trailers)).map_err(io::Error::other)
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        match self {
            Http2Outgoing::AwaitsHead(respond) => {
                respond.send_reset(reason);
                *self = Http2Outgoing::Reset;
            }
            Http2Outgoing::Body { stream, state } => {
                stream.send_reset(reason);
                *state = StreamWriteState::Finished;
            }
            Http2Outgoing::Reset => {}
        }
    }

    /// Ready when the peer has reset the stream, or the connection was lost.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Http2Outgoing::AwaitsHead(respond) => respond.poll_reset(cx).map(drop),
            Http2Outgoing::Body { stream, .. } => stream.poll_reset(cx).map(drop),
            Http2Outgoing::Reset => Poll::Ready(()),
        }
    }
}
