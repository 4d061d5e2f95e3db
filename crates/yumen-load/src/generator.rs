//! One thread of the generator: its runtime, and the tasks of its request loops.
//! Must not know the schedule of requests.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Poll;

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use crate::http1::Http1Client;
use crate::http2::{Http2Session, Http2Sessions};
use crate::phase::PhaseShared;
use crate::plan::{LoadProtocol, LoadShape};
use crate::tally::{SecondCounts, ThreadTally};
use crate::worker::{LoadWorker, RequestLoop};
use crate::{idle, ramp};

/// Connections of a thread that connect concurrently before the start.
const CONNECT_AHEAD: usize = 64;

/// Generates load on the calling thread until the end of the phase.
pub(crate) fn run(
    shared: Arc<PhaseShared>,
    thread: usize,
    seconds: Sender<SecondCounts>,
) -> io::Result<ThreadTally> {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let worker = LoadWorker::new(shared, thread, seconds)?;
        let alarm = worker.alarm.clone();
        spawn_local(async move { alarm.drive().await });
        match &worker.prepared.plan.kind {
            LoadShape::Closed | LoadShape::Open { .. } => run_request_loops(&worker).await,
            LoadShape::Ramp { .. } => {
                worker.begin().await;
                ramp::work(&worker).await;
            }
            LoadShape::Idle { .. } => {
                worker.begin().await;
                idle::work(&worker).await;
            }
        }
        Ok(worker.take_tally())
    })
}

/// Runs the thread's request loops until all have ended or the run is over.
async fn run_request_loops(worker: &Rc<LoadWorker>) {
    let loops: Vec<Rc<RequestLoop>> =
        worker.loop_indexes().map(|index| Rc::new(RequestLoop::new(worker, index))).collect();
    let mut tasks = Vec::new();
    match worker.prepared.plan.protocol {
        LoadProtocol::Http1 => {
            let mut clients: Vec<_> =
                loops.iter().map(|request_loop| Http1Client::new(worker, request_loop.index)).collect();
            if connects_ahead(worker) {
                clients = connect_ahead(worker, clients).await;
            }
            worker.begin().await;
            for (request_loop, client) in loops.iter().zip(clients) {
                tasks.push(spawn_local(http1_loop(worker.clone(), request_loop.clone(), client)));
            }
        }
        LoadProtocol::Http2 => {
            let sessions = Http2Sessions::new(worker, loops.len());
            if connects_ahead(worker) {
                sessions.prepare(worker).await;
            }
            worker.begin().await;
            for (number, request_loop) in loops.iter().enumerate() {
                let session = sessions.of_loop(worker, number);
                tasks.push(spawn_local(http2_loop(worker.clone(), request_loop.clone(), session)));
            }
        }
    }
    let end = worker.alarm.timer();
    let mut finished = pin!(async {
        for task in tasks {
            // A panicked loop counts as ended.
            let _ = task.await;
        }
    });
    poll_fn(|cx| match finished.as_mut().poll(cx).is_ready() || worker.is_over(&end, cx) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
    worker.cut_off_all(&loops);
}

/// Whether to connect before the start, so that an open loop does not begin with a burst of handshakes.
///
/// Not if every request uses a new connection.
fn connects_ahead(worker: &LoadWorker) -> bool {
    let plan = &worker.prepared.plan;
    matches!(plan.kind, LoadShape::Open { .. }) && !plan.new_connection
}

async fn connect_ahead(worker: &Rc<LoadWorker>, clients: Vec<Http1Client>) -> Vec<Http1Client> {
    let mut ready = Vec::with_capacity(clients.len());
    let mut clients = clients.into_iter().peekable();
    while clients.peek().is_some() {
        // The batch size fits any listen backlog.
        let batch = clients.by_ref().take(CONNECT_AHEAD).map(|mut client| {
            let worker = worker.clone();
            spawn_local(async move {
                client.prepare(&worker).await;
                client
            })
        });
        for connecting in batch.collect::<Vec<_>>() {
            ready.extend(connecting.await);
        }
    }
    ready
}

async fn http1_loop(worker: Rc<LoadWorker>, request_loop: Rc<RequestLoop>, mut client: Http1Client) {
    while let Some(target) = worker.next(&request_loop).await {
        let outcome = client.exchange(&worker, target, &request_loop).await;
        worker.finish(&request_loop, outcome).await;
    }
}

async fn http2_loop(worker: Rc<LoadWorker>, request_loop: Rc<RequestLoop>, session: Rc<Http2Session>) {
    let timer = worker.alarm.timer();
    while let Some(target) = worker.next(&request_loop).await {
        let outcome = session.exchange(&worker, target, &request_loop, &timer).await;
        worker.finish(&request_loop, outcome).await;
    }
}
