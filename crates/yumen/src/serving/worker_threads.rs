//! Worker threads, with their sockets and the access log.
//!
//! Owns start and end of workers; the data plane implements them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use yumen_config::NodeConfig;
use yumen_config::node::{AccessLogFormat, LogEscape};
use yumen_plugin::SinkHandle;
use yumen_proxy::access_log::{
    self, AccessLineFormat, AccessLogBuffer, LineEscape, LineTemplate, LogBacklog, LogQueue,
};
use yumen_proxy::run::{ListenerCommands, WorkerListeners};
use yumen_proxy::{ListenerCommand, WorkerCounters, WorkerDuty, WorkerParts, WorkerSettings};
use yumen_snapshot::Publisher;

use super::listener_supervisor::ListenerServices;
use super::listeners::BoundListeners;
use crate::process::log_file::LogFile;
use crate::process::{self, WorkerPlacement};

/// Threads of the workers, with their exported state.
pub(crate) struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    applied: Vec<Arc<AtomicU64>>,
    log_writer: Option<AccessLogThread>,
}

impl WorkerThreads {
    pub(crate) fn view(&self) -> WorkersView {
        WorkersView { counters: self.counters.clone(), applied: self.applied.clone() }
    }

    pub(crate) fn start(
        node: &NodeConfig,
        placement: &WorkerPlacement,
        publisher: &Arc<Publisher>,
        settings: Arc<WorkerSettings>,
        listeners: Vec<WorkerListeners>,
        duty: &watch::Receiver<WorkerDuty>,
        otlp_log: Option<SinkHandle>,
    ) -> anyhow::Result<WorkerThreads> {
        let (log_queue, log_writer) = start_access_log(node)?;
        let log_format = log_format(node)?;
        let mut workers =
            WorkerThreads { threads: Vec::new(), counters: Vec::new(), applied: Vec::new(), log_writer };
        for (id, listeners) in listeners.into_iter().enumerate() {
            let (counters, applied) = (Arc::<WorkerCounters>::default(), Arc::<AtomicU64>::default());
            let parts = WorkerParts {
                id,
                settings: Arc::<WorkerSettings>::clone(&settings),
                publisher: publisher.clone(),
                counters: counters.clone(),
                applied: applied.clone(),
                log: log_queue.as_ref().map(|queue| AccessLogBuffer::new(log_format.clone(), queue.clone())),
                otlp_log: otlp_log.clone(),
                duty: duty.clone(),
                seed: seed()?,
            };
            workers.threads.push(start_worker(node, placement.clone(), parts, listeners)?);
            workers.counters.push(counters);
            workers.applied.push(applied);
        }
        Ok(workers)
    }

    /// Waits until all workers have ended.
    pub(crate) fn join(self) {
        for thread in self.threads {
            // A panic has been logged by its hook.
            let _ = thread.join();
        }
        self.log_writer.into_iter().for_each(AccessLogThread::join);
    }
}

/// Read-only view of the workers.
#[derive(Clone)]
pub(crate) struct WorkersView {
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    /// Number of the last publication that each worker picked up.
    applied: Vec<Arc<AtomicU64>>,
}

impl WorkersView {
    /// Number of the last publication that each worker picked up.
    pub(crate) fn applied(&self) -> Vec<u64> {
        self.applied.iter().map(|version| version.load(Ordering::Acquire)).collect()
    }

    /// Client connections open over all workers.
    pub(crate) fn open_connections(&self) -> u64 {
        self.counters.iter().map(|counters| counters.connections.open.get().max(0) as u64).sum()
    }
}

/// Thread that writes the access log.
struct AccessLogThread {
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
    backlog: LogBacklog,
}

impl AccessLogThread {
    /// Time to write queued lines at shutdown.
    const LAST_LINES: Duration = Duration::from_secs(2);

    /// Waits at most `LAST_LINES` for queued lines: the reader of the log may have stalled.
    fn join(self) {
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(AccessLogThread::LAST_LINES) {
            let lines = self.backlog.lines();
            tracing::warn!(lines, "access log stalled, queued lines lost");
        }
    }
}

/// The listeners of all workers: those of the node's settings, and the source of those of the configuration.
pub(crate) fn listeners_by_worker(
    listeners: &mut BoundListeners,
    services: &ListenerServices,
    commands: Vec<UnboundedReceiver<ListenerCommand>>,
) -> anyhow::Result<Vec<WorkerListeners>> {
    let ListenerServices { node, acceptor, .. } = services;
    let http3 = listeners.take_http3(services)?;
    let of_worker = |(id, (http3, commands))| {
        Ok(WorkerListeners {
            listeners: listeners.of_worker(id, node, acceptor)?,
            datagrams: listeners.datagrams_of_worker(id)?,
            http3,
            dynamic: Some(ListenerCommands { commands, acceptor: acceptor.clone() }),
        })
    };
    http3.into_iter().zip(commands).enumerate().map(of_worker).collect()
}

fn start_worker(
    node: &NodeConfig,
    placement: WorkerPlacement,
    parts: WorkerParts,
    listeners: WorkerListeners,
) -> anyhow::Result<JoinHandle<()>> {
    let affinity = node.workers.cpu_affinity.clone();
    // Threads inherit the raised priority of the control thread: reset it.
    let nice = if node.workers.nice == 0 { placement.base_nice } else { node.workers.nice.into() };
    let thread = std::thread::Builder::new().name(format!("yumen-worker-{}", parts.id));
    Ok(thread.spawn(move || {
        let id = parts.id;
        process::set_worker_affinity(id, &affinity, nice, &placement.cpus);
        if let Err(error) = yumen_proxy::run::worker(parts, listeners) {
            tracing::error!(worker = id, %error, "worker could not start");
        }
    })?)
}

fn seed() -> anyhow::Result<u64> {
    Ok(getrandom::u64()?)
}

fn log_format(node: &NodeConfig) -> anyhow::Result<AccessLineFormat> {
    let access = &node.logs.access;
    if !access.line.is_empty() {
        let escape = match access.escape {
            LogEscape::Default => LineEscape::Default,
            LogEscape::Json => LineEscape::Json,
            LogEscape::None => LineEscape::None,
        };
        let line = LineTemplate::parse(&access.line, escape);
        return line
            .map(AccessLineFormat::Line)
            .map_err(|why| anyhow!("yumen.yaml: logs.access.line: {why}"));
    }
    Ok(match access.format {
        AccessLogFormat::Json => AccessLineFormat::Json,
        AccessLogFormat::Combined => AccessLineFormat::Combined,
    })
}

fn start_access_log(node: &NodeConfig) -> anyhow::Result<(Option<LogQueue>, Option<AccessLogThread>)> {
    let access = &node.logs.access;
    if !access.enabled {
        return Ok((None, None));
    }
    let sink: Box<dyn std::io::Write + Send> = match access.path.as_str() {
        // A duplicate of the descriptor: the buffer of `std::io::stdout` would be flushed again at process
        // exit.
        "-" => Box::new(std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?)),
        path => {
            let file = LogFile::open(path.as_ref());
            Box::new(file.with_context(|| format!("cannot write the access log {path}"))?)
        }
    };
    let (queue, writer) = access_log::queue(access.queue_lines.into());
    let (ends, ended) = channel();
    let backlog = writer.backlog();
    let thread = std::thread::Builder::new().name("yumen-log".into());
    thread.spawn(move || {
        writer.run(sink);
        // Moved into the thread: its drop signals the end even after a panic.
        drop::<Sender<()>>(ends);
    })?;
    Ok((Some(queue), Some(AccessLogThread { ended, backlog })))
}
