//! Connections to endpoints that carry many requests at once, per worker.
//!
//! Knows how many streams each carries, and neither exchanges nor endpoints but by their key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
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

/// A connection that carries requests.
pub(crate) struct Lane {
    sender: SendRequest<Bytes>,
    streams: Cell<usize>,
    requests: Cell<u64>,
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
    /// The way to an endpoint.
    pub(crate) fn way(self: &Rc<Self>, key: u64, keep: &Keepalive) -> Way {
        let mut groups = self.by_endpoint.borrow_mut();
        let group = groups.entry(key).or_default();
        group.lanes.retain(|lane| !lane.is_closed.get() && lane.requests.get() < keep.requests);
        if let Some(lane) = group.lanes.iter().find(|lane| lane.has_room()) {
            return Way::Lane(lane.occupy());
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
        let (streams, requests) = (Cell::new(0), Cell::new(0));
        let timer = worker.timers.timer();
        let lane = Rc::new(Lane { sender, streams, requests, is_closed: Cell::new(false), timer });
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
    fn has_room(&self) -> bool {
        self.streams.get() < STREAMS_MAX.min(self.sender.current_max_send_streams())
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
    /// What sends a request over it.
    pub(crate) fn sender(&self) -> SendRequest<Bytes> {
        self.0.sender.clone()
    }

    /// Requests the connection carried before this one.
    pub(crate) fn requests_before(&self) -> u64 {
        self.0.requests.get() - 1
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
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
        // Idle or stalled: either way the deadline moves with each step that does something.
        self.lane.timer.set(if sent.is_pending() { self.stall_ms } else { self.keep.idle_timeout_ms });
        Poll::Pending
    }

    /// The deadline has passed: is that reason to end the connection?
    fn is_spent(&self) -> bool {
        self.wire.inner().is_sending() || self.lane.streams.get() == 0
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_due = self.lane.timer.is_over(cx) || self.lane.is_closed.get();
        if is_due && self.is_spent() {
            self.lane.is_closed.set(true);
            return Poll::Ready(());
        }
        let stepped = self.poll_step(cx);
        if stepped.is_ready() {
            self.lane.is_closed.set(true);
            return stepped;
        }
        // Registers for the deadline just set.
        if self.lane.timer.is_over(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
