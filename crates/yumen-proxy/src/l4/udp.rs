//! UDP sessions: one per client address and destination address, in a bounded table.
//!
//! A datagram that cannot be sent at once is dropped and counted; no session waits for a slow peer.

mod control;
mod listen_socket;
mod packet_info;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use foldhash::fast::RandomState;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use yumen_plugin::{ClientInfo, Exchange};
use yumen_snapshot::{StreamRoute, Upstream};

pub(crate) use self::control::DatagramControl;
use self::listen_socket::UdpAddresses;
pub(crate) use self::listen_socket::UdpListenSocket;
use super::dial::StreamAttempts;
use super::{StreamFault, Tally, exchange, find, finish, phases, upstream};
use crate::copy::tunnel_binding::TunnelBinding;
use crate::fault::FaultKind;
use crate::observe::counters::StreamCounters;
use crate::runtime::clock;
use crate::runtime::timers::{Timer, until};
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::{ListenerSettings, StreamProtocol};
use crate::sys;
use crate::upstream::stream_attempt::StreamAttempt;
use crate::worker::{ConnectionGuard, Worker};

/// Upper bound of the length of a datagram.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// Number of datagrams that a session buffers until it has an endpoint.
const WAITING_MAX: usize = 32;
/// Number of bytes that a session retains to send them to another endpoint if the first refuses them. They
/// may be retained for the life of the session.
const UNHEARD_BYTES_MAX: usize = 4096;
/// Number of datagrams received from one socket before other tasks run.
const BATCH: usize = 64;
/// Idle timeout of a session while its worker drains, in milliseconds.
const DRAIN_IDLE_MS: u64 = 1000;
/// Time for which a closing listener receives datagrams that are on their way, in milliseconds.
const LAST_CALL_MS: u64 = 100;
/// Time for the sessions of a closed listener to end, in milliseconds. A plugin may keep one longer.
const SESSIONS_END_MS: u64 = 1000;

/// The bound UDP socket of one worker.
pub struct Datagrams {
    /// The bound socket.
    pub socket: std::net::UdpSocket,
}

/// Binds one socket per worker to the same address; the kernel assigns each client to one of them. Port 0
/// selects one free port for all.
pub fn bind(settings: &ListenerSettings, workers: usize) -> io::Result<Vec<std::net::UdpSocket>> {
    // Without SO_REUSEPORT, binding fails if another process uses the address.
    drop(std::net::UdpSocket::bind(settings.address)?);
    let first = bind_one(settings.address)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bind_one(address)?);
    }
    Ok(sockets)
}

/// Binds `count` additional sockets to an address that is bound with SO_REUSEPORT.
pub fn bind_more(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::UdpSocket>> {
    (0..count).map(|_| bind_one(address)).collect()
}

fn bind_one(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if address.ip().is_unspecified() {
        // Before the socket is bound: the kernel notes the destination of a datagram when it arrives, and datagrams may
        // arrive before a worker opens the socket.
        sys::enable_packet_info(socket.as_fd(), address.is_ipv6())?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

type Sessions = HashMap<UdpAddresses, Rc<Session>, RandomState>;

/// The sessions of one socket.
struct Table {
    worker: Rc<Worker>,
    control: Rc<DatagramControl>,
    listen_socket: UdpListenSocket,
    sessions: RefCell<Sessions>,
    /// Receive buffer for datagrams of endpoints, shared by all sessions.
    room: RefCell<Vec<u8>>,
}

/// The datagrams of one client.
struct Session {
    timer: Timer,
    idle_ms: Cell<u64>,
    /// The socket towards the endpoint, once an endpoint is chosen.
    back: RefCell<Option<Rc<UdpSocket>>>,
    /// Datagrams received before that.
    waiting: RefCell<Vec<Box<[u8]>>>,
    /// The first datagrams sent, up to `UNHEARD_BYTES_MAX`, until another is sent or a reply arrives. If the
    /// endpoint refuses them, they are all that was sent and can go to another endpoint.
    unheard: RefCell<Vec<Box<[u8]>>>,
    /// Whether the endpoint's host has reported the port as unreachable.
    refused: Cell<bool>,
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
}

/// Serves a UDP socket for the life of the worker. A draining worker begins no session.
///
/// After a handover, the successor receives the datagrams of clients, and this worker forwards those of
/// endpoints.
pub(crate) async fn serve(worker: Rc<Worker>, datagrams: Datagrams, duty: watch::Receiver<WorkerDuty>) {
    match UdpListenSocket::open(datagrams.socket) {
        Ok(socket) => serve_on(worker, socket, Rc::default(), duty).await,
        Err(error) => tracing::error!(%error, "UDP socket registration failed"),
    }
}

/// Serves a registered UDP socket until its listener closes.
pub(crate) async fn serve_on(
    worker: Rc<Worker>,
    listen_socket: UdpListenSocket,
    control: Rc<DatagramControl>,
    mut duty: watch::Receiver<WorkerDuty>,
) {
    let mut room = vec![0; DATAGRAM_BYTES_MAX];
    let (sessions, shared_room) = (RefCell::default(), RefCell::new(room.clone()));
    let table =
        Rc::new(Table { worker, control: control.clone(), listen_socket, sessions, room: shared_room });
    loop {
        let is_readable = tokio::select! {
            ready = table.listen_socket.readable() => ready.is_ok(),
            _ = duty.wait_for(|duty| matches!(duty, WorkerDuty::HandOver { .. })) => false,
            () = control.close.wait() => return table.close(&mut room).await,
        };
        if !is_readable {
            return;
        }
        table.receive(&mut room);
        tokio::task::yield_now().await;
    }
}

impl Table {
    /// Takes the queued datagrams of clients, at most `BATCH`.
    fn receive(self: &Rc<Table>, room: &mut [u8]) {
        for _ in 0..BATCH {
            match self.listen_socket.try_receive(room) {
                Ok((count, pair)) => self.take(pair, &room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An ICMP error for an earlier reply, which does not affect the socket.
                Err(_) => {}
            }
        }
    }

    /// Receives until the last call is over, then ends all sessions: they share the socket, which has to close
    /// before its address can be bound again.
    async fn close(self: Rc<Table>, room: &mut [u8]) {
        let timers = self.worker.timers.clone();
        let timer = timers.timer();
        timer.set(LAST_CALL_MS);
        let until_ms = clock::now().mono_ms() + LAST_CALL_MS;
        while let Some(Ok(())) = until(&timer, pin!(self.listen_socket.readable())).await {
            self.receive(room);
            tokio::task::yield_now().await;
            // A flood keeps the socket readable, and the timer is polled only while it is not.
            if clock::now().mono_ms() >= until_ms {
                break;
            }
        }
        self.control.is_closed.set(true);
        for session in self.sessions.borrow().values() {
            session.timer.set(1);
        }
        let until_ms = clock::now().mono_ms() + SESSIONS_END_MS;
        // Each task of a session shares the table.
        while Rc::strong_count(&self) > 1 && clock::now().mono_ms() < until_ms {
            timers.clone().sleep(5).await;
        }
    }

    /// Forwards a datagram of a client, in its session or in a new one.
    fn take(self: &Rc<Table>, pair: UdpAddresses, datagram: &[u8]) {
        let counters = &self.worker.counters.streams;
        let known = self.sessions.borrow().get(&pair).cloned();
        let session = match known {
            Some(session) => session,
            None => match self.begin(pair) {
                Some(session) => session,
                None => return counters.dropped_datagrams.add(1),
            },
        };
        session.touch();
        let back = session.back.borrow().clone();
        let is_sent = match back {
            Some(back) => session.send(&back, datagram),
            None => session.keep(datagram),
        };
        // A second datagram is out, so the first ones can no longer move to another endpoint alone.
        session.unheard.take();
        if session.refused.get() {
            // The error refers to an earlier datagram, so this one begins a session with a new endpoint.
            self.sessions.borrow_mut().remove(&pair);
            let is_open = self.begin(pair).is_some_and(|next| {
                next.received_bytes.set(datagram.len() as u64);
                next.keep(datagram)
            });
            counters.dropped_datagrams.add(u64::from(!is_open));
        } else {
            session.received_bytes.set(session.received_bytes.get() + datagram.len() as u64);
            counters.dropped_datagrams.add(u64::from(!is_sent));
        }
    }

    fn begin(self: &Rc<Table>, pair: UdpAddresses) -> Option<Rc<Session>> {
        let worker = &self.worker;
        if worker.admission.is_draining() || self.control.is_closed.get() {
            return None;
        }
        if self.sessions.borrow().len() >= worker.settings.streams.udp_sessions_max {
            worker.counters.streams.too_many_sessions();
            return None;
        }
        let admitted = worker.admit()?;
        let session = Rc::new(Session {
            timer: worker.timers.timer(),
            idle_ms: Cell::new(worker.settings.streams.udp_idle_ms),
            back: RefCell::default(),
            waiting: RefCell::default(),
            unheard: RefCell::default(),
            refused: Cell::new(false),
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
        });
        self.sessions.borrow_mut().insert(pair, session.clone());
        let connection = worker.counters.connections.accepted.get();
        let client = ClientInfo {
            peer: pair.peer,
            local: pair.local,
            tls: None,
            connection_id: connection,
            listener: self.control.number.get(),
            mapped_port: self.control.mapped_port.get(),
        };
        tokio::task::spawn_local(run(self.clone(), session.clone(), client, admitted));
        Some(session)
    }
}

impl Session {
    /// Restarts the idle timeout, unless the session is about to end.
    fn touch(&self) {
        if !self.refused.get() {
            self.timer.set(self.idle_ms.get());
        }
    }

    /// Sends to the endpoint and returns whether that succeeded. The call may report an ICMP error for an
    /// earlier datagram, which ends the session.
    fn send(&self, back: &UdpSocket, datagram: &[u8]) -> bool {
        let sent = back.try_send(datagram);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            self.refused.set(true);
            // Wakes the task of the session, which ends it.
            self.timer.set(1);
        }
        sent.is_ok()
    }

    /// Sends the datagrams that were waiting for an endpoint.
    async fn begin(&self, counters: &StreamCounters, back: &Rc<UdpSocket>) {
        // The reactor reports a new socket as writable only after its next poll; `try_send` fails until then.
        let _ = back.writable().await;
        let first = self.waiting.take();
        for datagram in &first {
            if !self.send(back, datagram) {
                counters.dropped_datagrams.add(1);
            }
        }
        if first.iter().map(|datagram| datagram.len()).sum::<usize>() <= UNHEARD_BYTES_MAX {
            self.unheard.replace(first);
        }
        // Set last: datagrams that arrive during the wait above are queued behind the first ones.
        self.back.replace(Some(back.clone()));
    }

    /// Moves the refused datagrams back to the waiting ones, for another endpoint. Returns false if they are
    /// not all that was sent.
    fn takes_back(&self) -> bool {
        let first = self.unheard.take();
        let is_all = !first.is_empty();
        if is_all {
            self.back.take();
            self.refused.set(false);
            self.waiting.replace(first);
            self.touch();
        }
        is_all
    }

    /// Buffers a datagram until the session has an endpoint; false if the buffer is full.
    fn keep(&self, datagram: &[u8]) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let has_room = waiting.len() < WAITING_MAX;
        if has_room {
            waiting.push(datagram.into());
        }
        has_room
    }
}

/// Removes a session from its table on drop.
struct Listed<'t>(&'t Table, UdpAddresses, Rc<Session>);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut sessions = self.0.sessions.borrow_mut();
        // After a refusal, a newer session may be registered under the same key.
        if sessions.get(&self.1).is_some_and(|session| Rc::ptr_eq(session, &self.2)) {
            sessions.remove(&self.1);
        }
    }
}

/// Serves one session from its first datagram to its idle timeout.
async fn run(table: Rc<Table>, session: Rc<Session>, client: ClientInfo, _admitted: ConnectionGuard) {
    let worker = &table.worker;
    let began_us = clock::now().mono_us;
    let _open = worker.counters.streams.open(StreamProtocol::Udp);
    let pair = UdpAddresses { peer: client.peer, local: client.local };
    let _listed = Listed(&table, pair, session.clone());
    let found = find(worker, &client);
    let route = found.as_ref().ok().cloned();
    let mut ex = exchange(worker, &client, StreamProtocol::Udp, route.as_deref());
    let mut tally = Tally::default();
    let ended = match found {
        Ok(route) => pass(&table, &session, &mut ex, &route, &mut tally).await,
        Err(fault) => Err(fault),
    };
    (tally.received_bytes, tally.sent_bytes) = (session.received_bytes.get(), session.sent_bytes.get());
    finish(worker, ex, route.as_deref(), &tally, ended.err(), began_us);
}

async fn pass(
    table: &Table,
    session: &Session,
    ex: &mut Exchange<'_>,
    route: &StreamRoute,
    tally: &mut Tally,
) -> Result<(), StreamFault> {
    let worker = &table.worker;
    let upstream = upstream(worker, route)?;
    session.idle_ms.set(upstream.streams.idle_ms.unwrap_or(worker.settings.streams.udp_idle_ms));
    session.touch();
    phases::access(&route.chain, ex).await?;
    {
        // Preread plugins of UDP see the first datagram only, which is complete by itself.
        let first = session.waiting.borrow().first().cloned().unwrap_or_default();
        if !phases::look(&route.chain, ex, &first)? {
            return Err(StreamFault::Protocol);
        }
    }
    phases::decided(ex)?;
    let mut attempts = StreamAttempts::new(&upstream, tally);
    let mut is_retry = false;
    loop {
        let (underway, back) = connect(ex, &upstream, &mut attempts).await?;
        // Not before: an attempt that never begins is no retry.
        worker.counters.upstream.retries.add(u64::from(is_retry));
        let back = Rc::new(back);
        session.begin(&worker.counters.streams, &back).await;
        let tie = worker.ties.bind_stream(&worker.timers, &upstream, ex.endpoint.address);
        let pair = UdpAddresses { peer: ex.client.connection.peer, local: ex.client.connection.local };
        let mut answers = Answers::new(table, session, underway, back, pair, tie);
        let ended = answers.pass().await;
        let has_failed = ended.is_err_and(|fault| fault != StreamFault::Changed);
        // The endpoint's port is unreachable.
        let is_refused = ended == Err(StreamFault::Connect) || (has_failed && !answers.answered);
        let is_last = is_refused && attempts.failed(answers.underway.index(), FaultKind::Connect).is_err();
        if !is_refused || is_last || !session.takes_back() {
            return ended;
        }
        is_retry = true;
    }
}

/// Opens a connected socket for the session, so that the kernel accepts datagrams of the endpoint only.
async fn connect<'u>(
    ex: &mut Exchange<'_>,
    upstream: &'u Upstream,
    attempts: &mut StreamAttempts<'_>,
) -> Result<(StreamAttempt<'u>, UdpSocket), StreamFault> {
    loop {
        let index = attempts.next(ex)?;
        let underway = StreamAttempt::begin(upstream, index);
        match open(upstream.endpoints[index].addr).await {
            Ok(socket) => return Ok((underway, socket)),
            Err(error) => {
                tracing::debug!(%error, endpoint = %upstream.endpoints[index].addr, "UDP socket creation failed");
                attempts.failed(index, FaultKind::Connect)?;
            }
        }
    }
}

async fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// Forwards the datagrams of an endpoint until the session ends.
struct Answers<'s> {
    table: &'s Table,
    session: &'s Session,
    underway: StreamAttempt<'s>,
    back: Rc<UdpSocket>,
    pair: UdpAddresses,
    answered: bool,
    draining: bool,
    tie: Option<Rc<TunnelBinding>>,
}

impl<'s> Answers<'s> {
    fn new(
        table: &'s Table,
        session: &'s Session,
        underway: StreamAttempt<'s>,
        back: Rc<UdpSocket>,
        pair: UdpAddresses,
        tie: Option<Rc<TunnelBinding>>,
    ) -> Answers<'s> {
        let (answered, draining) = (false, false);
        Answers { table, session, underway, back, pair, answered, draining, tie }
    }

    async fn pass(&mut self) -> Result<(), StreamFault> {
        let back = self.back.clone();
        loop {
            // An ICMP error makes the socket ready for errors, not for reading.
            let mut ready = pin!(back.ready(Interest::READABLE | Interest::ERROR));
            let received = poll_fn(|cx| match self.poll_end(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => ready.as_mut().poll(cx).map(Ok),
            });
            match received.await {
                Err(ended) => return ended,
                Ok(Err(_)) => return Err(StreamFault::UpstreamReset),
                Ok(Ok(_)) if self.receive()? => {}
                Ok(Ok(_)) => tokio::task::yield_now().await,
            }
        }
    }

    /// Ready when the session ends, independent of the endpoint's datagrams.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFault>> {
        let (worker, session) = (&self.table.worker, self.session);
        if worker.admission.ends_idle() && !self.draining {
            self.draining = true;
            session.idle_ms.set(session.idle_ms.get().min(DRAIN_IDLE_MS));
            session.touch();
        }
        if self.tie.as_ref().is_some_and(|tie| tie.is_over(cx)) {
            return Poll::Ready(Err(StreamFault::Changed));
        }
        if self.table.control.is_closed.get() {
            return Poll::Ready(Ok(()));
        }
        if session.timer.is_over(cx) {
            return Poll::Ready(if session.refused.get() { Err(StreamFault::Connect) } else { Ok(()) });
        }
        Poll::Pending
    }

    /// Forwards the received datagrams, at most `BATCH`; true if none is left.
    fn receive(&mut self) -> Result<bool, StreamFault> {
        let (table, session) = (self.table, self.session);
        take_error(&self.back)?;
        for _ in 0..BATCH {
            let mut room = table.room.borrow_mut();
            match self.back.try_recv(&mut room) {
                Ok(count) => {
                    self.note_answer();
                    session.touch();
                    match table.listen_socket.try_send(&room[..count], self.pair) {
                        Ok(_) => session.sent_bytes.set(session.sent_bytes.get() + count as u64),
                        Err(_) => table.worker.counters.streams.dropped_datagrams.add(1),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => fault_of(&error)?,
            }
        }
        Ok(false)
    }

    /// Records that the endpoint has replied, which counts as connected.
    fn note_answer(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.session.unheard.take();
            self.underway.note_connected();
        }
    }
}

/// Takes the pending error of the socket, which also clears the readiness for errors.
fn take_error(back: &UdpSocket) -> Result<(), StreamFault> {
    let taken: io::Result<()> = back.try_io(Interest::ERROR, || match back.take_error()? {
        Some(error) => Err(error),
        None => Err(io::ErrorKind::WouldBlock.into()),
    });
    match taken {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => fault_of(&error),
        _ => Ok(()),
    }
}

/// Maps an ICMP error: the datagram was too long, which does not affect later ones, or the port is
/// unreachable.
fn fault_of(error: &io::Error) -> Result<(), StreamFault> {
    if error.raw_os_error() == Some(libc::EMSGSIZE) { Ok(()) } else { Err(StreamFault::Connect) }
}
