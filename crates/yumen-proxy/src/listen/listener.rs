//! Listeners: sockets are bound before the workers start, and each worker accepts on its own.
//!
//! This file owns the socket options and the accept loop. It must not parse HTTP.

pub(crate) mod http3;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use yumen_base::IpSet;
use yumen_plugin::{ClientInfo, ListenerNumber};

use crate::runtime::clock;
use crate::runtime::close_signal::CloseSignal;
use crate::runtime::timers::until;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::{ListenerSettings, StreamProtocol};
use crate::tls::DownstreamTlsAcceptor;
use crate::transport::tcp::TcpConnection;
use crate::worker::{ConnectionGuard, Worker};
use crate::{downstream, l4};

/// Time after which the kernel reports a connection that has sent no data, in seconds.
const DEFER_SECONDS: i32 = 5;

/// If a connection was accepted within this time before shutdown, the listener accepts for another
/// `LAST_CALL_MS`. In milliseconds.
const LATELY_MS: u64 = 1000;
/// Time for which the listener accepts after the end of its duty, in milliseconds.
pub(crate) const LAST_CALL_MS: u64 = 100;

/// Delay between two calls of accept after a failure, in milliseconds.
const ACCEPT_RETRY_MS: u64 = 20;

/// A bound socket of one worker.
pub struct Listener {
    /// The bound, listening socket.
    pub socket: TcpListener,
    /// The TLS acceptor, or `None` for plaintext.
    pub tls: Option<DownstreamTlsAcceptor>,
    /// Peers whose connections begin with a PROXY header.
    pub proxy_from: IpSet,
    /// The protocol of the TCP streams that the listener accepts, or `None` for HTTP.
    pub streams: Option<StreamProtocol>,
}

impl Listener {
    /// Creates a listener for HTTP without TLS.
    pub fn plain(socket: TcpListener) -> Listener {
        Listener { socket, tls: None, proxy_from: IpSet::default(), streams: None }
    }
}

/// Settings that all connections of a listener share.
pub(super) struct ListenerContext {
    pub(super) number: ListenerNumber,
    /// See [`ClientInfo::mapped_port`].
    pub(super) mapped_port: u16,
    pub(super) tls: Option<Rc<DownstreamTlsAcceptor>>,
    pub(super) proxy_from: IpSet,
    pub(super) streams: Option<StreamProtocol>,
}

/// The part of the accept loops of one listener that its owner controls.
pub(super) struct AcceptControl {
    context: RefCell<Rc<ListenerContext>>,
    close: CloseSignal,
}

impl AcceptControl {
    pub(super) fn new(context: ListenerContext) -> Rc<AcceptControl> {
        Rc::new(AcceptControl { context: RefCell::new(Rc::new(context)), close: CloseSignal::default() })
    }

    /// Replaces the settings; connections that are already accepted keep theirs.
    pub(super) fn replace(&self, context: ListenerContext) {
        self.context.replace(Rc::new(context));
    }

    /// Ends the accept loops after their last call.
    pub(super) fn close(&self) {
        self.close.give();
    }

    fn context(&self) -> Rc<ListenerContext> {
        self.context.borrow().clone()
    }
}

/// Binds one socket per worker to the same address.
///
/// With `reuse_port`, every worker gets its own socket; without, the workers share one. Port 0 selects one
/// free port for all.
pub fn bind(settings: &ListenerSettings, workers: usize) -> io::Result<Vec<TcpListener>> {
    // SO_REUSEPORT would also share the port with another running gateway, which would then get half of the
    // traffic. Binding without the option detects that. The probe does not listen: closing it would reset the
    // connections that it had queued.
    let alone = Socket::new(Domain::for_address(settings.address), Type::STREAM, Some(Protocol::TCP))?;
    alone.set_reuse_address(true)?;
    alone.bind(&settings.address.into())?;
    drop(alone);
    let first = bind_one(settings, settings.address)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        let next =
            if settings.socket.reuse_port { bind_one(settings, address)? } else { sockets[0].try_clone()? };
        sockets.push(next);
    }
    Ok(sockets)
}

/// Binds `count` additional sockets to an address that uses `reuse_port`.
pub fn bind_more(settings: &ListenerSettings, count: usize) -> io::Result<Vec<TcpListener>> {
    (0..count).map(|_| bind_one(settings, settings.address)).collect()
}

/// Applies the options of a listener to a listening socket that another process has bound.
pub fn settle(socket: &Socket, settings: &ListenerSettings) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    // On a listening socket, listen(2) only changes the length of the queue.
    socket.listen(settings.socket.backlog)?;
    // Set in either case: the process that bound the socket may have had the other setting.
    defer(socket.as_fd(), settings.socket.defer_accept)
}

/// Sets or clears deferred accept: the kernel reports a connection once its request has arrived, and the
/// response carries the acknowledgement. Accepted sockets inherit the delayed acknowledgement
/// (docs/decisions/0045-accepting.md).
fn defer(socket: BorrowedFd<'_>, is_deferred: bool) -> io::Result<()> {
    crate::sys::defer_accept(socket, if is_deferred { DEFER_SECONDS } else { 0 })?;
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, !is_deferred)?)
}

fn bind_one(settings: &ListenerSettings, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(settings.socket.reuse_port)?;
    // Accepted sockets inherit TCP_NODELAY, which saves one system call per connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(settings.socket.backlog)?;
    if settings.socket.defer_accept {
        defer(socket.as_fd(), true)?;
    }
    Ok(socket.into())
}

/// Accepts on a listener of the node's settings.
pub(crate) async fn accept(worker: Rc<Worker>, listener: Listener, duty: watch::Receiver<WorkerDuty>) {
    let Listener { socket, tls, proxy_from, streams } = listener;
    let number = ListenerNumber::STATIC;
    let context = ListenerContext { number, mapped_port: 0, tls: tls.map(Rc::new), proxy_from, streams };
    match ListenSocket::open(socket) {
        Ok(socket) => accept_on(worker, socket, AcceptControl::new(context), duty).await,
        Err(error) => tracing::error!(%error, "listener registration failed"),
    }
}

/// A listening socket that is registered with the reactor of its worker.
pub(super) struct ListenSocket {
    socket: AsyncFd<TcpListener>,
    local: SocketAddr,
}

impl ListenSocket {
    pub(super) fn open(socket: TcpListener) -> io::Result<ListenSocket> {
        let local = socket.local_addr()?;
        Ok(ListenSocket { socket: crate::sys::watch(socket)?, local })
    }
}

/// Accepts until the listener closes or the worker drains, then accepts the connections that are queued or on
/// their way, so that none is reset. In a handover the successor accepts those.
pub(super) async fn accept_on(
    worker: Rc<Worker>,
    socket: ListenSocket,
    control: Rc<AcceptControl>,
    mut duty: watch::Receiver<WorkerDuty>,
) {
    let ListenSocket { socket, local } = socket;
    let mut was_failing = false;
    let mut accepted_ms = None;
    // One future for the whole loop: a new one per connection would register with the channel each time.
    let mut change = duty.clone();
    let mut over = pin!(async {
        tokio::select! {
            biased;
            _ = change.wait_for(|duty| duty.is_over()) => {}
            () = control.close.wait() => {}
        }
    });
    let mut is_registered = false;
    loop {
        let mut is_first = true;
        let ready = poll_fn(|cx| match (socket.poll_read_ready(cx), std::mem::take(&mut is_first)) {
            (Poll::Ready(ready), _) => Poll::Ready(ready.ok()),
            // The end wakes the task by its registration, and is then polled. Two more polls per connection cost as
            // much as a tenth of accepting it.
            (Poll::Pending, true) if is_registered => Poll::Pending,
            (Poll::Pending, _) => {
                is_registered = true;
                over.as_mut().poll(cx).map(|()| None)
            }
        });
        let ready = ready.await;
        // A change to a duty that is not over uses the registration up, perhaps in the same turn as a connection.
        let duty = {
            let duty = duty.borrow_and_update();
            is_registered &= !duty.has_changed();
            *duty
        };
        // In a handover, the successor accepts the queued connections from the same socket.
        if matches!(duty, WorkerDuty::HandOver { .. }) {
            return;
        }
        let accepted = accept_all(&worker, socket.get_ref(), local, &control.context());
        let now_ms = clock::now().mono_ms();
        let is_closing = control.close.is_given();
        if duty.is_over() || is_closing {
            // A closed listener has no successor that would accept connections that are on their way.
            if is_closing || accepted_ms.is_some_and(|accepted_ms| now_ms < accepted_ms + LATELY_MS) {
                last_call(&worker, &socket, local, &control).await;
            }
            return;
        }
        // Without a readiness event and with the duty not over, the runtime is shutting down.
        let Some(mut ready) = ready else { return };
        accepted_ms = Some(now_ms);
        match accepted {
            Ok(()) => ready.clear_ready(),
            Err(errno) => {
                // The readiness is retained: the socket is edge-triggered and would not report the queued
                // connections again.
                make_room(&worker, errno, was_failing);
                worker.timers.clone().sleep(ACCEPT_RETRY_MS).await;
                // The end may have woken the task during the wait, and does not wake it again.
                is_registered = false;
            }
        }
        was_failing = accepted.is_err();
    }
}

/// Accepts late connections for `LAST_CALL_MS`. With deferred accept, the kernel does not report an
/// established connection until its request arrives. Closing the socket would reset it.
async fn last_call(
    worker: &Rc<Worker>,
    socket: &AsyncFd<TcpListener>,
    local: SocketAddr,
    control: &AcceptControl,
) {
    // If this fails, connections that have sent no data yet are reset.
    let _ = defer(socket.get_ref().as_fd(), false);
    let timer = worker.timers.timer();
    timer.set(LAST_CALL_MS);
    while let Some(Ok(mut ready)) = until(&timer, pin!(socket.readable())).await {
        if accept_all(worker, socket.get_ref(), local, &control.context()).is_err() {
            return;
        }
        ready.clear_ready();
    }
    // The timer has ended the wait, but connections may have been queued since the last accept.
    let _ = accept_all(worker, socket.get_ref(), local, &control.context());
}

/// Closes idle connections after a failed accept: a new client takes precedence over idle upstream
/// connections.
fn make_room(worker: &Worker, errno: Errno, was_failing: bool) {
    worker.counters.connections.accept_failures.add(1);
    worker.upstream.pool.borrow_mut().clear();
    worker.make_room();
    // One line per series of failures.
    if !was_failing {
        tracing::warn!(error = %io::Error::from(errno), "accept failed, retrying");
    }
}

/// Accepts every queued connection.
///
/// poll(2) runs before each further accept(2), because the kernel allocates a socket and a file before it
/// finds the queue empty: ten times the cost of poll(2).
fn accept_all(
    worker: &Rc<Worker>,
    socket: &TcpListener,
    local: SocketAddr,
    context: &Rc<ListenerContext>,
) -> Result<(), Errno> {
    loop {
        match rustix::net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                spawn(worker, fd, peer.unwrap_or(local), local, context);
                if !has_queued_connection(socket) {
                    return Ok(());
                }
            }
            Err(Errno::AGAIN) => return Ok(()),
            // The call was interrupted or the queued connection has failed; the listener is intact.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn has_queued_connection(socket: &TcpListener) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut descriptors = [PollFd::new(socket, PollFlags::IN)];
    // If poll fails, the next accept(2) reports the error.
    rustix::event::poll(&mut descriptors, Some(&at_once)).map_or(true, |count| count > 0)
}

/// Serves an accepted connection; `local` is the address of the listening socket.
fn spawn(
    worker: &Rc<Worker>,
    fd: OwnedFd,
    peer: SocketAddr,
    local: SocketAddr,
    context: &Rc<ListenerContext>,
) {
    let Some(admitted) = worker.admit() else { return };
    let stream = std::net::TcpStream::from(fd);
    // Only the accepted socket has the address that the client dialled. Listeners on a single address save
    // this system call.
    let local = if local.ip().is_unspecified() { stream.local_addr().unwrap_or(local) } else { local };
    let connection = worker.counters.connections.accepted.get();
    let client = ClientInfo {
        peer,
        local,
        tls: None,
        connection_id: connection,
        listener: context.number,
        mapped_port: context.mapped_port,
    };
    let worker = worker.clone();
    let is_plain = context.streams.is_none() && !context.proxy_from.contains(peer.ip());
    if !is_plain || l4::arrival::needs_server_name(&worker, &client) {
        tokio::task::spawn_local(open(
            worker,
            TcpConnection::fresh(stream),
            client,
            context.clone(),
            admitted,
        ));
        return;
    }
    let tls = context.tls.clone();
    // Boxed, since the runtime would otherwise move the large future about six times.
    tokio::task::spawn_local(Box::pin(downstream::run(
        worker,
        TcpConnection::fresh(stream),
        client,
        tls,
        admitted,
    )));
}

/// Serves a connection that begins with a PROXY header or carries a TCP stream, or whose TLS may be passed through.
async fn open(
    worker: Rc<Worker>,
    mut tcp: TcpConnection,
    mut client: ClientInfo,
    context: Rc<ListenerContext>,
    admitted: ConnectionGuard,
) {
    if context.proxy_from.contains(client.peer.ip())
        && !l4::arrival::take_proxy_header(&worker, &mut tcp, &mut client).await
    {
        return;
    }
    match context.streams {
        // `admitted` lives until this function returns, so the stream counts as a connection.
        Some(protocol) => l4::run(worker, tcp, client, protocol, context.tls.clone()).await,
        None if context.tls.is_some() && l4::arrival::passes_through(&worker, &mut tcp, &client).await => {
            l4::run(worker, tcp, client, StreamProtocol::TlsPassthrough, None).await
        }
        None => downstream::run(worker, tcp, client, context.tls.clone(), admitted).await,
    }
}

#[cfg(test)]
mod tests;
