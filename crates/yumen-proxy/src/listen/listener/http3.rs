//! HTTP/3 listeners: the QUIC endpoint of each worker, and the handshakes in flight.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::sync::watch;

use crate::downstream;
use crate::listen::quic::Http3Listener;
use crate::runtime::worker_duty::WorkerDuty;
use crate::worker::Worker;

/// Number of handshakes in flight from which a client has to validate its address by a Retry packet (RFC 9000
/// §8.1.2).
const UNPROVEN_MAX: usize = 256;
/// Accepts connections until the worker drains; open connections continue.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener: Http3Listener,
    mut duty: watch::Receiver<WorkerDuty>,
) {
    let opened = listener.open().and_then(|endpoint| Ok((endpoint.local_addr()?, endpoint)));
    let (local, endpoint) = match opened {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(%error, "HTTP/3 socket registration failed"),
    };
    let context = Rc::new(Http3ListenerContext { worker, endpoint, local, shaking: Rc::default() });
    tokio::select! {
        () = context.accept() => return,
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
    shaking: Rc<Cell<usize>>,
}

impl Http3ListenerContext {
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
            tokio::task::spawn_local(downstream::open_http3(
                self.worker.clone(),
                incoming,
                self.local,
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
