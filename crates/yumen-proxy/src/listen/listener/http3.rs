//! HTTP/3 listeners: the QUIC endpoint of each worker, and the handshakes in flight.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use quinn::VarInt;
use tokio::sync::watch;
use yumen_plugin::{ClientInfo, ListenerNumber};

use crate::downstream;
use crate::listen::quic::Http3Listener;
use crate::runtime::close_signal::CloseSignal;
use crate::runtime::worker_duty::WorkerDuty;
use crate::worker::Worker;

/// Number of handshakes in flight from which a client has to validate its address by a Retry packet (RFC 9000
/// §8.1.2).
const UNPROVEN_MAX: usize = 256;
/// Time for which the connections of a closed listener go on, in milliseconds. They share its socket, which has to
/// close before its address can be bound again.
const CLOSED_MS: u64 = 10_000;
/// H3_NO_ERROR (RFC 9114 §8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// The part of an HTTP/3 listener that its owner controls. By default, of a listener of the node's settings.
#[derive(Default)]
pub(crate) struct Http3Control {
    /// The listener that new connections belong to.
    pub(crate) number: Cell<ListenerNumber>,
    /// See [`ClientInfo::mapped_port`].
    pub(crate) mapped_port: Cell<u16>,
    /// Ends the listener.
    pub(crate) close: CloseSignal,
}

/// Accepts connections of a listener of the node's settings.
pub(crate) async fn accept(worker: Rc<Worker>, listener: Http3Listener, duty: watch::Receiver<WorkerDuty>) {
    match listener.open() {
        Ok(endpoint) => accept_on(worker, endpoint, Rc::default(), duty).await,
        Err(error) => tracing::error!(%error, "HTTP/3 socket registration failed"),
    }
}

/// Accepts connections until the listener closes or the worker drains; open connections continue.
pub(crate) async fn accept_on(
    worker: Rc<Worker>,
    endpoint: quinn::Endpoint,
    control: Rc<Http3Control>,
    mut duty: watch::Receiver<WorkerDuty>,
) {
    let local = match endpoint.local_addr() {
        Ok(local) => local,
        Err(error) => return tracing::error!(%error, "HTTP/3 socket has no address"),
    };
    let shaking = Rc::default();
    let context =
        Rc::new(Http3ListenerContext { worker, endpoint, local, control: control.clone(), shaking });
    tokio::select! {
        () = context.accept() => return,
        () = control.close.wait() => return context.close().await,
        _ = duty.wait_for(|duty| duty.is_over()) => {}
    }
    // After a handover, the successor reads from the socket. The connections still queued here are served and
    // then sent to the successor. Without a successor, refusal lets a client try another node at once.
    tokio::task::spawn_local(async move {
        tokio::select! {
            () = context.accept() => return,
            _ = duty.wait_for(|duty| matches!(duty, WorkerDuty::End { .. })) => {}
        }
        while let Some(incoming) = context.endpoint.accept().await {
            incoming.refuse();
        }
    });
}

/// The QUIC endpoint of one worker for one listener.
struct Http3ListenerContext {
    worker: Rc<Worker>,
    endpoint: quinn::Endpoint,
    local: SocketAddr,
    control: Rc<Http3Control>,
    shaking: Rc<Cell<usize>>,
}

impl Http3ListenerContext {
    /// Refuses new connections until the open ones have ended, at most for `CLOSED_MS`.
    async fn close(&self) {
        let refuse = async {
            while let Some(incoming) = self.endpoint.accept().await {
                incoming.refuse();
            }
        };
        tokio::select! {
            () = refuse => {}
            () = self.endpoint.wait_idle() => return,
            () = self.worker.timers.clone().sleep(CLOSED_MS) => {}
        }
        self.endpoint.close(NO_ERROR, b"");
        self.endpoint.wait_idle().await;
    }

    /// Accepts connections until the endpoint closes.
    async fn accept(&self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let is_busy = self.shaking.get() >= UNPROVEN_MAX;
            // A returned token has validated the address, and a client accepts one Retry only (RFC 9000
            // §17.2.5).
            if is_busy && incoming.may_retry() && !incoming.remote_address_validated() {
                // Cannot fail, since `may_retry` was checked.
                let _ = incoming.retry();
                continue;
            }
            let Some(admitted) = self.worker.admit() else {
                incoming.refuse();
                continue;
            };
            let hands = Http3HandshakeGuard::begin(&self.shaking);
            let client = ClientInfo {
                // The library accepts a handshake from one address only. After the handshake it would report the
                // source of the newest datagram, which is not validated.
                peer: incoming.remote_address(),
                local: self.local,
                tls: None,
                connection_id: self.worker.counters.connections.accepted.get(),
                listener: self.control.number.get(),
                mapped_port: self.control.mapped_port.get(),
            };
            tokio::task::spawn_local(downstream::open_http3(
                self.worker.clone(),
                incoming,
                client,
                hands,
                admitted,
            ));
        }
    }
}

/// The count of one handshake in flight; released on drop.
struct Http3HandshakeGuard(Rc<Cell<usize>>);

impl Http3HandshakeGuard {
    fn begin(count: &Rc<Cell<usize>>) -> Http3HandshakeGuard {
        count.set(count.get() + 1);
        Http3HandshakeGuard(count.clone())
    }
}

impl Drop for Http3HandshakeGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
