//! Connections of the operators' listeners: bounds on their number, their duration and their heads.
//!
//! Independent of the served routes.

mod connection_slots;
mod stall_guard;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};
use yumen_base::IpSet;

use crate::access::{AdminPeer, LocalPeer};
use crate::tls::AdminTls;
use connection_slots::{ConnectionSlot, ConnectionSlots};
use stall_guard::{StallGuardedBody, StallGuardedStream, TrackedBody};

pub(crate) use stall_guard::BodyStalled;

/// Bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerBounds {
    /// Connections at once. A further one replaces the connection that has been idle longest; if all
    /// connections serve requests, it waits.
    pub(crate) connections: usize,
    /// From the start of waiting for a request to the end of its head.
    pub(crate) head: Duration,
    /// For a body without progress, in either direction.
    pub(crate) stall: Duration,
    /// After this time a connection completes the request in flight and closes.
    pub(crate) lifetime: Duration,
    /// For the request in flight when its connection must close.
    pub(crate) grace: Duration,
}

pub(crate) const BOUNDS: ServerBounds = ServerBounds {
    connections: 256,
    head: Duration::from_secs(30),
    stall: Duration::from_secs(30),
    lifetime: Duration::from_secs(600),
    grace: Duration::from_secs(5),
};

/// Bytes of a head, and of a body that are read ahead; hyper requires at least 8 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Time for a request that is arriving when the listener ends.
const LATE: Duration = Duration::from_secs(1);
/// Pause after a failed accept, such as without file descriptors, where an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The clients of a listener and their transport.
#[derive(Clone, Default)]
pub(crate) struct ListenerAccess {
    /// TLS; `None` for plain HTTP.
    pub(crate) tls: Option<AdminTls>,
    /// Networks of allowed clients; `None` allows all. Other clients get a refusal while slots are free, and
    /// never take the slot of an allowed client.
    pub(crate) allow: Option<IpSet>,
}

/// Serves `router` on `listener` until `shutdown` completes and the requests in flight had their grace.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: ServerBounds,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(listener, ListenerAccess::default(), router, bounds, shutdown).await;
}

/// As [`serve`], with TLS and allowed clients.
pub(crate) async fn serve_with(
    listener: TcpListener,
    access: ListenerAccess,
    router: Router,
    bounds: ServerBounds,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let (mut connections, slots) = (JoinSet::new(), ConnectionSlots::default());
    // A connection that was accepted and has no slot yet.
    let mut waiting: Option<(TcpStream, IpAddr)> = None;
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // Ended connections are collected here, so the set does not grow.
            Some(ended) = connections.join_next() => report(ended),
            // An idle connection can now be closed for the waiting one.
            () = slots.idles(), if waiting.is_some() => {}
            // One connection waits for a slot; all others stay in the backlog.
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok((stream, peer)) => waiting = Some((stream, peer.ip().to_canonical())),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
        let Some((stream, peer)) = waiting.take() else { continue };
        let is_unauthenticated = access.allow.as_ref().is_some_and(|allow| !allow.contains(peer));
        // A disallowed client gets its refusal while there is room, so that its operator learns the reason.
        if connections.len() < bounds.connections {
            let router = router.clone().layer(Extension(AdminPeer(peer)));
            let slot = slots.take(is_unauthenticated);
            connections.spawn(welcome(stream, access.tls.clone(), router, bounds, slot, stopped.clone()));
            // It must never take a slot from an allowed client.
        } else if is_unauthenticated {
            debug!(%peer, "client address not allowed, connection limit reached");
        } else {
            slots.make_room();
            // The client keeps waiting until the closed connection has released its slot.
            waiting = Some((stream, peer));
        }
    }
    // From here on, new clients are refused or reach the successor process.
    drop(listener);
    // The signal for all connections to end.
    drop(stop);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// Serves `router` on a Unix socket until `shutdown` completes. Only the user `owner` and root get responses.
pub(crate) async fn serve_unix(
    listener: UnixListener,
    owner: u32,
    router: Router,
    bounds: ServerBounds,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let (mut connections, slots) = (JoinSet::new(), ConnectionSlots::default());
    let router = router.layer(Extension(LocalPeer));
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => report(ended),
            // Clients beyond the bound wait in the backlog.
            accepted = listener.accept(), if connections.len() < bounds.connections => match accepted {
                // The mode of the socket admits no other user; it is set after the socket exists.
                Ok((stream, _)) if is_user(&stream, owner) => {
                    let (router, slot, stopped) = (router.clone(), slots.take(false), stopped.clone());
                    connections.spawn(async move { connection(stream, router, bounds, &slot, stopped).await });
                }
                Ok(_) => debug!("client of another user closed"),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    drop(stop);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

fn is_user(stream: &UnixStream, owner: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == owner || peer.uid() == 0)
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        warn!(%error, "admin connection failed");
    }
}

async fn welcome(
    stream: TcpStream,
    tls: Option<AdminTls>,
    router: Router,
    bounds: ServerBounds,
    slot: ConnectionSlot,
    stopped: watch::Receiver<()>,
) {
    let serving = async {
        let Some(AdminTls(config)) = tls else {
            return connection(stream, router, bounds, &slot, stopped).await;
        };
        // A client that does not complete its handshake must not hold a slot.
        match timeout(bounds.head, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => connection(stream, router, bounds, &slot, stopped).await,
            Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
            Err(_) => debug!("TLS handshake timed out"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = slot.lost() => debug!("idle connection closed to accept a new one"),
    }
}

/// Serves a request if its connection still has its slot.
async fn in_place(
    router: &TowerToHyperService<Router>,
    request: Request<Incoming>,
    bounds: ServerBounds,
    slot: &ConnectionSlot,
    stopped: &watch::Receiver<()>,
) -> Result<Response, Infallible> {
    const CLOSE: HeaderValue = HeaderValue::from_static("close");
    let Some(busy) = slot.busy() else {
        // The connection is about to be closed, so no request may start on it.
        return Ok((StatusCode::SERVICE_UNAVAILABLE, [(header::CONNECTION, CLOSE)]).into_response());
    };
    let request = request.map(|body| Body::new(StallGuardedBody::new(body, bounds.stall)));
    let mut response = router.call(request).await?;
    // The listener ends, so the next request must use a new connection.
    if has_ended(stopped) {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    // The slot stays busy until the body was sent, so the connection is not closed in the middle of it.
    Ok(response.map(|body| Body::new(TrackedBody { body, _busy: busy })))
}

/// The dropped sender is the signal.
fn has_ended(stopped: &watch::Receiver<()>) -> bool {
    stopped.has_changed().is_err()
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    bounds: ServerBounds,
    slot: &ConnectionSlot,
    mut stopped: watch::Receiver<()>,
) {
    let (router, ending) = (TowerToHyperService::new(router), stopped.clone());
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        // Slow heads would hold connections (slowloris).
        .header_read_timeout(bounds.head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(
            TokioIo::new(StallGuardedStream::new(stream, bounds.stall)),
            service_fn(|request| in_place(&router, request, bounds, slot, &ending)),
        );
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => {
            if let Err(error) = ended {
                debug!(%error, "connection ended early");
            }
            return;
        }
        _ = stopped.changed() => {
            // The request of a connection accepted just before may still be arriving.
            if timeout(LATE, serving.as_mut()).await.is_ok() {
                return;
            }
        }
        () = sleep(bounds.lifetime) => {}
    }
    serving.as_mut().graceful_shutdown();
    // The request in flight may complete; a client that does not read ends here.
    if timeout(bounds.grace, serving).await.is_err() {
        debug!("connection aborted at the end of the shutdown period");
    }
}
