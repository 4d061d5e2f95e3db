//! Ends bodies and connections that make no progress for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::{BoxError, Error};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connection_slots::BusySlot;

/// The client sent nothing of its body for too long.
#[derive(Debug)]
pub(crate) struct BodyStalled;

impl std::fmt::Display for BodyStalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body stalled")
    }
}

impl std::error::Error for BodyStalled {}

/// Bound on the time without progress.
struct StallTimeout {
    at_most: Duration,
    /// Runs while the operation is pending.
    end: Option<Pin<Box<Sleep>>>,
}

impl StallTimeout {
    fn new(at_most: Duration) -> StallTimeout {
        StallTimeout { at_most, end: None }
    }

    /// Passes `result` on; ready with `None` if it has been pending for too long.
    fn watch<T>(&mut self, result: Poll<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(value) = result {
            // Progress ends the period; the next pending operation starts another.
            self.end = None;
            return Poll::Ready(Some(value));
        }
        // Created only when something is pending: most reads and writes need no timer.
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(self.at_most)));
        ready!(end.as_mut().poll(cx));
        // The next poll starts a new period.
        end.as_mut().reset(Instant::now() + self.at_most);
        Poll::Ready(None)
    }
}

/// The body of a request; it fails if no data arrives for too long.
pub(super) struct StallGuardedBody {
    body: Incoming,
    patience: StallTimeout,
}

impl StallGuardedBody {
    pub(super) fn new(body: Incoming, at_most: Duration) -> StallGuardedBody {
        StallGuardedBody { body, patience: StallTimeout::new(at_most) }
    }
}

impl HttpBody for StallGuardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Polled first, so that data which is there counts even after the deadline.
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        Poll::Ready(match ready!(self.patience.watch(frame, cx)) {
            Some(frame) => frame.map(|read| read.map_err(BoxError::from)),
            None => Some(Err(BodyStalled.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response. The request counts as in flight until the body is dropped.
pub(super) struct TrackedBody {
    pub(super) body: Body,
    pub(super) _busy: BusySlot,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that fails if the client stops reading. Reads have other timeouts.
pub(super) struct StallGuardedStream<S> {
    stream: S,
    patience: StallTimeout,
}

impl<S> StallGuardedStream<S> {
    pub(super) fn new(stream: S, at_most: Duration) -> StallGuardedStream<S> {
        StallGuardedStream { stream, patience: StallTimeout::new(at_most) }
    }

    fn watch<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.patience
            .watch(result, cx)
            .map(|done| done.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuardedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // A flush waits for the client's window as a write does.
        self.watch(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(shut, cx)
    }
}
