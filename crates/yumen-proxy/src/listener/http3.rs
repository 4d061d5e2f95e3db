//! Sockets that clients reach by HTTP/3: a worker's endpoint of each listener, and the handshakes under way.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::sync::watch;

use crate::downstream;
use crate::http3::Http3Listener;
use crate::worker::Worker;
use crate::worker_duty::WorkerDuty;

/// While so many handshakes are under way, a client shows first that it is where it says (RFC 9000 §8.1.2).
const UNPROVEN_MAX: usize = 256;
/// Serves a listener until the worker drains; its connections go on to their ends.
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
    let door = Rc::new(Http3ListenerContext { worker, endpoint, local, shaking: Rc::default() });
    tokio::select! {
        () = door.accept() => return,
        _ = duty.wait_for(|duty| duty.is_over()) => {}
    }
    // Another process may read from the socket by now: what is still here came before, and is told to go there
    // once it is served. Where none does, a client that is told can go elsewhere at once.
    tokio::task::spawn_local(async move {
        tokio::select! {
            () = door.accept() => return,
            _ = duty.wait_for(|duty| matches!(duty, WorkerDuty::End { .. })) => {}
        }
        while let Some(incoming) = door.endpoint.accept().await {
            incoming.refuse();
        }
    });
}

/// A worker's endpoint of a listener.
struct Http3ListenerContext {
    worker: Rc<Worker>,
    endpoint: quinn::Endpoint,
    local: SocketAddr,
    shaking: Rc<Cell<usize>>,
}

impl Http3ListenerContext {
    /// Begins connections as long as the endpoint lives.
    async fn accept(&self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let is_busy = self.shaking.get() >= UNPROVEN_MAX;
            if is_busy && incoming.may_retry() && !incoming.remote_address_validated() {
                // It may retry, as was just asked.
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

/// A handshake under way; counted out however it ends.
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
