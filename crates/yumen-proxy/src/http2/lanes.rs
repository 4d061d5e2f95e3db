//! Connections to endpoints that carry many requests at once, per worker.
//!
//! Knows how many streams each carries, and neither exchanges nor endpoints but by their key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Connection, ResponseFuture, SendRequest};
use http::Request;
use tokio::sync::Notify;
use yumen_snapshot::upstream::Keepalive;

use super::patience::Patience;
use super::wire::Wire;
use crate::buffer::Inbox;
use crate::clock;
use crate::stream::Stream;
use crate::task;
use crate::timers::Timer;
use crate::worker::Worker;

/// Streams one connection carries at once, where the endpoint does not allow fewer.
const STREAMS_MAX: usize = 100;

/// What the library has for the endpoint's limit before the endpoint has told it; no limit is so high.
pub(super) const UNTOLD: usize = usize::MAX - 1;

/// A connection that carries requests.
pub(crate) struct Lane {
    sender: RefCell<SendRequest<Bytes>>,
    streams: Cell<usize>,
    /// How many there may be: one until the endpoint has told its limit, so that none is refused.
    streams_max: Cell<usize>,
    /// Told when the endpoint has, or never will.
    settled: Rc<Notify>,
    requests: Cell<u64>,
    /// How many it carries in all.
    requests_max: u64,
    is_closed: Cell<bool>,
    /// When its driver looks whether it is still needed.
    timer: Timer,
}

/// A worker's connections of this kind, by endpoint.
#[derive(Default)]
pub(crate) struct Lanes {
    by_endpoint: RefCell<HashMap<u64, Group, foldhash::fast::RandomState>>,
}

#[derive(Default)]
struct Group {
    lanes: Vec<Rc<Lane>>,
    /// Set while one is being made, which all others who want one wait for.
    connecting: Option<Rc<Notify>>,
}

/// A request that was sent: its answer, and where its body goes.
pub(crate) type Asked = (ResponseFuture, SendStream<Bytes>);

/// A place on a connection; free again when dropped.
pub(crate) struct Occupied(Rc<Lane>);

/// What whoever wants to send a request does.
pub(crate) enum Way {
    /// Send it here.
    Lane(Occupied),
    /// Wait, then look again.
    Wait(Rc<Notify>),
    /// Connect; others wait for it.
    Connect(Connecting),
}

/// The duty to connect. Whoever waits looks again when it is dropped.
pub(crate) struct Connecting {
    lanes: Rc<Lanes>,
    key: u64,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut groups = self.lanes.by_endpoint.borrow_mut();
        if let Some(waiting) = groups.get_mut(&self.key).and_then(|group| group.connecting.take()) {
            waiting.notify_waiters();
        }
    }
}

impl Lanes {
    /// A place on a connection to an endpoint, if there is a free one.
    pub(crate) fn free(&self, key: u64, keep: &Keepalive) -> Option<Occupied> {
        self.by_endpoint.borrow().get(&key)?.free(keep)
    }

    /// The way to an endpoint.
    pub(crate) fn way(self: &Rc<Self>, key: u64, keep: &Keepalive) -> Way {
        let mut groups = self.by_endpoint.borrow_mut();
        let group = groups.entry(key).or_default();
        group.lanes.retain(|lane| lane.is_open(keep));
        if let Some(occupied) = group.free(keep) {
            return Way::Lane(occupied);
        }
        if let Some(lane) = group.lanes.iter().find(|lane| !lane.is_settled()) {
            return Way::Wait(lane.settled.clone());
        }
        if let Some(waiting) = &group.connecting {
            return Way::Wait(waiting.clone());
        }
        group.connecting = Some(Rc::default());
        Way::Connect(Connecting { lanes: self.clone(), key })
    }

    /// Forgets connections that are closed.
    pub(crate) fn sweep(&self) {
        self.by_endpoint.borrow_mut().retain(|_, group| {
            group.lanes.retain(|lane| !lane.is_closed.get());
            !group.lanes.is_empty() || group.connecting.is_some()
        });
    }

    /// Has those of an endpoint closed that carry nothing just now; says how many there are.
    pub(crate) fn close_idle(&self, key: u64) -> usize {
        let groups = self.by_endpoint.borrow();
        let lanes = groups.get(&key).into_iter().flat_map(|group| &group.lanes);
        let idle = lanes.filter(|lane| !lane.is_closed.get() && lane.streams.get() == 0);
        idle.inspect(|lane| lane.close()).count()
    }

    /// How many connections carry nothing just now.
    pub(crate) fn idle(&self) -> usize {
        let groups = self.by_endpoint.borrow();
        groups.values().flat_map(|group| &group.lanes).filter(|lane| lane.streams.get() == 0).count()
    }
}

impl Group {
    fn free(&self, keep: &Keepalive) -> Option<Occupied> {
        let lane = self.lanes.iter().find(|lane| lane.is_open(keep) && lane.has_room())?;
        Some(lane.occupy())
    }
}

impl Connecting {
    /// Speaks HTTP/2 on a new connection, keeps it for all and takes a place on it.
    pub(crate) async fn establish(
        self,
        worker: &Rc<Worker>,
        stream: Stream,
        keep: Keepalive,
    ) -> Result<Occupied, h2::Error> {
        let settings = &worker.settings.http2;
        let patience = Patience::new(settings.patience, 0, clock::now().mono_ms());
        let wire = Wire::new(stream, Inbox::default(), patience, worker.clone());
        let (sender, connection) = super::client_builder(&worker.settings).handshake(wire.clone()).await?;
        let lane = Rc::new(Lane {
            sender: RefCell::new(sender),
            streams: Cell::new(0),
            streams_max: Cell::new(UNTOLD),
            settled: Rc::default(),
            requests: Cell::new(0),
            requests_max: keep.requests,
            is_closed: Cell::new(false),
            timer: worker.timers.timer(),
        });
        let mut groups = self.lanes.by_endpoint.borrow_mut();
        groups.entry(self.key).or_default().lanes.push(lane.clone());
        drop(groups);
        let occupied = lane.occupy();
        let driver = Driver { lane, connection, wire, keep, stall_ms: worker.settings.send_timeout_ms };
        task::spawn(driver);
        Ok(occupied)
    }
}

impl Lane {
    fn is_open(&self, keep: &Keepalive) -> bool {
        !self.is_closed.get() && self.requests.get() < keep.requests
    }

    fn has_room(&self) -> bool {
        let streams_max = if self.is_settled() { self.streams_max.get().min(STREAMS_MAX) } else { 1 };
        self.streams.get() < streams_max
    }

    /// Whether the endpoint has told how many streams it allows.
    fn is_settled(&self) -> bool {
        self.streams_max.get() != UNTOLD
    }

    /// Notes what the endpoint allows by now.
    fn settle(&self) {
        let streams_max = self.sender.borrow().current_max_send_streams();
        if self.streams_max.replace(streams_max) != streams_max {
            self.settled.notify_waiters();
        }
    }

    /// Carries no more than it does now.
    fn retire(&self) {
        self.is_closed.set(true);
        self.settled.notify_waiters();
    }

    fn send(&self, request: Request<()>, is_whole: bool) -> Result<Asked, h2::Error> {
        let mut sender = self.sender.borrow_mut();
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => sender.send_request(request, is_whole),
            Poll::Ready(Err(error)) => {
                // Said goodbye to, broken, or out of numbers for streams: it will carry no other either.
                self.retire();
                Err(error)
            }
            // The endpoint allows fewer than it did. The library sends it when one of them has ended, but takes
            // no more than one from each sender.
            Poll::Pending => sender.clone().send_request(request, is_whole),
        }
    }

    /// Takes no more requests; its driver notices at once.
    fn close(&self) {
        self.is_closed.set(true);
        self.timer.set(1);
    }

    fn occupy(self: &Rc<Self>) -> Occupied {
        self.streams.set(self.streams.get() + 1);
        self.requests.set(self.requests.get() + 1);
        Occupied(self.clone())
    }
}

impl Occupied {
    /// Sends a request; `is_whole` says that its head is all there is of it.
    pub(crate) fn send(&self, request: Request<()>, is_whole: bool) -> Result<Asked, h2::Error> {
        self.0.send(request, is_whole)
    }

    /// Requests the connection carried before this one.
    pub(crate) fn requests_before(&self) -> u64 {
        self.0.requests.get() - 1
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        let Occupied(lane) = self;
        lane.streams.set(lane.streams.get() - 1);
        if lane.streams.get() == 0 && lane.requests.get() >= lane.requests_max {
            // Nobody else will find it, so nobody but its driver could end it, and that only when it had been idle.
            lane.close();
        }
    }
}

/// Moves a connection's frames until it ends or nobody needed it for long.
struct Driver {
    lane: Rc<Lane>,
    connection: Connection<Wire, Bytes>,
    wire: Wire,
    keep: Keepalive,
    stall_ms: u64,
}

impl Driver {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = Pin::new(&mut self.connection).poll(cx).is_ready();
        let sent = self.wire.poll_send(cx);
        if is_over || matches!(sent, Poll::Ready(Err(_))) || self.wire.inner().patience.is_over() {
            return Poll::Ready(());
        }
        self.lane.settle();
        // Idle or stalled: either way the deadline moves with each step that does something.
        self.lane.timer.set(if sent.is_pending() { self.stall_ms } else { self.keep.idle_timeout_ms });
        Poll::Pending
    }

    /// The deadline has passed: is that reason to end the connection?
    fn is_spent(&self) -> bool {
        self.wire.inner().is_sending() || self.lane.streams.get() == 0
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.lane.retire();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_due = self.lane.timer.is_over(cx) || self.lane.is_closed.get();
        if (is_due && self.is_spent()) || self.poll_step(cx).is_ready() {
            self.lane.retire();
            return Poll::Ready(());
        }
        // Registers for the deadline just set.
        if self.lane.timer.is_over(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
