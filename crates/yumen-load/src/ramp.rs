//! One step of a rate ramp, as in httperf: connections start at a constant rate, and each sends its calls in
//! sequence. Independent of the other steps.

use std::rc::Rc;

use tokio::task::spawn_local;

use crate::http1::Http1Client;
use crate::phase::RampTarget;
use crate::plan::LoadShape;
use crate::tally::RequestMoments;
use crate::worker::{LoadWorker, RequestLoop};

/// Rates of a ramp in order.
pub(crate) fn steps(kind: &LoadShape) -> Vec<RampTarget> {
    let LoadShape::Ramp { low, high, step, calls, connections_per_step } = *kind else { return Vec::new() };
    let count = ((high - low) / step + 1e-9).floor() as u64 + 1;
    let rates = (0..count).map(|index| low + index as f64 * step);
    rates.map(|rate| RampTarget { rate, connections: connections_per_step, calls }).collect()
}

/// Runs this thread's share of the connections of a step.
pub(crate) async fn work(worker: &Rc<LoadWorker>) {
    let Some(step) = worker.shared.ramp else { return };
    let timer = worker.alarm.timer();
    let mut tasks = Vec::new();
    for number in (worker.thread as u64..step.connections).step_by(worker.prepared.plan.threads) {
        let due_ns = worker.start_ns() + (number as f64 * 1e9 / step.rate) as u64;
        timer.until(due_ns).await;
        tasks.push(spawn_local(connection(worker.clone(), number as usize, step.calls)));
    }
    for task in tasks {
        // A panicked connection counts as ended.
        let _ = task.await;
    }
}

/// One connection and its calls; the first failure ends the connection.
async fn connection(worker: Rc<LoadWorker>, number: usize, calls: u32) {
    let request_loop = RequestLoop::new(&worker, number);
    let mut client = Http1Client::new(&worker, number);
    for _ in 0..calls {
        request_loop.sent_ns.set(None);
        let outcome = client.exchange(&worker, worker.pick(&request_loop), &request_loop).await;
        let moments = RequestMoments {
            intended_ns: None,
            sent_ns: request_loop.sent_ns.get(),
            ended_ns: worker.clock.now_ns(),
        };
        let mut tally = worker.tally.borrow_mut();
        match outcome {
            Ok(status) => tally.answered(moments, status),
            Err(failure) => {
                tally.failed(moments, failure);
                return;
            }
        }
    }
}
