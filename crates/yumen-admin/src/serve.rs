//! Connections of the listeners: how many, how long, how large a head.
//!
//! Knows nothing of what is served.

use std::future::Future;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::access::Peer;
use crate::tls::AdminTls;

/// What a listener grants its clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at once; more wait in the kernel's backlog.
    pub(crate) connections: usize,
    /// From the first moment of waiting for a request to the end of its head.
    pub(crate) head: Duration,
    /// After that a connection serves the request under way and closes.
    pub(crate) lifetime: Duration,
    /// For the request under way when its connection must close.
    pub(crate) grace: Duration,
}

pub(crate) const BOUNDS: Bounds = Bounds {
    connections: 256,
    head: Duration::from_secs(30),
    lifetime: Duration::from_secs(600),
    grace: Duration::from_secs(5),
};

/// Bytes of a head (and of what is read ahead of a body); hyper asks for at least 8 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// When a listener ends, for a request that is on its way.
const LATE: Duration = Duration::from_secs(1);
/// Out of file descriptors or the like: trying again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `shutdown` is done and the requests under way had their grace.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(listener, None, router, bounds, shutdown).await;
}

/// As [`serve`], over TLS where there is any.
pub(crate) async fn serve_with(
    listener: TcpListener,
    tls: Option<AdminTls>,
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept(), if connections.len() < bounds.connections => match accepted {
                Ok((stream, peer)) => {
                    let router = router.clone().layer(Extension(Peer(peer.ip().to_canonical())));
                    connections.spawn(welcome(stream, tls.clone(), router, bounds, stopped.clone()));
                }
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

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        warn!(%error, "a connection of the control plane failed");
    }
}

async fn welcome(
    stream: TcpStream,
    tls: Option<AdminTls>,
    router: Router,
    bounds: Bounds,
    stopped: watch::Receiver<()>,
) {
    let Some(AdminTls(config)) = tls else {
        return connection(stream, router, bounds, stopped).await;
    };
    match timeout(bounds.head, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, router, bounds, stopped).await,
        Ok(Err(error)) => debug!(%error, "no TLS handshake"),
        Err(_) => debug!("a TLS handshake took too long"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    bounds: Bounds,
    mut stopped: watch::Receiver<()>,
) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => {
            if let Err(error) = ended {
                debug!(%error, "connection ended early");
            }
            return;
        }
        // an error says that the sender is gone, which is the signal
        _ = stopped.changed() => {
            // One that was just accepted has asked, only later.
            if timeout(LATE, serving.as_mut()).await.is_ok() {
                return;
            }
        }
        () = sleep(bounds.lifetime) => {}
    }
    serving.as_mut().graceful_shutdown();
    if timeout(bounds.grace, serving).await.is_err() {
        debug!("connection cut after its grace");
    }
}
