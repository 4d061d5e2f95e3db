//! Connections that are opened, may make some requests, and are then held while the target's memory is looked at.
//! Must not know who looks.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use crate::http1::Http1Client;
use crate::plan::LoadShape;
use crate::tally::{RequestFailure, RequestMoments};
use crate::worker::{LoadWorker, RequestLoop};

/// Connections each thread opens at once.
const OPENING: usize = 64;
const LOOK_NS: u64 = 10_000_000;

/// Where threads and whoever looks at the target wait for each other.
#[derive(Debug, Default)]
pub(crate) struct IdleBarrier {
    /// Connections open and through with their requests.
    pub(crate) opened: AtomicU64,
    /// Connections that could not be opened, or failed in their requests.
    pub(crate) failed: AtomicU64,
    /// Connections the other side ended while they were held.
    pub(crate) lost: AtomicU64,
    /// They need not be held any longer.
    pub(crate) released: AtomicBool,
}

/// This thread's share of the connections, until they are released.
pub(crate) async fn work(worker: &Rc<LoadWorker>) {
    let LoadShape::Idle { requests_first, .. } = worker.prepared.plan.kind else { return };
    let opening = Arc::new(Semaphore::new(OPENING));
    let plan = &worker.prepared.plan;
    let mut tasks = Vec::new();
    for number in (worker.thread..plan.connections).step_by(plan.threads) {
        let permit = opening.clone().acquire_owned().await;
        let worker = worker.clone();
        tasks.push(spawn_local(async move {
            let client = open(&worker, number, requests_first).await;
            drop(permit);
            if let Some(client) = client {
                hold(&worker, client).await;
            }
        }));
    }
    let timer = worker.alarm.timer();
    while !worker.shared.idle.released.load(Ordering::Acquire) {
        timer.until(worker.clock.now_ns() + LOOK_NS).await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn open(worker: &Rc<LoadWorker>, number: usize, requests: u32) -> Option<Http1Client> {
    let gate = &worker.shared.idle;
    let opened = try_open(worker, number, requests).await;
    match opened {
        Ok(client) => {
            gate.opened.fetch_add(1, Ordering::AcqRel);
            Some(client)
        }
        Err((failure, moments)) => {
            worker.tally.borrow_mut().failed(moments, failure);
            gate.failed.fetch_add(1, Ordering::AcqRel);
            None
        }
    }
}

async fn try_open(
    worker: &Rc<LoadWorker>,
    number: usize,
    requests: u32,
) -> Result<Http1Client, (RequestFailure, RequestMoments)> {
    let lane = RequestLoop::unscheduled(worker, number);
    let mut client = Http1Client::new(worker, number);
    let moments =
        || RequestMoments { intended_ns: None, sent_ns: lane.sent_ns.get(), ended_ns: worker.clock.now_ns() };
    client.link(worker, worker.prepared.targets[0].origin).await.map_err(|failure| (failure, moments()))?;
    for _ in 0..requests {
        let target = &worker.prepared.targets[0];
        let status = client.exchange(worker, target, &lane).await.map_err(|failure| (failure, moments()))?;
        worker.tally.borrow_mut().answered(moments(), status);
    }
    Ok(client)
}

/// Keeps the connection until the other side ends it, or the task is ended.
async fn hold(worker: &LoadWorker, client: Http1Client) {
    let link = client.into_link();
    if let Some(mut link) = link {
        poll_fn(|cx| link.stream.poll_news(cx)).await;
    }
    worker.shared.idle.lost.fetch_add(1, Ordering::AcqRel);
}
