//! A connection to an endpoint that carries many requests at once, and the places on it.
//!
//! Knows how many streams it carries and when its driver shall look, not what that does, nor where it leads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use tokio::sync::Notify;
use yumen_snapshot::upstream::Keepalive;

use crate::backlog::{SendQueue, StreamQueue};
use crate::fault::Kind;
use crate::fault::SharedFailure;
use crate::timers::Timer;

/// Streams one connection carries at once, where the endpoint does not allow fewer.
pub(crate) const STREAMS_MAX: usize = 100;

/// What the library has for the endpoint's limit before the endpoint has told it; no limit is so high.
pub(super) const UNTOLD: usize = usize::MAX - 1;

/// A connection that carries requests.
pub(crate) struct H2Connection {
    sender: RefCell<SendRequest<Bytes>>,
    streams: Cell<usize>,
    /// How many there may be: one until the endpoint has told its limit, so that none is refused.
    streams_max: Cell<usize>,
    /// Told when the endpoint has, or never will.
    settled: Notify,
    /// That it settles for nobody.
    pub(crate) failure: Rc<SharedFailure>,
    requests: Cell<u64>,
    /// How many it carries in all.
    requests_max: Cell<u64>,
    is_closed: Cell<bool>,
    /// How many to its endpoint may idle beside it.
    pub(crate) idle_max: usize,
    /// Bytes received of the endpoint so far.
    heard_bytes: Cell<u64>,
    /// What the endpoint does not take of the bodies it is sent.
    queue: SendQueue,
    /// When its driver looks whether it is still needed.
    timer: Timer,
}

/// A request that was sent: its answer, and where its body goes.
pub(crate) type Asked = (ResponseFuture, SendStream<Bytes>);

/// A place on a connection; free again when dropped.
pub(crate) struct StreamPermit {
    lane: Rc<H2Connection>,
    /// What had been heard of the endpoint when it was taken.
    heard_bytes: u64,
    /// Whether the endpoint allows fewer streams than it did.
    is_short: bool,
}

impl H2Connection {
    pub(crate) fn new(
        sender: SendRequest<Bytes>,
        keep: &Keepalive,
        queue: SendQueue,
        timer: Timer,
    ) -> Rc<H2Connection> {
        Rc::new(H2Connection {
            sender: RefCell::new(sender),
            streams: Cell::new(0),
            streams_max: Cell::new(UNTOLD),
            settled: Notify::new(),
            failure: Rc::default(),
            requests: Cell::new(0),
            requests_max: Cell::new(keep.requests),
            is_closed: Cell::new(false),
            idle_max: keep.size as usize,
            heard_bytes: Cell::new(0),
            queue,
            timer,
        })
    }

    /// Whether it takes another request, now or later; `requests_max` is how many one may carry by now.
    pub(crate) fn is_open(&self, requests_max: u64) -> bool {
        !self.is_closed.get() && self.requests.get() < requests_max.min(self.requests_max.get())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether it carries nothing just now.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Whether it takes another request now.
    pub(crate) fn has_room(&self) -> bool {
        let streams_max = if self.is_settled() { self.room() } else { 1 };
        self.streams.get() < streams_max
    }

    /// How many streams it may carry at once.
    pub(crate) fn room(&self) -> usize {
        self.streams_max.get().min(STREAMS_MAX)
    }

    /// Whether the endpoint has told how many streams it allows.
    pub(crate) fn is_settled(&self) -> bool {
        self.streams_max.get() != UNTOLD
    }

    /// Returns once the endpoint has told how many streams it allows, or is known never to.
    pub(crate) async fn settled(&self) -> Result<(), Kind> {
        self.settled.notified().await;
        if self.is_closed() && !self.is_settled() { Err(Kind::UpstreamClosed) } else { Ok(()) }
    }

    /// Notes what the endpoint allows by now.
    pub(crate) fn settle(&self) {
        let streams_max = self.sender.borrow().current_max_send_streams();
        if self.streams_max.replace(streams_max) != streams_max {
            self.settled.notify_waiters();
        }
    }

    /// Notes how much was received of the endpoint by now.
    pub(crate) fn hear(&self, received_bytes: u64) {
        self.heard_bytes.set(received_bytes);
    }

    /// Takes no more requests, and tells those who wait for its limit.
    pub(crate) fn retire(&self) {
        self.is_closed.set(true);
        self.settled.notify_waiters();
    }

    /// Takes no more requests; its driver notices at once.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.timer.set(1);
    }

    /// Has its driver look in so many milliseconds.
    pub(crate) fn look_in(&self, delay_ms: u64) {
        self.timer.set(delay_ms);
    }

    /// Whether its driver is to look now; wakes it when.
    pub(crate) fn is_due(&self, cx: &mut Context<'_>) -> bool {
        self.timer.is_over(cx)
    }

    /// Carries no more than it has; ends with the last of it.
    pub(crate) fn exhaust(&self) {
        self.requests_max.set(self.requests.get());
        self.close_where_spent();
    }

    fn close_where_spent(&self) {
        if self.is_idle() && self.requests.get() >= self.requests_max.get() {
            // Nobody else will find it, so nobody but its driver could end it, and that only when it had been idle.
            self.close();
        }
    }

    /// Takes a place, unless it turns out that nothing more can be sent here.
    pub(crate) fn occupy(self: &Rc<Self>) -> Option<StreamPermit> {
        let is_short = match self.sender.borrow_mut().poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(_)) => {
                // Said goodbye to, broken, or out of numbers for streams: it will carry no other either.
                self.retire();
                return None;
            }
            Poll::Pending => true,
        };
        self.streams.set(self.streams.get() + 1);
        self.requests.set(self.requests.get() + 1);
        Some(StreamPermit { lane: self.clone(), heard_bytes: self.heard_bytes.get(), is_short })
    }
}

impl StreamPermit {
    /// Its request's part of what the endpoint does not take.
    pub(super) fn queue(&self) -> StreamQueue {
        self.lane.queue.stream()
    }

    /// Sends a request, at once after the place was taken; `is_whole` says that its head is all there is of it.
    pub(crate) fn send(&self, request: Request<()>, is_whole: bool) -> Result<Asked, h2::Error> {
        let mut sender = self.lane.sender.borrow_mut();
        if self.is_short {
            // The library sends it when one of them has ended, but takes no more than one from each sender.
            return sender.clone().send_request(request, is_whole);
        }
        sender.send_request(request, is_whole)
    }

    /// Requests the connection carried before this one.
    pub(crate) fn requests_before(&self) -> u64 {
        self.lane.requests.get() - 1
    }

    /// Its request got no answer in time: where the endpoint has said nothing at all meanwhile, whoever asks next
    /// asks on another connection.
    pub(crate) fn doubt(&self) {
        if self.lane.heard_bytes.get() == self.heard_bytes {
            self.lane.exhaust();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let lane = &self.lane;
        lane.streams.set(lane.streams.get() - 1);
        lane.close_where_spent();
    }
}
