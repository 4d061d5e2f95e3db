//! Idle connections: opened, optionally used for some requests, and held during the memory measurement.
//! Independent of the measurement.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use crate::http1::Http1Client;
use crate::plan::LoadShape;
use crate::tally::{RequestFailure, RequestMoments};
use crate::worker::{LoadWorker, RequestLoop};

/// Connections that each thread opens concurrently.
const OPENING: usize = 64;
/// Interval of the checks for the end of the hold.
const RELEASE_CHECK_NS: u64 = 10_000_000;

/// Opens and holds this thread's share of the connections until the release.
pub(crate) async fn work(worker: &Rc<LoadWorker>) {
    let LoadShape::Idle { requests_first, .. } = worker.prepared.plan.kind else { return };
    let opening = Arc::new(Semaphore::new(OPENING));
    let plan = &worker.prepared.plan;
    let mut tasks = Vec::new();
    for number in (worker.thread..plan.connections).step_by(plan.threads) {
        // Bounds the concurrent handshakes; the listen queue of the server would overflow otherwise.
        let permit = opening.clone().acquire_owned().await;
        let worker = worker.clone();
        tasks.push(spawn_local(async move {
            let client = open(&worker, number, requests_first).await;
            // The connection is open and used; it no longer counts as opening.
            drop(permit);
            if let Some(client) = client {
                hold(&worker, client).await;
            }
        }));
    }
    let timer = worker.alarm.timer();
    while !worker.shared.idle.released.load(Ordering::Acquire) {
        timer.until(worker.clock.now_ns() + RELEASE_CHECK_NS).await;
    }
    // Aborted, because `hold` ends by itself only if the peer closes.
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn open(worker: &Rc<LoadWorker>, number: usize, requests: u32) -> Option<Http1Client> {
    let barrier = &worker.shared.idle;
    let opened = try_open(worker, number, requests).await;
    match opened {
        Ok(client) => {
            // After the first requests, so that the measurement includes their memory.
            barrier.opened.fetch_add(1, Ordering::AcqRel);
            Some(client)
        }
        Err((failure, moments)) => {
            worker.tally.borrow_mut().failed(moments, failure);
            barrier.failed.fetch_add(1, Ordering::AcqRel);
            None
        }
    }
}

async fn try_open(
    worker: &Rc<LoadWorker>,
    number: usize,
    requests: u32,
) -> Result<Http1Client, (RequestFailure, RequestMoments)> {
    let request_loop = RequestLoop::new(worker, number);
    let mut client = Http1Client::new(worker, number);
    let moments = || RequestMoments {
        intended_ns: None,
        sent_ns: request_loop.sent_ns.get(),
        ended_ns: worker.clock.now_ns(),
    };
    client
        .ensure_connected(worker, worker.prepared.targets[0].origin)
        .await
        .map_err(|failure| (failure, moments()))?;
    for _ in 0..requests {
        let target = &worker.prepared.targets[0];
        let status =
            client.exchange(worker, target, &request_loop).await.map_err(|failure| (failure, moments()))?;
        worker.tally.borrow_mut().answered(moments(), status);
    }
    Ok(client)
}

/// Holds the connection until the peer closes it or the task is aborted.
async fn hold(worker: &LoadWorker, client: Http1Client) {
    let connection = client.into_connection();
    if let Some(mut connection) = connection {
        poll_fn(|cx| connection.stream.poll_idle_event(cx)).await;
    }
    // An abort never reaches this line.
    worker.shared.idle.lost.fetch_add(1, Ordering::AcqRel);
}
