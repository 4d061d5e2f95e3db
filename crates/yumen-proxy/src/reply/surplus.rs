//! What endpoints still say of an answer that a plugin ended: read and dropped, beside the traffic where that is not held
//! back by it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use yumen_snapshot::protection::Permit;
use yumen_snapshot::upstream::Keepalive;

use super::keep_link;
use crate::clock;
use crate::task;
use crate::timers::until;
use crate::transfer::Transfer;
use crate::upstream::connection::UpstreamConnection;
use crate::worker::Worker;

/// It is read as long as this, and no more than so much of it, for the connection to be kept.
const SURPLUS_MS: u64 = 50;
const SURPLUS_BYTES_MAX: u64 = 256 * 1024;
/// Of so many answers of a worker at a time: with more, each would have its own connection to the endpoint.
const BESIDE_MAX: usize = 64;

/// Reads what the endpoint still says at once. Without all of it its connection, or its stream, is given up, which is no
/// fault of the endpoint: its answer is not wanted.
///
/// Nobody waits for it, unless the exchange has a place among those that are bounded: whoever has the next one must find
/// the connection. A client whose connection ends waits for nothing.
#[cold]
pub(super) async fn drop_rest(
    worker: &Rc<Worker>,
    link: UpstreamConnection,
    download: &mut Transfer,
    keepalive: Keepalive,
    client: Waits<'_>,
) {
    let surplus = download.take_surplus(SURPLUS_BYTES_MAX);
    if !client.is_bounded && worker.surpluses.get() < BESIDE_MAX {
        let beside = Beside::enter(worker);
        task::spawn(async move {
            if let Some(link) = read(&beside.0, link, surplus).await {
                keep_link(&beside.0, link, None, &keepalive, clock::now());
            }
        });
    } else if client.keeps
        && let Some(link) = read(worker, link, surplus).await
    {
        keep_link(worker, link, client.permit.take(), &keepalive, clock::now());
    }
}

/// What is to be known of the client to have it wait.
pub(super) struct Waits<'p> {
    /// Its connection goes on.
    pub(super) keeps: bool,
    /// The exchange has a place among those that are bounded.
    pub(super) is_bounded: bool,
    pub(super) permit: &'p mut Option<Permit>,
}

/// Reads it all, or gives the connection up.
async fn read(
    worker: &Worker,
    mut link: UpstreamConnection,
    mut surplus: Transfer,
) -> Option<UpstreamConnection> {
    let timer = worker.timers.timer();
    timer.set(SURPLUS_MS);
    let buffers = &worker.buffers;
    let read = pin!(poll_fn(|cx| surplus.poll_surplus(cx, buffers, (&mut link.stream, &mut link.inbox))));
    let is_whole = matches!(until(&timer, read).await, Some(Ok(())));
    link.inbox.release(buffers);
    let is_kept = is_whole && link.is_reusable() && worker.departures.knows(link.pool_key.endpoint());
    is_kept.then_some(link)
}

/// Counts what is read beside the traffic.
struct Beside(Rc<Worker>);

impl Beside {
    fn enter(worker: &Rc<Worker>) -> Beside {
        worker.surpluses.set(worker.surpluses.get() + 1);
        Beside(worker.clone())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.surpluses.set(self.0.surpluses.get() - 1);
    }
}
