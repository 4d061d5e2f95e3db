//! Adapter from quinn streams to the stream traits of h3.
//!
//! A stream has finished here only when the client has acknowledged all its data. Must not depend on HTTP/3
//! frames.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, ReadError, StoppedError, VarInt, WriteError};

type Accepting<S> = Pin<Box<dyn Future<Output = Result<S, ConnectionError>>>>;

/// Accepts the streams that the client opens.
pub(super) struct StreamAcceptor {
    connection: quinn::Connection,
    /// Bidirectional streams, for requests.
    both_ways: Option<Accepting<(quinn::SendStream, quinn::RecvStream)>>,
    /// Unidirectional streams of the client.
    one_way: Option<Accepting<quinn::RecvStream>>,
}

impl StreamAcceptor {
    pub(super) fn new(connection: quinn::Connection) -> StreamAcceptor {
        StreamAcceptor { connection, both_ways: None, one_way: None }
    }

    pub(super) fn poll_bidirectional(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<QuicBidiStream, ConnectionErrorIncoming>> {
        let accept = |connection: quinn::Connection| async move { connection.accept_bi().await };
        let accepted = ready!(poll_accept(&mut self.both_ways, cx, &self.connection, accept));
        Poll::Ready(accepted.map_err(lost).map(|(sender, receiver)| QuicBidiStream {
            sender: QuicSendStream { stream: sender, writing: None, ending: None },
            receiver: QuicReceiveStream(receiver),
        }))
    }

    pub(super) fn poll_unidirectional(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<QuicReceiveStream, ConnectionErrorIncoming>> {
        let accept = |connection: quinn::Connection| async move { connection.accept_uni().await };
        let accepted = ready!(poll_accept(&mut self.one_way, cx, &self.connection, accept));
        Poll::Ready(accepted.map_err(lost).map(QuicReceiveStream))
    }
}

fn poll_accept<S, F: Future<Output = Result<S, ConnectionError>> + 'static>(
    accepting: &mut Option<Accepting<S>>,
    cx: &mut Context<'_>,
    connection: &quinn::Connection,
    accept: impl FnOnce(quinn::Connection) -> F,
) -> Poll<Result<S, ConnectionError>> {
    let polled = accepting.get_or_insert_with(|| Box::pin(accept(connection.clone())));
    let accepted = ready!(polled.as_mut().poll(cx));
    *accepting = None;
    Poll::Ready(accepted)
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(closed) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: closed.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn lost_with(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: lost(error) }
}

fn terminated(code: VarInt) -> StreamErrorIncoming {
    StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }
}

fn id(id: quinn::StreamId) -> StreamId {
    u64::from(id).try_into().expect("both libraries number streams as QUIC does")
}

/// Receiving half of a stream.
pub(crate) struct QuicReceiveStream(quinn::RecvStream);

impl quic::RecvStream for QuicReceiveStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        // A pending read may be dropped: the stream stores the waker.
        let read = ready!(pin!(self.0.read_chunk(usize::MAX, true)).poll(cx));
        Poll::Ready(read.map(|chunk| chunk.map(|chunk| chunk.bytes)).map_err(|error| match error {
            ReadError::Reset(code) => terminated(code),
            ReadError::ConnectionLost(error) => lost_with(error),
            error => StreamErrorIncoming::Unknown(Box::new(error)),
        }))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // Fails if the stream has ended meanwhile.
        let _ = self.0.stop(VarInt::from_u64(error_code).unwrap_or(VarInt::MAX));
    }

    fn recv_id(&self) -> StreamId {
        id(self.0.id())
    }
}

type Ended = Result<Option<VarInt>, StoppedError>;

/// Sending half of a stream.
pub(crate) struct QuicSendStream {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
    /// Set after the end was sent; completes when the client has acknowledged everything.
    ending: Option<Pin<Box<dyn Future<Output = Ended>>>>,
}

impl quic::SendStream<Bytes> for QuicSendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, data.chunk()));
            data.advance(written.map_err(|error| match error {
                WriteError::Stopped(code) => terminated(code),
                WriteError::ConnectionLost(error) => lost_with(error),
                error => StreamErrorIncoming::Unknown(Box::new(error)),
            })?);
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        debug_assert!(self.writing.is_none(), "the library waits until what it sent before is taken");
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if self.ending.is_none() {
            self.stream.finish().map_err(|error| StreamErrorIncoming::Unknown(Box::new(error)))?;
        }
        // `stopped` also completes, with `None`, when the client has acknowledged all data.
        let stream = &self.stream;
        let ending = self.ending.get_or_insert_with(|| Box::pin(stream.stopped()));
        Poll::Ready(match ready!(ending.as_mut().poll(cx)) {
            Ok(None) => Ok(()),
            Ok(Some(code)) => Err(terminated(code)),
            Err(StoppedError::ConnectionLost(error)) => Err(lost_with(error)),
            Err(error) => Err(StreamErrorIncoming::Unknown(Box::new(error))),
        })
    }

    fn reset(&mut self, reset_code: u64) {
        // Fails if the stream has ended or was reset before.
        let _ = self.stream.reset(VarInt::from_u64(reset_code).unwrap_or(VarInt::MAX));
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// A bidirectional stream before the split.
pub(crate) struct QuicBidiStream {
    sender: QuicSendStream,
    receiver: QuicReceiveStream,
}

impl quic::RecvStream for QuicBidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receiver.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receiver.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receiver.recv_id()
    }
}

impl quic::SendStream<Bytes> for QuicBidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sender.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.sender.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sender.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.sender.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.sender.send_id()
    }
}

impl quic::BidiStream<Bytes> for QuicBidiStream {
    type SendStream = QuicSendStream;
    type RecvStream = QuicReceiveStream;

    fn split(self) -> (QuicSendStream, QuicReceiveStream) {
        (self.sender, self.receiver)
    }
}
