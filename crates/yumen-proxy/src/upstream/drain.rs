//! The rest of a response that a plugin ended early. It is read and dropped, so that its connection can be
//! used again.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use yumen_snapshot::upstream::KeepaliveLimits;

use crate::copy::transfer::{BodySource, Transfer};
use crate::runtime::clock;
use crate::runtime::task;
use crate::runtime::timers::until;
use crate::upstream::UpstreamClient;
use crate::upstream::attempt::FinishedAttempt;
use crate::upstream::connection::UpstreamConnection;

/// The time and the bytes after which the connection is closed instead.
const DRAIN_MS: u64 = 50;
const DRAIN_BYTES_MAX: u64 = 256 * 1024;
/// Responses that a worker drains in the background at once. Each holds a connection to an endpoint.
const DRAINS_MAX: usize = 64;

impl FinishedAttempt {
    /// Reads and drops the part of the response that `download` did not take, then keeps the connection. A response
    /// that does not end within the limits closes it, which is no failure of the endpoint.
    ///
    /// The client waits only if the attempt is limited: the request that is admitted next must find the
    /// connection. A client whose connection ends (`client_waits`) does not wait at all.
    #[cold]
    pub(crate) async fn drain(
        self,
        client: &Rc<UpstreamClient>,
        download: &mut Transfer,
        keepalive: KeepaliveLimits,
        client_waits: bool,
    ) {
        let surplus = download.take_surplus(DRAIN_BYTES_MAX);
        let is_limited = self.is_limited();
        let FinishedAttempt { connection, head, request_permit } = self;
        client.give_response(head);
        if !is_limited && client.drains.get() < DRAINS_MAX {
            let drain = BackgroundDrain::enter(client);
            task::spawn(async move {
                if let Some(connection) = read(&drain.0, connection, surplus).await {
                    drain.0.keep(connection, &keepalive, clock::now());
                }
            });
        } else if client_waits && let Some(connection) = read(client, connection, surplus).await {
            client.keep(connection, &keepalive, clock::now());
        }
        // A request that this admits finds the connection in the pool.
        drop(request_permit);
    }
}

/// Reads the whole surplus; `None` if the connection is closed instead.
async fn read(
    client: &UpstreamClient,
    mut connection: Box<UpstreamConnection>,
    mut surplus: Transfer,
) -> Option<Box<UpstreamConnection>> {
    let timer = client.timers.timer();
    timer.set(DRAIN_MS);
    let buffers = &client.buffers;
    let UpstreamConnection { stream, inbox, .. } = &mut *connection;
    let read = pin!(poll_fn(|cx| surplus.poll_surplus(cx, buffers, BodySource { stream, inbox })));
    let is_whole = matches!(until(&timer, read).await, Some(Ok(())));
    connection.inbox.release(buffers);
    // The endpoint may have been removed from the configuration during the drain.
    let is_known = || client.connected_endpoints.contains(connection.pool_key.endpoint());
    let is_reusable = is_whole && connection.is_reusable() && is_known();
    is_reusable.then_some(connection)
}

/// Counts a drain in the background until it ends.
struct BackgroundDrain(Rc<UpstreamClient>);

impl BackgroundDrain {
    fn enter(client: &Rc<UpstreamClient>) -> BackgroundDrain {
        client.drains.set(client.drains.get() + 1);
        BackgroundDrain(client.clone())
    }
}

impl Drop for BackgroundDrain {
    fn drop(&mut self) {
        self.0.drains.set(self.0.drains.get() - 1);
    }
}
