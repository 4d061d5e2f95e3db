//! Send queue of one HTTP/3 stream: heads, data, trailers, end.
//!
//! The exchange fills the queue within its capacity. A task of the stream passes the parts to the library,
//! which sends them as the client's windows open. Must not depend on exchanges.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::RequestStream;
use http::{HeaderMap, Response};

use super::transport::QuicSendStream;
use crate::runtime::backlog::StreamQueue;
use crate::runtime::timers::Timer;

/// Capacity of a stream, in bytes of data.
const QUEUED_BYTES_MAX: usize = 64 * 1024;

/// The library's sending half of a stream.
type Sender = RequestStream<QuicSendStream, Bytes>;

enum OutgoingPart {
    Head(Response<()>),
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

/// Stage of the sending side of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendStage {
    Open,
    /// The stream is to be reset, because the response is incomplete.
    GivenUp,
    /// Nothing can be sent: the stream was reset, the client stopped reading, or its connection is lost.
    Broken,
}

/// The reason of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResetReason {
    /// The response is incomplete.
    Incomplete,
    /// The stream was upgraded, and its tunnel broke off.
    Tunnel,
    /// The request is malformed.
    Malformed,
}

/// Parts that wait to be sent on a stream.
pub(crate) struct Http3SendQueue {
    parts: RefCell<VecDeque<OutgoingPart>>,
    queued_bytes: Cell<usize>,
    /// Share of the stream in the connection's send queue.
    queue: StreamQueue,
    stage: Cell<SendStage>,
    /// The reason of a reset, should the stream end before its end was sent.
    reset_reason: Cell<ResetReason>,
    writer: RefCell<Option<Waker>>,
    sender: RefCell<Option<Waker>>,
}

impl Http3SendQueue {
    pub(crate) fn new(queue: StreamQueue) -> Http3SendQueue {
        Http3SendQueue {
            parts: RefCell::default(),
            queued_bytes: Cell::new(0),
            queue,
            stage: Cell::new(SendStage::Open),
            reset_reason: Cell::new(ResetReason::Incomplete),
            writer: RefCell::default(),
            sender: RefCell::default(),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.stage.get() == SendStage::Broken
    }

    pub(super) fn send_head(&self, head: Response<()>) {
        self.push(OutgoingPart::Head(head));
    }

    pub(super) fn send_trailers(&self, trailers: HeaderMap) {
        self.push(OutgoingPart::Trailers(trailers));
    }

    pub(super) fn end(&self) {
        self.push(OutgoingPart::End);
    }

    /// Records that the stream was upgraded: its bytes belong to a tunnel and not to a message.
    pub(super) fn mark_tunnel(&self) {
        if !self.is_malformed() {
            self.reset_reason.set(ResetReason::Tunnel);
        }
    }

    /// Records that the request is malformed, which takes precedence as the reason of a reset.
    pub(super) fn mark_malformed(&self) {
        self.reset_reason.set(ResetReason::Malformed);
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.reset_reason.get() == ResetReason::Malformed
    }

    /// Error code of a reset.
    pub(super) fn reset_code(&self) -> Code {
        match self.reset_reason.get() {
            ResetReason::Incomplete => Code::H3_INTERNAL_ERROR,
            // RFC 9220 §3.
            ResetReason::Tunnel => Code::H3_REQUEST_CANCELLED,
            // RFC 9114 §4.1.2.
            ResetReason::Malformed => Code::H3_MESSAGE_ERROR,
        }
    }

    /// Resets the stream, unless it is broken.
    pub(super) fn give_up(&self) {
        if self.stage.get() == SendStage::Open {
            self.stage.set(SendStage::GivenUp);
        }
        wake(&self.sender);
    }

    fn is_given_up(&self) -> bool {
        self.stage.get() == SendStage::GivenUp
    }

    /// Free capacity, in bytes; ready when there is some.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_broken() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match QUEUED_BYTES_MAX.saturating_sub(self.queued_bytes.get()) {
            0 => {
                self.wait(cx);
                Poll::Pending
            }
            room => {
                if let Poll::Ready(free) = self.queue.poll_free(cx) {
                    return Poll::Ready(Ok(room.min(free)));
                }
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    pub(super) fn send(&self, data: Bytes) {
        self.queued_bytes.set(self.queued_bytes.get() + data.len());
        self.push(OutgoingPart::Data(self.queue.queue(data)));
    }

    /// Wakes the exchange when capacity is free or the stream is broken.
    pub(super) fn wait(&self, cx: &mut Context<'_>) {
        *self.writer.borrow_mut() = Some(cx.waker().clone());
    }

    fn push(&self, part: OutgoingPart) {
        self.parts.borrow_mut().push_back(part);
        wake(&self.sender);
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<OutgoingPart>> {
        // A reset discards queued parts, so they are not sent first.
        if self.is_given_up() {
            return Poll::Ready(None);
        }
        if let Some(part) = self.parts.borrow_mut().pop_front() {
            return Poll::Ready(Some(part));
        }
        *self.sender.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn break_off(&self) {
        self.stage.set(SendStage::Broken);
        self.parts.borrow_mut().clear();
        wake(&self.writer);
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    let waker = waker.borrow_mut().take();
    waker.into_iter().for_each(Waker::wake);
}

/// Sends the parts of `outgoing` until the client has acknowledged all, the stream is given up, or the
/// connection is lost. A client may accept nothing for `stall_ms` milliseconds. `on_all_sent` is called when only
/// acknowledgements are missing.
pub(crate) async fn send_all(
    mut sender: Sender,
    outgoing: Rc<Http3SendQueue>,
    connection: quinn::Connection,
    timer: Timer,
    stall_ms: u64,
    on_sent: impl Fn(),
) {
    let mut lost = pin!(connection.closed());
    loop {
        let next = poll_fn(|cx| match lost.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => outgoing.poll_next(cx),
        });
        let Some(part) = next.await else { break };
        let (bytes, is_end) = match &part {
            OutgoingPart::Data(data) => (data.len(), false),
            part => (0, matches!(part, OutgoingPart::End)),
        };
        if is_end {
            on_sent();
        }
        let stall =
            SendStall { connection: &connection, timer: &timer, stall_ms, is_end, acknowledged: None };
        timer.set(stall_ms);
        let sent = step(&mut sender, part, &outgoing, stall).await;
        // No timeout runs while the queue is empty: the exchange has nothing to send.
        timer.set(0);
        if !matches!(sent, Some(Ok(()))) {
            break;
        }
        if is_end {
            return;
        }
        outgoing.queued_bytes.set(outgoing.queued_bytes.get() - bytes);
        wake(&outgoing.writer);
    }
    // A drop without a reset would end the stream like a complete response.
    sender.stop_stream(outgoing.reset_code());
    outgoing.break_off();
}

const SILENT_MS: u64 = 2000;
const SILENT_ROUND_TRIPS: u64 = 8;

/// Time after which a client that only has to acknowledge counts as lost, in milliseconds. A live client
/// sends an acknowledgement within one or two round trips, however slow its link.
pub(crate) fn silence_ms(connection: &quinn::Connection) -> u64 {
    SILENT_MS + SILENT_ROUND_TRIPS * connection.rtt().as_millis() as u64
}

/// Timeout of one part.
struct SendStall<'a> {
    connection: &'a quinn::Connection,
    timer: &'a Timer,
    stall_ms: u64,
    /// Whether the part is the end of the stream.
    is_end: bool,
    /// Number of acknowledgements at the last check, if that was at the end of the stream.
    acknowledged: Option<u64>,
}

impl SendStall<'_> {
    /// Whether the part timed out. At the end of a stream the library may hold more than a slow client can
    /// receive in `stall_ms`, so the wait continues while acknowledgements arrive.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while self.timer.is_over(cx) {
            let acknowledged = self.is_end.then(|| self.connection.stats().frame_rx.acks);
            if acknowledged == std::mem::replace(&mut self.acknowledged, acknowledged) {
                return true;
            }
            self.timer.set(silence_ms(self.connection).min(self.stall_ms));
        }
        false
    }
}

/// Sends one part; `None` if it timed out or the stream was given up.
async fn step(
    sender: &mut Sender,
    part: OutgoingPart,
    outgoing: &Http3SendQueue,
    mut stall: SendStall<'_>,
) -> Option<Result<(), StreamError>> {
    let mut sending = pin!(async {
        match part {
            OutgoingPart::Head(head) => sender.send_response(head).await,
            OutgoingPart::Data(data) => sender.send_data(data).await,
            OutgoingPart::Trailers(trailers) => sender.send_trailers(trailers).await,
            OutgoingPart::End => sender.finish().await,
        }
    });
    poll_fn(|cx| {
        if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
            return Poll::Ready(Some(sent));
        }
        if outgoing.is_given_up() || stall.is_over(cx) {
            return Poll::Ready(None);
        }
        // `give_up` wakes the sender.
        *outgoing.sender.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}
