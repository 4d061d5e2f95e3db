//! What the library reads a client's request streams from. It must not meet frames that it takes amiss: it takes
//! one of no data for the end of the body, and panics where a stream ended within one.
//!
//! All else goes through as it is.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};

use yumen_http::http3_frames::{Ended, Frames};

/// A connection, or what opens streams of it.
pub(crate) struct Quic<T>(T);

impl Quic<h3_quinn::Connection> {
    pub(crate) fn new(connection: quinn::Connection) -> Self {
        Quic(h3_quinn::Connection::new(connection))
    }
}

/// A request stream, or the half of one that receives.
pub(crate) struct Framed<S> {
    stream: S,
    id: StreamId,
    frames: Frames,
    /// What came and was not looked at.
    came: Bytes,
    /// It waits for more, and the library beneath can do nothing else as long.
    is_reading: bool,
}

/// A stream ended within a frame of data.
#[derive(Debug, thiserror::Error)]
#[error("the stream ended within a frame")]
pub(super) struct Cut;

type Both = h3_quinn::BidiStream<Bytes>;
type Sending = h3_quinn::SendStream<Bytes>;

impl<S: quic::RecvStream<Buf = Bytes>> Framed<S> {
    fn new(stream: S) -> Self {
        let id = stream.recv_id();
        Framed { stream, id, frames: Frames::default(), came: Bytes::new(), is_reading: false }
    }
}

impl<T> quic::OpenStreams<Bytes> for Quic<T>
where
    T: quic::OpenStreams<Bytes, BidiStream = Both, SendStream = Sending>,
{
    type BidiStream = Framed<Both>;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Framed<Both>, StreamErrorIncoming>> {
        self.0.poll_open_bidi(cx).map_ok(Framed::new)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        self.0.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0.close(code, reason);
    }
}

impl quic::Connection<Bytes> for Quic<h3_quinn::Connection> {
    type RecvStream = h3_quinn::RecvStream;
    type OpenStreams = Quic<h3_quinn::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<h3_quinn::RecvStream, ConnectionErrorIncoming>> {
        quic::Connection::<Bytes>::poll_accept_recv(&mut self.0, cx)
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Framed<Both>, ConnectionErrorIncoming>> {
        self.0.poll_accept_bidi(cx).map_ok(Framed::new)
    }

    fn opener(&self) -> Quic<h3_quinn::OpenStreams> {
        Quic(quic::Connection::<Bytes>::opener(&self.0))
    }
}

impl<S: quic::RecvStream<Buf = Bytes>> quic::RecvStream for Framed<S> {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            while !self.came.is_empty() {
                let passed = self.frames.pass(&mut self.came);
                if !passed.is_empty() {
                    return Poll::Ready(Ok(Some(passed)));
                }
            }
            let polled = self.stream.poll_data(cx);
            self.is_reading = polled.is_pending();
            match ready!(polled)? {
                Some(came) => self.came = came,
                None => {
                    return Poll::Ready(match self.frames.end() {
                        Ended::Told(rest) => Ok(Some(rest).filter(|rest| !rest.is_empty())),
                        Ended::Cut => Err(StreamErrorIncoming::Unknown(Box::new(Cut))),
                    });
                }
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        // Where it waits, dropping it says so.
        if !self.is_reading {
            self.stream.stop_sending(error_code);
        }
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

impl<S: quic::SendStream<Bytes>> quic::SendStream<Bytes> for Framed<S> {
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

impl quic::BidiStream<Bytes> for Framed<Both> {
    type SendStream = Sending;
    type RecvStream = Framed<h3_quinn::RecvStream>;

    fn split(self) -> (Sending, Framed<h3_quinn::RecvStream>) {
        let Framed { stream, id, frames, came, is_reading } = self;
        let (sender, receiver) = stream.split();
        (sender, Framed { stream: receiver, id, frames, came, is_reading })
    }
}
