//! What the library reads a client's streams from. It must not meet frames that it takes amiss: it takes one of no
//! data for the end of the body, panics where a stream ended within one, and keeps any other frame as it comes until
//! all of it has, however long it says it is.
//!
//! All else goes through as it is.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use yumen_http::http3_frames::{Http3FrameFilter, Http3FrameTooLong, Http3StreamEnd};

use super::transport::{QuicBidiStream, QuicReceiveStream, QuicSendStream, StreamAcceptor};

/// What the encoding may add to a field section, whose size counts 32 bytes for each field (RFC 9114 §4.2.2).
const ENCODING_BYTES: u64 = 1024;

/// A connection.
pub(crate) struct QuicConnection {
    opener: StreamOpener,
    acceptor: StreamAcceptor,
    /// The longest head or trailers, as they are encoded.
    section_bytes_max: u64,
}

impl QuicConnection {
    /// Heads and trailers may be so large before they are encoded.
    pub(crate) fn new(connection: quinn::Connection, field_section_size_max: u64) -> Self {
        let section_bytes_max = field_section_size_max.saturating_add(ENCODING_BYTES);
        let acceptor = StreamAcceptor::new(connection.clone());
        let opener = StreamOpener(quic::Connection::<Bytes>::opener(&h3_quinn::Connection::new(connection)));
        QuicConnection { opener, acceptor, section_bytes_max }
    }
}

/// What opens streams of a connection.
#[derive(Clone)]
pub(crate) struct StreamOpener(h3_quinn::OpenStreams);

/// Whether a connection failed by a frame that is too long.
pub(crate) fn is_too_long(error: &ConnectionError) -> bool {
    let ConnectionError::Remote(ConnectionErrorIncoming::Undefined(cause)) = error else { return false };
    cause.is::<Http3FrameTooLong>()
}

/// A request stream, the half of one that receives, or a stream that only the client sends on.
pub(crate) struct FilteredStream<S> {
    stream: S,
    id: StreamId,
    frames: Http3FrameFilter,
    /// What came and was not looked at.
    came: Bytes,
}

/// A stream ended within a frame of data.
#[derive(Debug, thiserror::Error)]
#[error("the stream ended within a frame")]
pub(super) struct TruncatedFrame;

/// A server asks nothing: it opens no stream for that.
#[derive(Debug, thiserror::Error)]
#[error("a server opens no request stream")]
struct ServerOpensNoRequests;

impl<S: quic::RecvStream<Buf = Bytes>> FilteredStream<S> {
    fn new(stream: S, frames: Http3FrameFilter) -> Self {
        let id = stream.recv_id();
        FilteredStream { stream, id, frames, came: Bytes::new() }
    }
}

/// A head that is too long is its stream's fault, any other frame the connection's: the library hands on the error
/// of either as it is.
#[cold]
fn refused(why: Http3FrameTooLong) -> StreamErrorIncoming {
    match why {
        Http3FrameTooLong::Section => StreamErrorIncoming::Unknown(Box::new(why)),
        Http3FrameTooLong::Frame => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: ConnectionErrorIncoming::Undefined(Arc::new(why)),
        },
    }
}

impl quic::OpenStreams<Bytes> for QuicConnection {
    type BidiStream = FilteredStream<QuicBidiStream>;
    type SendStream = h3_quinn::SendStream<Bytes>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FilteredStream<QuicBidiStream>, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

impl quic::OpenStreams<Bytes> for StreamOpener {
    type BidiStream = FilteredStream<QuicBidiStream>;
    type SendStream = h3_quinn::SendStream<Bytes>;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<FilteredStream<QuicBidiStream>, StreamErrorIncoming>> {
        Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(ServerOpensNoRequests))))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.0.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        quic::OpenStreams::<Bytes>::close(&mut self.0, code, reason);
    }
}

impl quic::Connection<Bytes> for QuicConnection {
    type RecvStream = FilteredStream<QuicReceiveStream>;
    type OpenStreams = StreamOpener;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FilteredStream<QuicReceiveStream>, ConnectionErrorIncoming>> {
        self.acceptor
            .poll_one_way(cx)
            .map_ok(|stream| FilteredStream::new(stream, Http3FrameFilter::one_way()))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FilteredStream<QuicBidiStream>, ConnectionErrorIncoming>> {
        let frames = Http3FrameFilter::of_request(self.section_bytes_max);
        self.acceptor.poll_both_ways(cx).map_ok(|stream| FilteredStream::new(stream, frames))
    }

    fn opener(&self) -> StreamOpener {
        self.opener.clone()
    }
}

impl<S: quic::RecvStream<Buf = Bytes>> quic::RecvStream for FilteredStream<S> {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            while !self.came.is_empty() {
                let passed = self.frames.pass(&mut self.came).map_err(refused)?;
                if !passed.is_empty() {
                    return Poll::Ready(Ok(Some(passed)));
                }
            }
            match ready!(self.stream.poll_data(cx))? {
                Some(came) => self.came = came,
                None => {
                    return Poll::Ready(match self.frames.end() {
                        Http3StreamEnd::Clean(rest) => Ok(Some(rest).filter(|rest| !rest.is_empty())),
                        Http3StreamEnd::Truncated => {
                            Err(StreamErrorIncoming::Unknown(Box::new(TruncatedFrame)))
                        }
                    });
                }
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.stream.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

impl<S: quic::SendStream<Bytes>> quic::SendStream<Bytes> for FilteredStream<S> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.stream.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.stream.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.stream.send_id()
    }
}

impl quic::BidiStream<Bytes> for FilteredStream<QuicBidiStream> {
    type SendStream = QuicSendStream;
    type RecvStream = FilteredStream<QuicReceiveStream>;

    fn split(self) -> (QuicSendStream, FilteredStream<QuicReceiveStream>) {
        let FilteredStream { stream, id, frames, came } = self;
        let (sender, receiver) = stream.split();
        (sender, FilteredStream { stream: receiver, id, frames, came })
    }
}
