//! Multiplexed connections of a worker: HTTP/2 connections to endpoints, each of which carries many requests.
//!
//! Establishes and drives the connections and gives out their streams. Endpoints appear only as keys.
//! Independent of exchanges.

mod panic_watch;
mod pending;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::Connection;
use yumen_snapshot::upstream::KeepaliveLimits;

use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::runtime::buffer::Inbox;
use crate::runtime::clock;
use crate::runtime::task;
use crate::transport::http2::{H2Connection, PREFACE_BYTES, STREAMS_MAX, StreamPermit, client_builder};
use crate::transport::http2_transport::{FrameBudget, Http2Transport};
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::upstream::UpstreamClient;
use crate::upstream::pool::PoolKey;
use panic_watch::PanicWatch;
pub(crate) use pending::{ConnectTask, PendingConnect};

/// The most connections to one endpoint that are being established at once.
const PENDING_MAX: usize = 8;

/// The multiplexed connections of a worker, by endpoint.
#[derive(Default)]
pub(crate) struct H2ConnectionPool {
    by_endpoint: RefCell<HashMap<u64, Vec<ConnectionGroup>, foldhash::fast::RandomState>>,
}

/// Connections to one endpoint that can carry the same requests.
struct ConnectionGroup {
    tls_name: u64,
    connections: Vec<Rc<H2Connection>>,
    /// Connections that are being established.
    pending: Vec<Rc<PendingConnect>>,
}

/// The next step of a request that needs a stream.
pub(crate) enum StreamAcquisition {
    /// A connection has a free stream.
    Ready(StreamPermit),
    /// Wait until the endpoint has sent its SETTINGS on this connection, then try again.
    AwaitSettings(Rc<H2Connection>),
    /// Wait until this connection is established, then try again.
    AwaitConnect(Rc<PendingConnect>),
    /// Start to connect, then try again: other requests wait for the same connection.
    Connect(ConnectTask),
}

impl H2ConnectionPool {
    /// A stream on an open connection to an endpoint, if one has room.
    pub(crate) fn free(&self, key: PoolKey, keep: &KeepaliveLimits) -> Option<StreamPermit> {
        let by_endpoint = self.by_endpoint.borrow();
        let groups = by_endpoint.get(&key.endpoint())?;
        groups.iter().find(|group| group.tls_name == key.tls_name())?.free(keep)
    }

    /// The next step of a request that needs a stream and has `connect_ms` milliseconds to connect.
    pub(crate) fn acquire(
        self: &Rc<Self>,
        key: PoolKey,
        keep: &KeepaliveLimits,
        connect_ms: u64,
    ) -> StreamAcquisition {
        let mut by_endpoint = self.by_endpoint.borrow_mut();
        let group = find_or_add(by_endpoint.entry(key.endpoint()).or_default(), key);
        if let Some(occupied) = group.free(keep) {
            return StreamAcquisition::Ready(occupied);
        }
        group.connections.retain(|connection| {
            let is_open = connection.is_open(keep.requests);
            if !is_open {
                // No request can find the connection any more, so it closes after its last stream.
                connection.exhaust();
            }
            is_open
        });
        // Until SETTINGS arrive, the number of streams that the endpoint permits is unknown (RFC 9113
        // §6.5.2).
        if let Some(connection) = group.connections.iter().find(|connection| !connection.has_settings()) {
            return StreamAcquisition::AwaitSettings(connection.clone());
        }
        let room = group.room_expected();
        if let Some(pending) = group.pending.iter().find(|pending| pending.claim(room, connect_ms)) {
            return StreamAcquisition::AwaitConnect(pending.clone());
        }
        // At the limit, requests wait for the last pending connection, whatever its expected number of
        // streams.
        if let Some(pending) = group.pending.get(PENDING_MAX - 1) {
            pending.extend(connect_ms);
            return StreamAcquisition::AwaitConnect(pending.clone());
        }
        let pending = Rc::new(PendingConnect::new(connect_ms));
        group.pending.push(pending.clone());
        StreamAcquisition::Connect(ConnectTask { pool: self.clone(), key, pending })
    }

    /// Removes a connection that is no longer being established.
    fn forget(&self, key: PoolKey, pending: &Rc<PendingConnect>) {
        let mut by_endpoint = self.by_endpoint.borrow_mut();
        let Some(groups) = by_endpoint.get_mut(&key.endpoint()) else { return };
        if let Some(group) = find(groups, key) {
            group.pending.retain(|one| !Rc::ptr_eq(one, pending));
        }
        // Clients choose TLS names: names without a connection must leave nothing behind.
        groups.retain(ConnectionGroup::is_of_use);
    }

    /// Starts HTTP/2 on a new connection and adds it to the pool.
    async fn establish(
        &self,
        key: PoolKey,
        client: &Rc<UpstreamClient>,
        stream: TransportStream,
        keep: KeepaliveLimits,
    ) -> Option<()> {
        let settings = &client.settings.http2;
        let stall_ms = client.settings.timeouts.send_ms;
        // Requests that time out one by one do not show that the host has vanished.
        stream.tcp().into_iter().for_each(|tcp| tcp.break_after(stall_ms));
        let patience = FrameBudget::with_endpoint(settings.patience, PREFACE_BYTES, clock::now().mono_ms());
        let endpoint = stream.tcp().and_then(TcpConnection::peer);
        let wire = Http2Transport::new(stream, Inbox::default(), patience, client.buffers.clone());
        let (sender, library) = client_builder(&client.settings).handshake(wire.clone()).await.ok()?;
        let (queue, timer) = (client.buffers.backlog.queue(), client.timers.timer());
        let connection = H2Connection::new(sender, &keep, queue, timer);
        self.add(key, connection.clone(), keep.size);
        let watched = PanicWatch::new(&client.counters, endpoint);
        task::spawn(H2ConnectionDriver {
            connection,
            library,
            wire,
            keep,
            stall_ms,
            stalled_at: None,
            watched,
        });
        Some(())
    }

    /// Removes closed connections, and closes idle ones beyond the limit.
    pub(crate) fn sweep(&self) {
        self.by_endpoint.borrow_mut().retain(|_, groups| {
            close_excess(groups);
            groups
                .iter_mut()
                .for_each(|group| group.connections.retain(|connection| !connection.is_closed()));
            groups.retain(ConnectionGroup::is_of_use);
            !groups.is_empty()
        });
    }

    /// Closes the idle connections to an endpoint and returns their number.
    pub(crate) fn close_idle(&self, endpoint: u64) -> usize {
        let by_endpoint = self.by_endpoint.borrow();
        idle_of(by_endpoint.get(&endpoint)).inspect(|connection| connection.close()).count()
    }

    /// Adds a new connection. It counts as busy: of the others to the endpoint, under all names, no more than
    /// `idle_max` may idle.
    fn add(&self, key: PoolKey, connection: Rc<H2Connection>, idle_max: u32) {
        let mut by_endpoint = self.by_endpoint.borrow_mut();
        let groups = by_endpoint.entry(key.endpoint()).or_default();
        let excess = idle_of(Some(groups)).count().saturating_sub(idle_max as usize);
        idle_of(Some(groups)).take(excess).for_each(|connection| connection.close());
        find_or_add(groups, key).connections.push(connection);
    }

    /// The number of idle connections to an endpoint.
    pub(crate) fn idle_of(&self, endpoint: u64) -> usize {
        idle_of(self.by_endpoint.borrow().get(&endpoint)).count()
    }

    /// The number of idle connections.
    pub(crate) fn idle(&self) -> usize {
        let by_endpoint = self.by_endpoint.borrow();
        let groups = by_endpoint.values().flatten();
        groups.flat_map(|group| &group.connections).filter(|connection| connection.is_idle()).count()
    }
}

fn find(groups: &mut [ConnectionGroup], key: PoolKey) -> Option<&mut ConnectionGroup> {
    groups.iter_mut().find(|group| group.tls_name == key.tls_name())
}

fn find_or_add(groups: &mut Vec<ConnectionGroup>, key: PoolKey) -> &mut ConnectionGroup {
    let tls_name = key.tls_name();
    let at = groups.iter().position(|group| group.tls_name == tls_name).unwrap_or(groups.len());
    if at == groups.len() {
        groups.push(ConnectionGroup { tls_name, connections: Vec::new(), pending: Vec::new() });
    }
    &mut groups[at]
}

/// Open connections to an endpoint without a stream.
fn idle_of(groups: Option<&Vec<ConnectionGroup>>) -> impl Iterator<Item = &Rc<H2Connection>> {
    let connections = groups.into_iter().flatten().flat_map(|group| &group.connections);
    connections.filter(|connection| !connection.is_closed() && connection.is_idle())
}

/// Closes idle connections beyond the limit. Requests take the first with room, so the last have idled
/// longest. Requests wait for a connection without SETTINGS.
fn close_excess(groups: &Vec<ConnectionGroup>) {
    let idle: Vec<&Rc<H2Connection>> =
        idle_of(Some(groups)).filter(|connection| connection.has_settings()).collect();
    let most = idle.iter().map(|connection| connection.idle_max).max().unwrap_or(0);
    idle.into_iter().skip(most).for_each(|connection| connection.close());
}

impl ConnectionGroup {
    fn is_of_use(&self) -> bool {
        !self.connections.is_empty() || !self.pending.is_empty()
    }

    /// The number of requests that the next connection will probably carry at once.
    fn room_expected(&self) -> usize {
        self.connections.iter().map(|connection| connection.room()).max().unwrap_or(STREAMS_MAX).max(1)
    }

    fn free(&self, keep: &KeepaliveLimits) -> Option<StreamPermit> {
        let open = self
            .connections
            .iter()
            .filter(|connection| connection.is_open(keep.requests) && connection.has_room());
        open.filter_map(H2Connection::acquire).next()
    }
}

/// Drives the frames of a connection until it ends or exceeds its idle timeout.
struct H2ConnectionDriver {
    connection: Rc<H2Connection>,
    library: Connection<Http2Transport, Bytes>,
    wire: Http2Transport,
    keep: KeepaliveLimits,
    stall_ms: u64,
    /// Bytes sent when the endpoint last stopped reading.
    stalled_at: Option<u64>,
    watched: PanicWatch,
}

impl H2ConnectionDriver {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = Pin::new(&mut self.library).poll(cx);
        let sent = self.wire.poll_send(cx);
        let is_flooded = self.wire.inner().patience.is_over() || is_too_much(&polled);
        if is_flooded {
            self.note_flood();
        }
        if is_flooded || polled.is_ready() || matches!(sent, Poll::Ready(Err(_))) {
            return Poll::Ready(());
        }
        self.connection.note_settings();
        self.connection.note_received(self.wire.inner().received_bytes);
        if sent.is_ready() {
            self.stalled_at = None;
            self.connection.wake_driver_in(self.keep.idle_timeout_ms);
        } else {
            // More requests do not move an endpoint that does not read.
            let sent_bytes = self.wire.inner().sent_bytes;
            if self.stalled_at.replace(sent_bytes) != Some(sent_bytes) {
                self.connection.wake_driver_in(self.stall_ms);
            }
        }
        Poll::Pending
    }

    /// Logs the reason for which all requests on the connection failed.
    #[cold]
    fn note_flood(&self) {
        self.watched.counters.upstream.http2_floods.add(1);
        if let Some(endpoint) = self.watched.endpoint
            && let Some(untold) = should_log(endpoint, SuppressionKey::Flood)
        {
            tracing::warn!(%endpoint, untold, "upstream connection closed: HTTP/2 control frame flood");
        }
    }

    /// Whether a deadline that has passed ends the connection.
    fn is_spent(&self) -> bool {
        self.stalled_at.is_some() || self.connection.is_idle()
    }
}

/// Whether the library itself ended the connection for a flood.
fn is_too_much(polled: &Poll<Result<(), h2::Error>>) -> bool {
    let Poll::Ready(Err(error)) = polled else { return false };
    error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

impl Drop for H2ConnectionDriver {
    fn drop(&mut self) {
        self.connection.retire();
    }
}

impl Future for H2ConnectionDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A closed connection still carries the requests that it has, however long the endpoint takes to read
        // them.
        let is_closing = self.connection.is_closed() && self.connection.is_idle();
        if is_closing || (self.connection.is_due(cx) && self.is_spent()) || self.poll_step(cx).is_ready() {
            self.connection.retire();
            return Poll::Ready(());
        }
        // The first check may have set a new deadline: this one registers for it.
        if self.connection.is_due(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
