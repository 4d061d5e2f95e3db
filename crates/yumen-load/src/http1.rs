//! HTTP/1.1 client under load: one request, one response, no pipelining. Independent of the schedule of
//! requests.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::alarm::AlarmTimer;
use crate::prepared::PreparedRequest;
use crate::response::ResponseReader;
use crate::stream::{CountedStream, IdleEvent, connect};
use crate::tally::{ErrorClass, RequestFailure};
use crate::worker::{LoadWorker, RequestLoop};

/// A connection with its response parser.
pub(crate) struct Http1Connection {
    pub(crate) stream: CountedStream,
    reader: ResponseReader,
    /// The response ended before the request was sent in full. The server would parse the next request as the
    /// rest of this one, so the connection cannot be reused.
    cut_short: bool,
}

/// Connections of one request loop, by origin, and its timer.
pub(crate) struct Http1Client {
    connections: Vec<Option<Http1Connection>>,
    pub(crate) timer: AlarmTimer,
    /// Number of connections so far, to rotate addresses and sources.
    number: usize,
}

impl Http1Client {
    pub(crate) fn new(worker: &Rc<LoadWorker>, number: usize) -> Self {
        let connections = worker.prepared.origins.iter().map(|_| None).collect();
        Self { connections, timer: worker.alarm.timer(), number }
    }

    /// Connects to every origin before the first request. Failures are repeated and counted at that request.
    pub(crate) async fn prepare(&mut self, worker: &Rc<LoadWorker>) {
        for origin in 0..self.connections.len() {
            let _ = self.ensure_connected(worker, origin).await;
        }
    }

    /// Sends one request and reads its response; returns the status.
    pub(crate) async fn exchange(
        &mut self,
        worker: &Rc<LoadWorker>,
        target: &PreparedRequest,
        request_loop: &RequestLoop,
    ) -> Result<u16, RequestFailure> {
        // Otherwise a close between two requests, which is allowed, would count as an error of this one.
        self.drop_stale(worker, target.origin).await?;
        let timeout_ns = worker.prepared.plan.response_timeout_ms * 1_000_000;
        // Taken out, so that every error below closes the connection.
        let mut connection = match self.connections[target.origin].take() {
            Some(connection) => connection,
            None => self.connect(worker, target.origin).await?,
        };
        // After connecting, whose time has its own histogram.
        let started = worker.clock.now_ns();
        self.timer.set(started + timeout_ns);
        connection.reader.restart();
        request_loop.sent_ns.set(Some(started));
        let mut written = 0;
        poll_fn(|cx| {
            let polled = connection.poll_exchange(cx, worker, &target.encoded, &mut written);
            // In this order: a response that is complete at the deadline counts.
            if polled.is_pending() && self.timer.is_over(cx) {
                return Poll::Ready(Err(timed_out(worker)));
            }
            polled
        })
        .await?;
        let status = connection.reader.status();
        // After a response to a partly sent request, the connection cannot be reused.
        if connection.reader.keep_alive() && !connection.cut_short && !worker.prepared.plan.new_connection {
            self.connections[target.origin] = Some(connection);
        }
        Ok(status)
    }

    /// Drops a connection that the server closed while idle.
    async fn drop_stale(&mut self, worker: &LoadWorker, origin: usize) -> Result<(), RequestFailure> {
        let Some(connection) = &mut self.connections[origin] else { return Ok(()) };
        let event = poll_fn(|cx| {
            Poll::Ready(match connection.stream.poll_idle_event(cx) {
                Poll::Ready(event) => Some(event),
                Poll::Pending => None,
            })
        });
        match event.await {
            None => return Ok(()),
            // The server may close an idle connection at any time (RFC 9112 §9.5).
            Some(IdleEvent::Closed) => worker.tally.borrow_mut().connections.closed_by_server += 1,
            Some(IdleEvent::Bytes) => {
                self.connections[origin] = None;
                return Err(RequestFailure::new(ErrorClass::Protocol, "bytes came before the request"));
            }
        }
        self.connections[origin] = None;
        Ok(())
    }

    /// Connects to the origin if there is no connection yet.
    pub(crate) async fn ensure_connected(
        &mut self,
        worker: &Rc<LoadWorker>,
        origin: usize,
    ) -> Result<(), RequestFailure> {
        if self.connections[origin].is_none() {
            self.connections[origin] = Some(self.connect(worker, origin).await?);
        }
        Ok(())
    }

    async fn connect(
        &mut self,
        worker: &Rc<LoadWorker>,
        origin: usize,
    ) -> Result<Http1Connection, RequestFailure> {
        let number = self.number;
        // Numbers stay distinct over all loops, so addresses and sources rotate evenly.
        self.number += worker.prepared.plan.connections;
        let stream = connect(worker, &worker.prepared.origins[origin], number, &self.timer).await?;
        Ok(Http1Connection {
            stream,
            reader: ResponseReader::new(worker.prepared.head_request),
            cut_short: false,
        })
    }

    /// Returns the open connection, if any.
    pub(crate) fn into_connection(mut self) -> Option<Http1Connection> {
        self.connections.iter_mut().find_map(Option::take)
    }
}

fn timed_out(worker: &LoadWorker) -> RequestFailure {
    let message = format!("no whole response within {} ms", worker.prepared.plan.response_timeout_ms);
    RequestFailure::new(ErrorClass::ResponseTimeout, message)
}

impl Http1Connection {
    /// Sends the rest of the request and reads the available part of the response.
    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        worker: &LoadWorker,
        request: &[u8],
        written: &mut usize,
    ) -> Poll<Result<(), RequestFailure>> {
        let whole = self.poll_request(cx, request, written);
        if let Poll::Ready(Err(error)) = whole {
            return Poll::Ready(Err(RequestFailure::new(ErrorClass::Write, error)));
        }
        // The response may arrive before the end of the request. Not reading it could deadlock both sides
        // once the socket buffers are full.
        let mut scratch = worker.scratch.borrow_mut();
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(RequestFailure::new(ErrorClass::Read, error)));
                }
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(self.ended()),
                Poll::Ready(Ok(())) => {}
            }
            if let Err(malformed) = self.reader.feed(buffer.filled()) {
                return Poll::Ready(Err(RequestFailure::new(ErrorClass::Protocol, malformed)));
            }
            if self.reader.is_done() {
                self.cut_short = whole.is_pending();
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        request: &[u8],
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *written < request.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &request[*written..]) {
                // Would repeat forever otherwise.
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => *written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn ended(&mut self) -> Result<(), RequestFailure> {
        match self.reader.finish() {
            true => Ok(()),
            false => {
                Err(RequestFailure::new(ErrorClass::Read, "the connection ended before the response did"))
            }
        }
    }
}
