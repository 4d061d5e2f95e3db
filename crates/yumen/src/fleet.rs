//! The workers: their threads, their sockets, their access log.
//!
//! Knows how a worker is started and ended; what it does is the data plane's business.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use yumen_config::NodeConfig;
use yumen_config::node::{AccessLogFormat, LogEscape};
use yumen_proxy::access_log::{self, Backlog, Escape, Line, LogBuffer, LogFormat, Queue};
use yumen_proxy::tls::Acceptor;
use yumen_proxy::{Counters, Datagrams, Duty, Http3Listener, Listener, Settings, WorkerParts};
use yumen_snapshot::Publisher;

use crate::listeners::Listeners;
use crate::log_file::LogFile;
use crate::operators::FleetView;
use crate::process::{self, Placement};

/// The workers' threads and what can be read of them.
pub(crate) struct Fleet {
    threads: Vec<JoinHandle<()>>,
    pub(crate) counters: Vec<Arc<Counters>>,
    applied: Vec<Arc<AtomicU64>>,
    log_writer: Option<LogWriter>,
}

impl Fleet {
    /// What can be read of the workers.
    pub(crate) fn view(&self) -> FleetView {
        FleetView { counters: self.counters.clone(), applied: self.applied.clone() }
    }

    pub(crate) fn start(
        node: &NodeConfig,
        place: &Placement,
        publisher: &Arc<Publisher>,
        settings: Arc<Settings>,
        sockets: Vec<WorkerSockets>,
        duty: &watch::Receiver<Duty>,
    ) -> anyhow::Result<Fleet> {
        let (log_queue, log_writer) = start_access_log(node)?;
        let log_format = log_format(node)?;
        let mut fleet = Fleet { threads: Vec::new(), counters: Vec::new(), applied: Vec::new(), log_writer };
        for (id, sockets) in sockets.into_iter().enumerate() {
            let (counters, applied) = (Arc::<Counters>::default(), Arc::<AtomicU64>::default());
            let parts = WorkerParts {
                id,
                settings: Arc::<Settings>::clone(&settings),
                publisher: publisher.clone(),
                counters: counters.clone(),
                applied: applied.clone(),
                log: log_queue.as_ref().map(|queue| LogBuffer::new(log_format.clone(), queue.clone())),
                duty: duty.clone(),
                seed: seed()?,
            };
            fleet.threads.push(start_worker(node, place.clone(), parts, sockets)?);
            fleet.counters.push(counters);
            fleet.applied.push(applied);
        }
        Ok(fleet)
    }

    /// Waits until all have ended.
    pub(crate) fn join(self) {
        for thread in self.threads {
            // A worker that panicked has said so.
            let _ = thread.join();
        }
        self.log_writer.into_iter().for_each(LogWriter::join);
    }
}

/// The thread that writes the access log.
struct LogWriter {
    /// Its other end is gone when the thread has ended.
    ended: Receiver<()>,
    backlog: Backlog,
}

impl LogWriter {
    /// How long lines that wait may take when no more are added.
    const LAST_LINES: Duration = Duration::from_secs(2);

    /// Waits until all lines are written, but not for long: whoever reads the log may have stopped.
    fn join(self) {
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(LogWriter::LAST_LINES) {
            let lines = self.backlog.lines();
            tracing::warn!(lines, "the access log takes no more lines, those that wait are lost");
        }
    }
}

/// A worker's own.
pub(crate) struct WorkerSockets {
    listeners: Vec<Listener>,
    datagrams: Vec<Datagrams>,
    http3: Vec<Http3Listener>,
}

impl WorkerSockets {
    pub(crate) fn of_all(
        listeners: &Listeners,
        http3: Vec<Vec<Http3Listener>>,
        node: &NodeConfig,
        acceptor: &Acceptor,
    ) -> anyhow::Result<Vec<WorkerSockets>> {
        let of_worker = |(id, http3)| {
            Ok(WorkerSockets {
                listeners: listeners.of_worker(id, node, acceptor)?,
                datagrams: listeners.datagrams_of_worker(id)?,
                http3,
            })
        };
        http3.into_iter().enumerate().map(of_worker).collect()
    }
}

fn start_worker(
    node: &NodeConfig,
    place: Placement,
    parts: WorkerParts,
    sockets: WorkerSockets,
) -> anyhow::Result<JoinHandle<()>> {
    let affinity = node.workers.cpu_affinity.clone();
    let nice = if node.workers.nice == 0 { place.base_nice } else { node.workers.nice.into() };
    let thread = std::thread::Builder::new().name(format!("yumen-worker-{}", parts.id));
    Ok(thread.spawn(move || {
        let id = parts.id;
        let WorkerSockets { listeners, datagrams, http3 } = sockets;
        process::settle_worker(id, &affinity, nice, &place.cpus);
        if let Err(error) = yumen_proxy::run::worker(parts, listeners, datagrams, http3) {
            tracing::error!(worker = id, %error, "worker could not start");
        }
    })?)
}

fn seed() -> anyhow::Result<u64> {
    Ok(getrandom::u64()?)
}

fn log_format(node: &NodeConfig) -> anyhow::Result<LogFormat> {
    let access = &node.logs.access;
    if !access.line.is_empty() {
        let escape = match access.escape {
            LogEscape::Default => Escape::Default,
            LogEscape::Json => Escape::Json,
            LogEscape::None => Escape::None,
        };
        let line = Line::parse(&access.line, escape);
        return line.map(LogFormat::Line).map_err(|why| anyhow!("yumen.yaml: logs.access.line: {why}"));
    }
    Ok(match access.format {
        AccessLogFormat::Json => LogFormat::Json,
        AccessLogFormat::Combined => LogFormat::Combined,
    })
}

fn start_access_log(node: &NodeConfig) -> anyhow::Result<(Option<Queue>, Option<LogWriter>)> {
    let access = &node.logs.access;
    if !access.enabled {
        return Ok((None, None));
    }
    let sink: Box<dyn std::io::Write + Send> = match access.path.as_str() {
        // Not through the standard library: what it buffers it would write once more when the process ends.
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
        drop::<Sender<()>>(ends);
    })?;
    Ok((Some(queue), Some(LogWriter { ended, backlog })))
}
