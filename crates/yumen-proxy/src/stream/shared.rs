//! What a stream of HTTP/2 or HTTP/3 does differently from a connection, and what a connection does in its place.

use std::io;
use std::task::Context;

use yumen_http::Framing;

use super::TransportStream;
use crate::body::{BodyDecoder, BodyEncoding};
use crate::fault::FaultKind;
use crate::timers::Timer;

/// How a message head leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadSent {
    /// Among the bytes of the stream. It is still to be written, in front of the body.
    InBand,
    /// In a HEADERS frame of its own, which was sent.
    Separately,
}

impl TransportStream {
    /// Whether it is one of many on its connection.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, TransportStream::Http2(_) | TransportStream::Http3(_))
    }

    /// How the end of a body with this framing is told when it is read from here.
    pub(crate) fn incoming(&self, framing: Framing) -> Framing {
        match framing {
            _ if !self.is_shared() => framing,
            Framing::None => Framing::None,
            // What has arrived whole has the length it has; else the stream's end is the body's, behind which trailers
            // may be.
            Framing::Length(length) if self.has_ended_plainly() => Framing::Length(length),
            _ => Framing::Close,
        }
    }

    /// Whether all the peer sends has come, and nothing behind the body.
    pub(crate) fn has_ended_plainly(&self) -> bool {
        match self {
            TransportStream::Http2(duplex) => duplex.has_ended() && !duplex.has_trailers(),
            TransportStream::Http3(duplex) => duplex.has_ended() && !duplex.has_trailers(),
            _ => false,
        }
    }

    /// How long a client waits for all of its answer.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        match self {
            TransportStream::Http2(duplex) => duplex.set_deadline(deadline),
            TransportStream::Http3(duplex) => duplex.set_deadline(deadline),
            _ => {}
        }
    }

    /// How the end of a body is told that is written here; `chunked` is how HTTP/1 would.
    pub(crate) fn ending(&self, chunked: bool) -> BodyEncoding {
        match self {
            TransportStream::Http2(_) | TransportStream::Http3(_) => BodyEncoding::Stream,
            _ if chunked => BodyEncoding::Chunk,
            _ => BodyEncoding::Known,
        }
    }

    /// What is left of a body that lasts to the end: `None` while nobody knows. `count` bytes were read
    /// last; `waiting` are not decoded yet. The stream keeps its trailers, for a body that is sent once more.
    pub(crate) fn end(&self, count: usize, waiting: usize) -> Option<BodyDecoder> {
        let trailers = match self {
            TransportStream::Http2(duplex) => duplex.has_ended().then(|| duplex.trailers()),
            TransportStream::Http3(duplex) => duplex.has_ended().then(|| duplex.trailers()),
            _ => return (count == 0).then_some(BodyDecoder::Done),
        }?;
        match waiting {
            0 if trailers.is_empty() => Some(BodyDecoder::Done),
            0 => Some(BodyDecoder::Trailers(trailers.to_vec())),
            waiting if trailers.is_empty() => Some(BodyDecoder::Length(waiting as u64)),
            // They are told when what waits before them has been taken.
            _ => None,
        }
    }

    /// The next bytes written are the last.
    pub(crate) fn expect_end(&mut self) {
        match self {
            TransportStream::Http2(duplex) => duplex.expect_end(),
            TransportStream::Http3(duplex) => duplex.expect_end(),
            _ => {}
        }
    }

    /// Ends a stream, with trailers if there are any.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        match self {
            TransportStream::Http2(duplex) => duplex.finish(trailers),
            TransportStream::Http3(duplex) => duplex.finish(trailers),
            _ => Ok(()),
        }
    }

    /// Sends a message head where heads do not go among the bytes. `ends` means that no body follows.
    #[inline]
    pub(crate) fn send_head(&mut self, text: &[u8], ends: bool) -> io::Result<HeadSent> {
        match self {
            TransportStream::Http2(duplex) => duplex.send_head(text, ends)?,
            TransportStream::Http3(duplex) => duplex.send_head(text, ends)?,
            _ => return Ok(HeadSent::InBand),
        }
        Ok(HeadSent::Separately)
    }

    /// Tells a connection that carries many requests that no answer to this one came in time.
    #[cold]
    pub(crate) fn doubt(&self) {
        if let TransportStream::Http2(duplex) = self {
            duplex.doubt();
        }
    }

    /// Why the peer waits no more, if so; a connection tells that only by what is read from it.
    #[inline]
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        match self {
            TransportStream::Http2(duplex) => duplex.client_gone(cx),
            TransportStream::Http3(duplex) => duplex.client_gone(cx),
            _ => None,
        }
    }
}
