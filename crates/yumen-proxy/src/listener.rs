//! Sockets that clients reach: bound before workers start, accepted by each worker on its own.

pub(crate) mod http3;

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
use yumen_plugin::ClientInfo;

use crate::clock;
use crate::settings::{ListenerSettings, StreamProtocol};
use crate::tcp::TcpConnection;
use crate::timers::until;
use crate::tls::DownstreamTlsAcceptor;
use crate::worker::{ConnectionGuard, Worker};
use crate::worker_duty::WorkerDuty;
use crate::{downstream, l4};

/// A silent connection is handed over by the kernel after so long.
const DEFER_SECONDS: i32 = 5;

/// Where somebody came so shortly before the end, others are on their way: they are waited for as long as that.
/// In milliseconds.
const LATELY_MS: u64 = 1000;
const LAST_CALL_MS: u64 = 100;

/// Between two attempts to accept where one has failed, in milliseconds.
const ACCEPT_RETRY_MS: u64 = 20;

/// A bound socket of one worker.
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// TLS, if clients speak it.
    pub tls: Option<DownstreamTlsAcceptor>,
    /// Peers whose connections begin with a PROXY header.
    pub proxy_from: IpSet,
    /// What it carries, where that is not requests.
    pub streams: Option<StreamProtocol>,
}

impl Listener {
    /// For requests without TLS.
    pub fn plain(socket: TcpListener) -> Listener {
        Listener { socket, tls: None, proxy_from: IpSet::default(), streams: None }
    }
}

/// What every connection of a listener shares.
struct ListenerContext {
    local: SocketAddr,
    tls: Option<Rc<DownstreamTlsAcceptor>>,
    proxy_from: IpSet,
    streams: Option<StreamProtocol>,
}

/// Binds a socket per worker to the same address, its own or a handle of one they share; port 0
/// becomes the same free port for all.
pub fn bind(settings: &ListenerSettings, workers: usize) -> io::Result<Vec<TcpListener>> {
    // Sockets that share a port share it with another gateway's as well: half of the traffic would be
    // served from whatever was started first. One that does not share finds out. It does not listen: whoever
    // connected just then would be cut off with it.
    let alone = Socket::new(Domain::for_address(settings.address), Type::STREAM, Some(Protocol::TCP))?;
    alone.set_reuse_address(true)?;
    alone.bind(&settings.address.into())?;
    drop(alone);
    let first = bind_one(settings, settings.address)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        let next = if settings.reuse_port { bind_one(settings, address)? } else { sockets[0].try_clone()? };
        sockets.push(next);
    }
    Ok(sockets)
}

/// Binds so many more sockets to an address whose sockets share it.
pub fn bind_more(settings: &ListenerSettings, count: usize) -> io::Result<Vec<TcpListener>> {
    (0..count).map(|_| bind_one(settings, settings.address)).collect()
}

/// Gives a listening socket that was bound elsewhere the options of this listener.
pub fn settle(socket: &Socket, settings: &ListenerSettings) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    // Listening once more only sets the length of the queue.
    socket.listen(settings.backlog)?;
    defer(socket.as_fd(), settings.defer_accept)
}

/// Has connections reported once their request is there, which its answer then acknowledges: accepted
/// sockets inherit that they wait for one (docs/decisions/0045-accepting.md).
fn defer(socket: BorrowedFd<'_>, is_deferred: bool) -> io::Result<()> {
    crate::sys::defer_accept(socket, if is_deferred { DEFER_SECONDS } else { 0 })?;
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, !is_deferred)?)
}

fn bind_one(settings: &ListenerSettings, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(settings.reuse_port)?;
    // Accepted connections inherit it, which saves a call each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(settings.backlog)?;
    if settings.defer_accept {
        defer(socket.as_fd(), true)?;
    }
    Ok(socket.into())
}

/// Accepts until the worker drains, then takes what is still queued and on its way, unless another process does: none
/// of it shall be reset.
pub(crate) async fn accept(worker: Rc<Worker>, listener: Listener, duty: watch::Receiver<WorkerDuty>) {
    let socket = match crate::sys::watch(listener.socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "listener registration failed");
            return;
        }
    };
    let Ok(local) = socket.get_ref().local_addr() else { return };
    let Listener { tls, proxy_from, streams, .. } = listener;
    let door = Rc::new(ListenerContext { local, tls: tls.map(Rc::new), proxy_from, streams });
    let mut was_failing = false;
    let mut came_ms = None;
    // Waited for all the time, not anew for each connection.
    let mut change = duty.clone();
    let mut over = pin!(change.wait_for(|duty| duty.is_over()));
    loop {
        let ready = poll_fn(|cx| match socket.poll_read_ready(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.ok()),
            Poll::Pending => over.as_mut().poll(cx).map(|_| None),
        });
        let ready = ready.await;
        let duty = *duty.borrow();
        if matches!(duty, WorkerDuty::HandOver { .. }) {
            return;
        }
        let accepted = accept_all(&worker, socket.get_ref(), &door);
        let now_ms = clock::now().mono_ms();
        if duty.is_over() {
            if came_ms.is_some_and(|came_ms| now_ms < came_ms + LATELY_MS) {
                last_call(&worker, &socket, &door).await;
            }
            return;
        }
        let Some(mut ready) = ready else { return };
        came_ms = Some(now_ms);
        match accepted {
            Ok(()) => ready.clear_ready(),
            Err(errno) => {
                make_room(&worker, errno, was_failing);
                worker.timers.clone().sleep(ACCEPT_RETRY_MS).await;
            }
        }
        was_failing = accepted.is_err();
    }
}

/// Takes those who are on their way when nobody accepts any more. With deferred accept a connection that was made waits
/// in the kernel for its request, where nobody sees it, and would be reset with the socket.
async fn last_call(worker: &Rc<Worker>, socket: &AsyncFd<TcpListener>, door: &Rc<ListenerContext>) {
    // Where it cannot be set, who has sent nothing yet is not waited for.
    let _ = defer(socket.get_ref().as_fd(), false);
    let timer = worker.timers.timer();
    timer.set(LAST_CALL_MS);
    while let Some(Ok(mut ready)) = until(&timer, pin!(socket.readable())).await {
        if accept_all(worker, socket.get_ref(), door).is_err() {
            return;
        }
        ready.clear_ready();
    }
    let _ = accept_all(worker, socket.get_ref(), door);
}

/// Whoever waits to be accepted is worth more than an idle connection to an endpoint.
fn make_room(worker: &Worker, errno: Errno, was_failing: bool) {
    worker.counters.accept_failures.add(1);
    worker.upstream.pool.borrow_mut().clear();
    worker.make_room();
    if !was_failing {
        tracing::warn!(error = %io::Error::from(errno), "accept failed, retrying");
    }
}

/// Accepts every connection that is queued.
///
/// Whether there is another is asked first: the kernel makes a socket and its file before it finds out
/// that there is none, which costs ten times the question.
fn accept_all(worker: &Rc<Worker>, socket: &TcpListener, door: &Rc<ListenerContext>) -> Result<(), Errno> {
    loop {
        match rustix::net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                spawn(worker, fd, peer.unwrap_or(door.local), door);
                if !is_somebody_queued(socket) {
                    return Ok(());
                }
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn is_somebody_queued(socket: &TcpListener) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut looked_at = [PollFd::new(socket, PollFlags::IN)];
    // Where it cannot be asked, accepting tells.
    rustix::event::poll(&mut looked_at, Some(&at_once)).map_or(true, |count| count > 0)
}

fn spawn(worker: &Rc<Worker>, fd: OwnedFd, peer: SocketAddr, door: &Rc<ListenerContext>) {
    let Some(admitted) = worker.admit() else { return };
    let stream = std::net::TcpStream::from(fd);
    let local = door.local;
    let local = if local.ip().is_unspecified() { stream.local_addr().unwrap_or(local) } else { local };
    let connection = worker.counters.accepted.get();
    let client = ClientInfo { peer, local, tls: None, connection };
    let worker = worker.clone();
    if door.streams.is_some() || door.proxy_from.contains(peer.ip()) {
        tokio::task::spawn_local(open(worker, TcpConnection::fresh(stream), client, door.clone(), admitted));
        return;
    }
    let tls = door.tls.clone();
    // Boxed: on its way to its place the runtime would move the whole of it half a dozen times.
    tokio::task::spawn_local(Box::pin(downstream::run(
        worker,
        TcpConnection::fresh(stream),
        client,
        tls,
        admitted,
    )));
}

/// A connection that is a stream, or that a proxy in front has something to say of first.
async fn open(
    worker: Rc<Worker>,
    mut tcp: TcpConnection,
    mut client: ClientInfo,
    door: Rc<ListenerContext>,
    admitted: ConnectionGuard,
) {
    if door.proxy_from.contains(client.peer.ip())
        && !l4::arrival::take_proxy_header(&worker, &mut tcp, &mut client).await
    {
        return;
    }
    match door.streams {
        Some(protocol) => l4::run(worker, tcp, client, protocol, door.tls.clone()).await,
        None => downstream::run(worker, tcp, client, door.tls.clone(), admitted).await,
    }
}

#[cfg(test)]
mod tests;
