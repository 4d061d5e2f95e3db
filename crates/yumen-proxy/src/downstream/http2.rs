//! Downstream HTTP/2 connection: turns its streams into exchanges and ends it with GOAWAY (RFC 9113 §6.8).
//!
//! Owns the frame budget, drain and timeouts of the connection. Must not depend on the serving of exchanges.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Connection as Library, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request};
use yumen_http::{HeadError, HttpVersion, RequestHead};

use super::shared;
use super::streams::{DrainStage, StreamGuard, StreamSet};
use crate::exchange::connection::{DownstreamConnection, DownstreamPeer};
use crate::exchange::serve;
use crate::fault::FaultKind;
use crate::runtime::backlog::SendQueue;
use crate::runtime::clock;
use crate::runtime::task;
use crate::runtime::timers::until;
use crate::transport::http2::{Http2Duplex, PREFACE_BYTES, heads, server_builder};
use crate::transport::http2_transport::{FrameBudget, Http2Transport};
use crate::transport::stream::TransportStream;
use crate::worker::Worker;

/// Time for the client to close after the gateway's last frame, in milliseconds.
const LINGER_MS: u64 = 1000;
/// Bytes that are discarded after the gateway's last frame.
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Serves a connection until it is closed.
pub(super) async fn run(conn: DownstreamConnection) {
    let DownstreamConnection { worker, peer, stream, inbox, timer } = conn;
    worker.counters.http2.connections.add(1);
    let patience = FrameBudget::new(worker.settings.http2.patience, PREFACE_BYTES, clock::now().mono_ms());
    let wire = Http2Transport::new(stream, inbox, patience, worker.buffers.clone());
    timer.set(worker.settings.timeouts.head_ms);
    let mut handshake = std::pin::pin!(server_builder(&worker.settings).handshake(wire.clone()));
    let shaking = poll_fn(|cx| {
        // The library writes into a buffer of `wire`; only `poll_send` writes to the socket.
        let polled = handshake.as_mut().poll(cx);
        // A failed write also fails the next read, which the library reports.
        let _ = wire.poll_send(cx);
        polled
    });
    let library = match until(&timer, std::pin::pin!(shaking)).await {
        Some(Ok(library)) => library,
        Some(Err(error)) => return note(&worker, &error),
        None => return worker.counters.http2.faults.add(1),
    };
    let streams = StreamSet::new(&worker, timer);
    let (stage, queue) = (DrainStage::Serving, worker.buffers.backlog.client_queue());
    let mut driver = Http2Driver {
        library,
        wire,
        worker,
        peer,
        streams,
        queue,
        stage,
        is_flooded: false,
        is_late: false,
        stalled_at: None,
    };
    poll_fn(|cx| driver.poll(cx)).await;
    driver.linger().await;
}

struct Http2Driver {
    library: Library<Http2Transport, Bytes>,
    wire: Http2Transport,
    worker: Rc<Worker>,
    peer: Rc<DownstreamPeer>,
    streams: Rc<StreamSet>,
    queue: SendQueue,
    stage: DrainStage,
    /// Whether the frame budget is exhausted and ENHANCE_YOUR_CALM was sent.
    is_flooded: bool,
    /// Whether a head timed out and ENHANCE_YOUR_CALM was sent.
    is_late: bool,
    /// Bytes sent when the client last stopped reading.
    stalled_at: Option<u64>,
}

impl Http2Driver {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.queue.is_over(cx) {
            // No GOAWAY: the client would not read it either.
            return Poll::Ready(());
        }
        let mut is_over = false;
        loop {
            match self.library.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.serve(request, respond),
                Poll::Ready(Some(Err(error))) => {
                    note(&self.worker, &error);
                    is_over = true;
                    break;
                }
                Poll::Ready(None) => {
                    is_over = true;
                    break;
                }
                Poll::Pending if self.floods() => {
                    self.worker.counters.http2.floods.add(1);
                    // The loop polls the library again, which writes the GOAWAY.
                    self.library.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Poll::Pending => break,
            }
        }
        // An abrupt shutdown has queued a GOAWAY with its own error code.
        let is_ending = is_over || self.is_flooded || self.is_late;
        if self.streams.should_leave(cx) && self.stage == DrainStage::Serving && !is_ending {
            self.leave();
        }
        let sent = self.wire.poll_send(cx);
        // Frames that are queued after the end, such as GOAWAY with its error code, are still sent.
        if matches!(sent, Poll::Ready(Err(_))) || (is_over && sent.is_ready()) {
            return Poll::Ready(());
        }
        self.wait(cx, sent.is_pending())
    }

    /// Whether the frame budget was exhausted since the last call.
    fn floods(&mut self) -> bool {
        let was_flooded = std::mem::replace(&mut self.is_flooded, self.wire.inner().patience.is_over());
        self.is_flooded && !was_flooded
    }

    /// Sends the first GOAWAY, if the transport is at a frame boundary.
    fn leave(&mut self) {
        if self.wire.announce_end() {
            self.stage = DrainStage::GoawaySent { goaway_ms: clock::now().mono_ms() };
        }
    }

    /// Checks the timers: send timeout, idle timeout, drain and head timeout.
    fn wait(&mut self, cx: &mut Context<'_>, is_stalled: bool) -> Poll<()> {
        let settings = &self.worker.settings;
        let now_ms = clock::now().mono_ms();
        let sent_bytes = self.wire.inner().sent_bytes;
        if !is_stalled {
            self.stalled_at = None;
        } else if self.stalled_at != Some(sent_bytes) {
            // Only bytes that the client took restart the send timeout; a wake-up does not.
            self.stalled_at = Some(sent_bytes);
            self.streams.timer.set(settings.timeouts.send_ms);
        }
        if is_stalled {
            // While the client does not read, the driver does not read from it: responses to its frames would
            // pile up.
            self.wire.inner().patience.wait_anew(now_ms);
            self.streams.hold();
            return if self.streams.timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending };
        }
        let idle_ms = self.streams.idle_ms(now_ms);
        let frees_capacity = self.streams.should_free_capacity(self.stage, now_ms);
        let left_ms = match self.stage {
            DrainStage::GoawaySent { goaway_ms } => self.streams.leave_ms(goaway_ms, 0, now_ms),
            _ if frees_capacity => 0,
            _ => settings.timeouts.idle_ms.saturating_sub(idle_ms),
        };
        if left_ms == 0 {
            match self.stage {
                DrainStage::Serving => self.leave(),
                // The library sends a PING and, after one round trip, the identifier of the last stream
                // (RFC 9113 §6.8).
                DrainStage::GoawaySent { .. } => {
                    self.stage = DrainStage::Ending;
                    self.library.graceful_shutdown();
                }
                DrainStage::Ending => return Poll::Ready(()),
            }
            self.streams.wait_anew(now_ms);
            cx.waker().wake_by_ref();
        }
        let left_ms = left_ms.min(self.head_left_ms(cx, now_ms));
        // A timer of 0 ms would be unset.
        self.streams.timer.set(left_ms.max(1));
        if self.streams.timer.is_over(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Time left for the rest of a head that has begun, in milliseconds. A later head ends the connection.
    fn head_left_ms(&mut self, cx: &mut Context<'_>, now_ms: u64) -> u64 {
        let Some(since_ms) = self.wire.inner().patience.unfinished_since_ms().filter(|_| !self.is_late)
        else {
            return u64::MAX;
        };
        let left_ms = self.worker.settings.timeouts.head_ms.saturating_sub(now_ms.saturating_sub(since_ms));
        if left_ms == 0 {
            self.is_late = true;
            serve::note_refused(&self.worker, &self.peer, HttpVersion::Http2, FaultKind::ClientTimeout);
            self.library.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            cx.waker().wake_by_ref();
        }
        left_ms
    }

    /// Reads the head of a stream and spawns a task that serves the exchange.
    fn serve(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let worker = self.worker.clone();
        let has_ended = request.body().is_end_stream();
        let mut head = worker.take_request();
        let limits = &worker.settings.limits.request_head;
        let read = heads::read_request(&request, has_ended, limits, &mut head)
            .inspect_err(|_| heads::note_refused(&request, limits, &mut head));
        let is_connect = request.method() == Method::CONNECT;
        let queue = self.queue.stream();
        let duplex = Http2Duplex::served(request.into_body(), respond, queue, is_connect, limits);
        let conn =
            DownstreamConnection::of(worker, self.peer.clone(), TransportStream::Http2(Box::new(duplex)));
        task::spawn(exchange(Box::new(conn), head, read, self.streams.enter()));
    }

    /// Shuts down the gateway's side and discards input: a close with unread data would destroy frames in
    /// flight.
    async fn linger(self) {
        drop(self.library);
        self.streams.timer.set(LINGER_MS);
        let mut read = 0;
        let mut room = vec![0; 4096];
        poll_fn(|cx| {
            let stream = &mut self.wire.inner().stream;
            let is_shut = stream.poll_shutdown(cx);
            if matches!(is_shut, Poll::Ready(Err(_))) {
                return Poll::Ready(());
            }
            loop {
                let mut buffer = tokio::io::ReadBuf::new(&mut room);
                match stream.poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => read += buffer.filled().len(),
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending if self.streams.timer.is_over(cx) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
                if read > LINGER_BYTES_MAX {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
}

/// Counts the reason of a failed connection. The library has flood limits of its own.
fn note(worker: &Worker, error: &h2::Error) {
    let counters = &worker.counters;
    match error.reason() {
        // A client that disconnects commits no protocol error.
        _ if error.is_io() => {}
        Some(Reason::ENHANCE_YOUR_CALM) if error.is_library() => counters.http2.floods.add(1),
        _ => counters.http2.faults.add(1),
    }
    tracing::debug!(%error, "http2 connection failed");
}

/// Serves one stream from behind its head to its end.
async fn exchange(
    conn: Box<DownstreamConnection>,
    head: Box<RequestHead>,
    read: Result<(), HeadError>,
    entered: StreamGuard,
) {
    let (mut conn, after) = shared::serve(conn, head, read).await;
    entered.note(after);
    if let TransportStream::Http2(duplex) = &mut conn.stream
        && !duplex.is_finished()
    {
        // Queued frames are sent first: a reset discards the send queue of the stream.
        tokio::task::yield_now().await;
        duplex.reset();
    }
}
