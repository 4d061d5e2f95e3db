//! What is sent on one stream, in order: heads, data, trailers, an end.
//!
//! The exchange puts it here as far as there is room; a task of the stream's own gives it to the library, which
//! takes it as the client's windows open. Knows no exchange.

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
use crate::backlog::StreamQueue;
use crate::timers::Timer;

/// What a stream may hold for a client that does not take it.
const QUEUED_BYTES_MAX: usize = 64 * 1024;

/// The library's half of a stream that sends.
type Sender = RequestStream<QuicSendStream, Bytes>;

enum OutgoingPart {
    Head(Response<()>),
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

/// What waits to be sent on a stream.
pub(crate) struct Http3SendQueue {
    pieces: RefCell<VecDeque<OutgoingPart>>,
    queued_bytes: Cell<usize>,
    /// Its part of what the connection has queued.
    queue: StreamQueue,
    /// Nothing more can be sent: the client does not take it, or its connection is lost.
    is_broken: Cell<bool>,
    /// The client shall be told that what it got is not whole.
    is_given_up: Cell<bool>,
    /// The stream changed protocols: its bytes are no message's.
    is_tunnel: Cell<bool>,
    /// What came on the stream is no message.
    is_malformed: Cell<bool>,
    writer: RefCell<Option<Waker>>,
    sender: RefCell<Option<Waker>>,
}

impl Http3SendQueue {
    pub(crate) fn new(queue: StreamQueue) -> Http3SendQueue {
        Http3SendQueue {
            pieces: RefCell::default(),
            queued_bytes: Cell::new(0),
            queue,
            is_broken: Cell::new(false),
            is_given_up: Cell::new(false),
            is_tunnel: Cell::new(false),
            is_malformed: Cell::new(false),
            writer: RefCell::default(),
            sender: RefCell::default(),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
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

    pub(super) fn carries_tunnel(&self) {
        self.is_tunnel.set(true);
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.is_malformed.get()
    }

    pub(super) fn set_malformed(&self) {
        self.is_malformed.set(true);
    }

    /// How a stream is told that it is given up.
    pub(super) fn code(&self) -> Code {
        match self.is_tunnel.get() {
            // RFC 9114 §4.1.2.
            _ if self.is_malformed() => Code::H3_MESSAGE_ERROR,
            // How a connection that broke off is told (RFC 9220 §3).
            true => Code::H3_REQUEST_CANCELLED,
            false => Code::H3_INTERNAL_ERROR,
        }
    }

    pub(super) fn give_up(&self) {
        self.is_given_up.set(true);
        wake(&self.sender);
    }

    /// How many more bytes there is room for.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_broken.get() {
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

    /// Wakes the exchange when there is room again or nothing more can be sent.
    pub(super) fn wait(&self, cx: &mut Context<'_>) {
        *self.writer.borrow_mut() = Some(cx.waker().clone());
    }

    fn push(&self, piece: OutgoingPart) {
        self.pieces.borrow_mut().push_back(piece);
        wake(&self.sender);
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<OutgoingPart>> {
        if self.is_given_up.get() {
            return Poll::Ready(None);
        }
        if let Some(piece) = self.pieces.borrow_mut().pop_front() {
            return Poll::Ready(Some(piece));
        }
        *self.sender.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn break_off(&self) {
        self.is_broken.set(true);
        self.pieces.borrow_mut().clear();
        wake(&self.writer);
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    let waker = waker.borrow_mut().take();
    waker.into_iter().for_each(Waker::wake);
}

/// Sends what is put into `outgoing` until its client has acknowledged all, until it is given up or the connection is
/// lost; `stall_ms` is how long a client may take nothing. `said` is told when it has only to acknowledge the rest.
pub(crate) async fn send_all(
    mut sender: Sender,
    outgoing: Rc<Http3SendQueue>,
    connection: quinn::Connection,
    timer: Timer,
    stall_ms: u64,
    said: impl Fn(),
) {
    let mut lost = pin!(connection.closed());
    loop {
        let next = poll_fn(|cx| match lost.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => outgoing.poll_next(cx),
        });
        let Some(piece) = next.await else { break };
        let (bytes, is_end) = match &piece {
            OutgoingPart::Data(data) => (data.len(), false),
            piece => (0, matches!(piece, OutgoingPart::End)),
        };
        if is_end {
            said();
        }
        let stall = SendStall { connection: &connection, timer: &timer, stall_ms, is_end };
        timer.set(stall_ms);
        let sent = step(&mut sender, piece, &outgoing, stall).await;
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
    // Dropping it would tell the client that all has been said.
    sender.stop_stream(outgoing.code());
    outgoing.break_off();
}

const SILENT_MS: u64 = 2000;
const SILENT_ROUND_TRIPS: u64 = 8;

/// How long a client that has only to acknowledge the rest of its answers may acknowledge nothing until it is taken for
/// gone, in milliseconds: one that is there does so within a round trip or two, however slow its link.
pub(crate) fn silence_ms(connection: &quinn::Connection) -> u64 {
    SILENT_MS + SILENT_ROUND_TRIPS * connection.rtt().as_millis() as u64
}

/// How long is waited for a client that takes nothing.
struct SendStall<'a> {
    connection: &'a quinn::Connection,
    timer: &'a Timer,
    stall_ms: u64,
    /// All was said.
    is_end: bool,
}

impl SendStall<'_> {
    /// Whether it took too long. Where all was said the library holds more than many a client takes in that time, who
    /// is waited for anew as long as it acknowledges anything: `before` is how often it had when that was last looked at.
    fn is_over(&self, cx: &mut Context<'_>, before: &mut Option<u64>) -> bool {
        while self.timer.is_over(cx) {
            let now = self.is_end.then(|| self.connection.stats().frame_rx.acks);
            if now == std::mem::replace(before, now) {
                return true;
            }
            self.timer.set(silence_ms(self.connection).min(self.stall_ms));
        }
        false
    }
}

/// One piece; `None` where the client does not take it in time or the stream is given up.
async fn step(
    sender: &mut Sender,
    piece: OutgoingPart,
    outgoing: &Http3SendQueue,
    stall: SendStall<'_>,
) -> Option<Result<(), StreamError>> {
    let mut acknowledged = None;
    let mut sending = pin!(async {
        match piece {
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
        if outgoing.is_given_up.get() || stall.is_over(cx, &mut acknowledged) {
            return Poll::Ready(None);
        }
        *outgoing.sender.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}
