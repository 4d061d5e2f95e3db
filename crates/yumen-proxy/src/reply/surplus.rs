//! What endpoints still say of an answer that a plugin ended: read and dropped beside the traffic.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use yumen_snapshot::protection::Permit;
use yumen_snapshot::upstream::Keepalive;

use super::keep_link;
use crate::clock;
use crate::relay::Link;
use crate::task;
use crate::timers::until;
use crate::transfer::Transfer;
use crate::worker::Worker;

/// It is read as long as this, and no more than so much of it, for the connection to be kept.
const SURPLUS_MS: u64 = 50;
const SURPLUS_BYTES_MAX: u64 = 256 * 1024;

/// Reads what the endpoint still says at once; nobody waits for it. Without all of it its connection, or its stream, is
/// given up, which is no fault of the endpoint: its answer is not wanted.
#[cold]
pub(super) fn drop_beside(
    worker: &Rc<Worker>,
    (mut link, permit): (Link, Option<Permit>),
    download: &mut Transfer,
    keepalive: Keepalive,
) {
    let (worker, mut surplus) = (worker.clone(), download.take_surplus(SURPLUS_BYTES_MAX));
    task::spawn(async move {
        let timer = worker.timers.timer();
        timer.set(SURPLUS_MS);
        let buffers = &worker.buffers;
        let read = pin!(poll_fn(|cx| surplus.poll_surplus(cx, buffers, (&mut link.stream, &mut link.inbox))));
        let is_whole = matches!(until(&timer, read).await, Some(Ok(())));
        link.inbox.release(buffers);
        if is_whole && link.is_clean() && worker.departures.knows(link.pool_key.endpoint()) {
            keep_link(&worker, link, permit, &keepalive, clock::now());
        } else {
            // Whoever is called by the permit must find the connection gone.
            drop(link);
        }
    });
}
