//! Frame filter between quinn streams and h3, for input that h3 handles wrongly: it takes an empty DATA frame
//! for the end of the body, panics when a stream ends within a DATA frame, and buffers other frames of any
//! length.
//!
//! All other calls pass through.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use yumen_http::http3_frames::{Http3FrameFilter, Http3FrameTooLong, Http3StreamEnd};

use super::transport::{QuicBidiStream, QuicReceiveStream, QuicSendStream, StreamAcceptor};

/// Allowance for QPACK, in bytes, above the size limit, which counts 32 bytes per field (RFC 9114 §4.2.2).
const ENCODING_BYTES: u64 = 1024;

/// An HTTP/3 connection whose request streams are filtered.
pub(crate) struct QuicConnection {
    opener: StreamOpener,
    acceptor: StreamAcceptor,
    /// Longest encoded field section, in bytes.
    section_bytes_max: u64,
}

impl QuicConnection {
    /// Wraps a connection. `field_section_size_max` is the limit before encoding, in bytes.
    pub(crate) fn new(connection: quinn::Connection, field_section_size_max: u64) -> Self {
        let section_bytes_max = field_section_size_max.saturating_add(ENCODING_BYTES);
        let acceptor = StreamAcceptor::new(connection.clone());
        let opener = StreamOpener(quic::Connection::<Bytes>::opener(&h3_quinn::Connection::new(connection)));
        QuicConnection { opener, acceptor, section_bytes_max }
    }
}

/// Opens the gateway's unidirectional streams.
#[derive(Clone)]
pub(crate) struct StreamOpener(h3_quinn::OpenStreams);

/// Whether the filter closed the connection because of an oversized frame.
pub(crate) fn is_too_long(error: &ConnectionError) -> bool {
    let ConnectionError::Remote(ConnectionErrorIncoming::Undefined(cause)) = error else { return false };
    cause.is::<Http3FrameTooLong>()
}

/// A filtered stream: a request stream, its receiving half, or a unidirectional stream of the client.
pub(crate) struct FilteredStream<S> {
    stream: S,
    id: StreamId,
    frames: Http3FrameFilter,
    /// Received bytes that the filter has not seen.
    input: Bytes,
}

/// The stream ended within a DATA frame.
#[derive(Debug, thiserror::Error)]
#[error("the stream ended within a frame")]
pub(super) struct TruncatedFrame;

/// A server opens no request streams (RFC 9114 §6.1).
#[derive(Debug, thiserror::Error)]
#[error("a server opens no request stream")]
struct ServerOpensNoRequests;

impl<S: quic::RecvStream<Buf = Bytes>> FilteredStream<S> {
    fn new(stream: S, frames: Http3FrameFilter) -> Self {
        let id = stream.recv_id();
        FilteredStream { stream, id, frames, input: Bytes::new() }
    }
}

/// An oversized head fails its stream, any other oversized frame the connection. The library returns either
/// error unchanged.
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
            .poll_unidirectional(cx)
            .map_ok(|stream| FilteredStream::new(stream, Http3FrameFilter::one_way()))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FilteredStream<QuicBidiStream>, ConnectionErrorIncoming>> {
        let frames = Http3FrameFilter::of_request(self.section_bytes_max);
        self.acceptor.poll_bidirectional(cx).map_ok(|stream| FilteredStream::new(stream, frames))
    }

    fn opener(&self) -> StreamOpener {
        self.opener.clone()
    }
}

impl<S: quic::RecvStream<Buf = Bytes>> quic::RecvStream for FilteredStream<S> {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            // The filter may withhold a whole chunk; then more input is needed.
            while !self.input.is_empty() {
                let output = self.frames.pass(&mut self.input).map_err(refused)?;
                if !output.is_empty() {
                    return Poll::Ready(Ok(Some(output)));
                }
            }
            match ready!(self.stream.poll_data(cx))? {
                Some(input) => self.input = input,
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
        let FilteredStream { stream, id, frames, input } = self;
        let (sender, receiver) = stream.split();
        (sender, FilteredStream { stream: receiver, id, frames, input })
    }
}
