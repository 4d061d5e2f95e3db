//! The main function of a worker thread: runtime, accept tasks, drain.

use std::io;
use std::rc::Rc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::l4::udp::{self, Datagrams};
use crate::listen::dynamic::{DynamicListeners, ListenerCommand};
use crate::listen::listener::{self, Listener};
use crate::listen::quic::Http3Listener;
use crate::runtime::clock;
use crate::runtime::offload_queue::OFFLOAD_THREADS;
use crate::runtime::worker_duty::WorkerDuty;
use crate::sys;
use crate::tls::DownstreamTlsAcceptor;
use crate::worker::{Worker, WorkerParts};

/// The listeners of one worker.
#[derive(Default)]
pub struct WorkerListeners {
    /// TCP listeners of the node's settings.
    pub listeners: Vec<Listener>,
    /// UDP listeners of the node's settings.
    pub datagrams: Vec<Datagrams>,
    /// HTTP/3 listeners of the node's settings.
    pub http3: Vec<Http3Listener>,
    /// Listeners of the configuration; `None` if the worker has none.
    pub dynamic: Option<ListenerCommands>,
}

/// The source of the listeners of the configuration.
pub struct ListenerCommands {
    /// Changes, in order.
    pub commands: UnboundedReceiver<ListenerCommand>,
    /// The acceptor that all listeners share.
    pub acceptor: DownstreamTlsAcceptor,
}

/// Serves on the calling thread until `parts.duty` ends, then drains until all exchanges have ended or the
/// drain bound has passed.
///
/// # Errors
///
/// Fails if the runtime cannot be built.
pub fn worker(parts: WorkerParts, listeners: WorkerListeners) -> io::Result<()> {
    if let Err(error) = sys::set_short_slice() {
        tracing::debug!(%error, "worker time slice not shortened");
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        // The runtime calls this at each turn of its event loop, which keeps the cached time fresh.
        .on_thread_unpark(clock::refresh)
        // The blocking pool runs only jobs that plugins offload.
        .max_blocking_threads(OFFLOAD_THREADS)
        .thread_name("yumen-offload")
        .on_thread_start(yield_to_workers)
        .event_interval(61)
        .build_local(LocalOptions::default())?;
    let mut duty = parts.duty.clone();
    runtime.block_on(async move {
        let worker = Worker::new(parts);
        let timers = worker.timers.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = timers.drive().await {
                tracing::error!(%error, "timer task failed");
            }
        });
        tokio::task::spawn_local(worker.clone().run_chores());
        if worker.admission.overload.is_some() {
            tokio::task::spawn_local(worker.clone().watch_overload());
        }
        let AcceptTasks { mut accepting, dynamic } = start_listeners(&worker, listeners, &duty);
        wait_for_end(&mut duty).await;
        let current = *duty.borrow();
        worker.start_drain(current);
        if let Some(dynamic) = dynamic {
            accepting.extend(dynamic.await.unwrap_or_default());
        }
        for task in accepting {
            // A panic of an accept task must not end the worker.
            let _ = task.await;
        }
        // The drain starts once the listeners have accepted their last connections.
        worker.drain(&duty).await;
        worker.plugin_services.sinks.flush();
        // Calls that plugins made at the end of the drain still get their replies.
        worker.plugin_services.redis.close().await;
    });
    Ok(())
}

/// Tasks that end after they have accepted the last connections of a worker.
struct AcceptTasks {
    accepting: Vec<JoinHandle<()>>,
    /// The task of the dynamic listeners returns the tasks that accept for them.
    dynamic: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

fn start_listeners(
    worker: &Rc<Worker>,
    all: WorkerListeners,
    duty: &watch::Receiver<WorkerDuty>,
) -> AcceptTasks {
    let WorkerListeners { listeners, datagrams, http3, dynamic } = all;
    let accept =
        |listener| tokio::task::spawn_local(listener::accept(worker.clone(), listener, duty.clone()));
    let mut accepting: Vec<_> = listeners.into_iter().map(accept).collect();
    for listener in http3 {
        let accept = listener::http3::accept(worker.clone(), listener, duty.clone());
        accepting.push(tokio::task::spawn_local(accept));
    }
    for datagrams in datagrams {
        // Not awaited: a draining worker forwards the datagrams of its open sessions until they end.
        tokio::task::spawn_local(udp::serve(worker.clone(), datagrams, duty.clone()));
    }
    let dynamic = dynamic.map(|ListenerCommands { commands, acceptor }| {
        let dynamic = DynamicListeners::new(worker.clone(), acceptor, duty.clone());
        tokio::task::spawn_local(dynamic.run(commands))
    });
    AcceptTasks { accepting, dynamic }
}

/// Lowers the scheduling priority of an offload thread, which inherits the short time slice of its worker.
fn yield_to_workers() {
    if let Err(error) = sys::take_long_turns() {
        tracing::debug!(%error, "a thread for offloaded jobs keeps the turns of its worker");
    }
}

/// Waits until the worker has to stop accepting, or the sender of the duty is dropped.
async fn wait_for_end(duty: &mut watch::Receiver<WorkerDuty>) {
    let _ = duty.wait_for(|duty| duty.is_over()).await;
}
