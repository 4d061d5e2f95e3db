//! A multiplexed connection to an endpoint, and the permits for its streams.
//!
//! Owns the stream count and the timer of the driver. The driver and the pool are in `upstream/h2_pool.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use tokio::sync::Notify;
use yumen_snapshot::upstream::KeepaliveLimits;

use crate::fault::FaultKind;
use crate::fault::SharedFailure;
use crate::runtime::backlog::{SendQueue, StreamQueue};
use crate::runtime::timers::Timer;

/// Upper bound of streams on one connection; the endpoint may allow fewer.
pub(crate) const STREAMS_MAX: usize = 100;

/// Stream limit that the library reports before the endpoint's SETTINGS arrive. No real limit is as high.
pub(super) const LIMIT_UNKNOWN: usize = usize::MAX - 1;

/// A multiplexed connection to an endpoint.
pub(crate) struct H2Connection {
    sender: RefCell<SendRequest<Bytes>>,
    streams: Cell<usize>,
    /// Stream limit of the endpoint. Until SETTINGS arrive, one stream is used, so that the endpoint refuses
    /// none.
    streams_max: Cell<usize>,
    /// Notified when SETTINGS have arrived or cannot arrive any more.
    settled: Notify,
    /// Failure shared by all requests that wait for SETTINGS.
    pub(crate) failure: Rc<SharedFailure>,
    requests: Cell<u64>,
    /// Limit of requests over the life of the connection.
    requests_max: Cell<u64>,
    is_closed: Cell<bool>,
    /// Limit of idle connections to the endpoint.
    pub(crate) idle_max: usize,
    /// Bytes received from the endpoint.
    received_bytes: Cell<u64>,
    /// Body bytes that wait for the endpoint.
    queue: SendQueue,
    /// Time of the driver's next check whether the connection is needed.
    timer: Timer,
}

/// A sent request: its response, and the stream for its body.
pub(crate) type Asked = (ResponseFuture, SendStream<Bytes>);

/// Permit for one stream of a connection; released on drop.
pub(crate) struct StreamPermit {
    connection: Rc<H2Connection>,
    /// Bytes received from the endpoint before the permit was acquired.
    received_bytes: u64,
    /// Whether the endpoint currently allows no further stream.
    is_short: bool,
}

impl H2Connection {
    pub(crate) fn new(
        sender: SendRequest<Bytes>,
        keep: &KeepaliveLimits,
        queue: SendQueue,
        timer: Timer,
    ) -> Rc<H2Connection> {
        Rc::new(H2Connection {
            sender: RefCell::new(sender),
            streams: Cell::new(0),
            streams_max: Cell::new(LIMIT_UNKNOWN),
            settled: Notify::new(),
            failure: Rc::default(),
            requests: Cell::new(0),
            requests_max: Cell::new(keep.requests),
            is_closed: Cell::new(false),
            idle_max: keep.size as usize,
            received_bytes: Cell::new(0),
            queue,
            timer,
        })
    }

    /// Whether further requests are possible, now or later. `requests_max` is the current limit of the
    /// upstream.
    pub(crate) fn is_open(&self, requests_max: u64) -> bool {
        !self.is_closed.get() && self.requests.get() < requests_max.min(self.requests_max.get())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether no stream is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Whether a stream is free now.
    pub(crate) fn has_room(&self) -> bool {
        let streams_max = if self.has_settings() { self.room() } else { 1 };
        self.streams.get() < streams_max
    }

    /// Number of streams that may be open at once.
    pub(crate) fn room(&self) -> usize {
        self.streams_max.get().min(STREAMS_MAX)
    }

    /// Whether SETTINGS have arrived.
    pub(crate) fn has_settings(&self) -> bool {
        self.streams_max.get() != LIMIT_UNKNOWN
    }

    /// Waits for SETTINGS; fails if the connection is closed before they arrive.
    pub(crate) async fn settings_received(&self) -> Result<(), FaultKind> {
        self.settled.notified().await;
        if self.is_closed() && !self.has_settings() { Err(FaultKind::UpstreamClosed) } else { Ok(()) }
    }

    /// Records the current stream limit of the endpoint.
    pub(crate) fn note_settings(&self) {
        let streams_max = self.sender.borrow().current_max_send_streams();
        if self.streams_max.replace(streams_max) != streams_max {
            self.settled.notify_waiters();
        }
    }

    /// Records the number of bytes received so far.
    pub(crate) fn note_received(&self, received_bytes: u64) {
        self.received_bytes.set(received_bytes);
    }

    /// Closes the connection to new requests, and wakes those that wait for SETTINGS.
    pub(crate) fn retire(&self) {
        self.is_closed.set(true);
        self.settled.notify_waiters();
    }

    /// Closes the connection to new requests. The driver ends the connection once it is idle.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        // Wakes the driver, which is the only owner that can end the connection.
        self.timer.set(1);
    }

    /// Wakes the driver in `delay_ms` milliseconds.
    pub(crate) fn wake_driver_in(&self, delay_ms: u64) {
        self.timer.set(delay_ms);
    }

    /// Whether the driver is due. If not, registers its task.
    pub(crate) fn is_due(&self, cx: &mut Context<'_>) -> bool {
        self.timer.is_over(cx)
    }

    /// Closes the connection to new requests. It ends with its last stream.
    pub(crate) fn exhaust(&self) {
        self.requests_max.set(self.requests.get());
        self.close_where_spent();
    }

    fn close_where_spent(&self) {
        if self.is_idle() && self.requests.get() >= self.requests_max.get() {
            // The pool no longer offers the connection, and the driver would end it only after the idle
            // timeout.
            self.close();
        }
    }

    /// Acquires a stream; `None` if the connection turns out to be closed.
    pub(crate) fn acquire(self: &Rc<Self>) -> Option<StreamPermit> {
        // A query without registration: if the sender is not ready, `send` lets the library queue the
        // request.
        let is_short = match self.sender.borrow_mut().poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(_)) => {
                // GOAWAY, a broken connection, or no stream identifiers left: no other request can use it
                // either.
                self.retire();
                return None;
            }
            Poll::Pending => true,
        };
        self.streams.set(self.streams.get() + 1);
        self.requests.set(self.requests.get() + 1);
        Some(StreamPermit { connection: self.clone(), received_bytes: self.received_bytes.get(), is_short })
    }
}

impl StreamPermit {
    /// Share of the request in the send queue of the connection.
    pub(super) fn queue(&self) -> StreamQueue {
        self.connection.queue.stream()
    }

    /// Sends a request; must follow the acquisition of the permit. `is_whole` means that no body follows.
    pub(crate) fn send(&self, request: Request<()>, is_whole: bool) -> Result<Asked, h2::Error> {
        let mut sender = self.connection.sender.borrow_mut();
        if self.is_short {
            // The library sends the request when a stream has ended, but each sender queues only one.
            return sender.clone().send_request(request, is_whole);
        }
        sender.send_request(request, is_whole)
    }

    /// Requests that the connection carried before this one.
    pub(crate) fn requests_before(&self) -> u64 {
        self.connection.requests.get() - 1
    }

    /// Reports a response timeout. If no byte arrived on the connection since the permit was acquired, the
    /// connection takes no further requests.
    pub(crate) fn report_timeout(&self) {
        if self.connection.received_bytes.get() == self.received_bytes {
            self.connection.exhaust();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.streams.set(connection.streams.get() - 1);
        connection.close_where_spent();
    }
}
