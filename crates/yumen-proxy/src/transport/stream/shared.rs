//! Message heads, body ends and aborts, which differ between HTTP/2 or HTTP/3 streams and HTTP/1 connections.

use std::io;
use std::task::Context;

use yumen_http::Framing;

use super::TransportStream;
use crate::fault::FaultKind;
use crate::runtime::timers::Timer;
use crate::transport::body::{BodyDecoder, BodyEncoding};

/// The way in which a message head was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadSent {
    /// Not sent yet: the caller writes the head ahead of the body.
    InBand,
    /// Sent in a HEADERS frame.
    Separately,
}

impl TransportStream {
    /// Whether the stream shares its connection with other streams.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, TransportStream::Http2(_) | TransportStream::Http3(_))
    }

    /// Returns the framing by which a body on this stream ends.
    pub(crate) fn incoming(&self, framing: Framing) -> Framing {
        match framing {
            _ if !self.is_shared() => framing,
            Framing::None => Framing::None,
            // The length is reliable once the stream has ended without trailers. Otherwise the end of the
            // stream is the end of the body, and trailers may precede it.
            Framing::Length(length) if self.has_ended_plainly() => Framing::Length(length),
            _ => Framing::Close,
        }
    }

    /// Whether the peer has ended the stream without trailers.
    pub(crate) fn has_ended_plainly(&self) -> bool {
        self.end_trailers().is_some_and(<[u8]>::is_empty)
    }

    /// Returns the trailers of the peer, as field lines, once an HTTP/2 or HTTP/3 stream has ended and all its
    /// bytes were read; empty if there are none.
    fn end_trailers(&self) -> Option<&[u8]> {
        match self {
            TransportStream::Http2(duplex) => duplex.end_trailers(),
            TransportStream::Http3(duplex) => duplex.end_trailers(),
            _ => None,
        }
    }

    /// Sets the timer by which the client must have received its response.
    pub(crate) fn set_deadline(&mut self, deadline: Timer) {
        match self {
            TransportStream::Http2(duplex) => duplex.set_deadline(deadline),
            TransportStream::Http3(duplex) => duplex.set_deadline(deadline),
            _ => {}
        }
    }

    /// Returns the encoding of the end of a body written here; `chunked` selects the chunked coding on
    /// HTTP/1.
    pub(crate) fn ending(&self, chunked: bool) -> BodyEncoding {
        match self {
            TransportStream::Http2(_) | TransportStream::Http3(_) => BodyEncoding::Stream,
            _ if chunked => BodyEncoding::Chunk,
            _ => BodyEncoding::Known,
        }
    }

    /// Returns the decoder for the rest of a body that ends with the stream, or `None` before the end has
    /// arrived.
    ///
    /// `count` bytes were read last; `waiting` bytes are not decoded yet. The stream retains its trailers for
    /// a retry.
    pub(crate) fn end(&self, count: usize, waiting: usize) -> Option<BodyDecoder> {
        if !self.is_shared() {
            return (count == 0).then_some(BodyDecoder::Done);
        }
        let trailers = self.end_trailers()?;
        match waiting {
            0 if trailers.is_empty() => Some(BodyDecoder::Done),
            0 => Some(BodyDecoder::Trailers(trailers.to_vec())),
            waiting if trailers.is_empty() => Some(BodyDecoder::Length(waiting as u64)),
            // The trailers follow once the waiting bytes are consumed.
            _ => None,
        }
    }

    /// Announces that the next write is the last one.
    pub(crate) fn expect_end(&mut self) {
        match self {
            TransportStream::Http2(duplex) => duplex.expect_end(),
            TransportStream::Http3(duplex) => duplex.expect_end(),
            _ => {}
        }
    }

    /// Ends the stream, with the trailers if there are any.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        match self {
            TransportStream::Http2(duplex) => duplex.finish(trailers),
            TransportStream::Http3(duplex) => duplex.finish(trailers),
            _ => Ok(()),
        }
    }

    /// Sends a message head as a HEADERS frame. `ends` sets END_STREAM: no body follows.
    #[inline]
    pub(crate) fn send_head(&mut self, text: &[u8], ends: bool) -> io::Result<HeadSent> {
        match self {
            TransportStream::Http2(duplex) => duplex.send_head(text, ends)?,
            TransportStream::Http3(duplex) => duplex.send_head(text, ends)?,
            _ => return Ok(HeadSent::InBand),
        }
        Ok(HeadSent::Separately)
    }

    /// Marks a multiplexed connection as suspect after a request without a response in time.
    #[cold]
    pub(crate) fn report_timeout(&self) {
        if let TransportStream::Http2(duplex) = self {
            duplex.report_timeout();
        }
    }

    /// Returns the fault if the client has reset the stream. HTTP/1 connections detect that by reading.
    #[inline]
    pub(crate) fn client_gone(&mut self, cx: &mut Context<'_>) -> Option<FaultKind> {
        match self {
            TransportStream::Http2(duplex) => duplex.client_gone(cx),
            TransportStream::Http3(duplex) => duplex.client_gone(cx),
            _ => None,
        }
    }
}
