//! `yumen run`: binds, compiles, serves, drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use yumen_config::NodeConfig;
use yumen_config::node::{AccessLogFormat, LogFormat as LogsFormat, LogLevel, StoreKind};
use yumen_plugin::Carry;
use yumen_proxy::access_log::{self, LogBuffer, LogFormat};
use yumen_proxy::tls::Acceptor;
use yumen_proxy::{
    Counters, Datagrams, Http3Listener, Listener, ListenerSettings, Settings, StreamProtocol, WorkerParts,
};
use yumen_snapshot::Publisher;

use crate::cli::RunArgs;
use crate::control::{self, Control, Message};
use crate::discovery::Ledger;
use crate::doors::Doors;
use crate::guard::Guarded;
use crate::operators::{FleetView, House, Operators};
use crate::process::Placement;
use crate::tls::Tls;
use crate::trial::Trial;
use crate::{compiler, discovery, dns, memory, node, process};

/// Configuration that waits for addresses waits at most so long before it serves.
const FIRST_ADDRESSES_MS: u64 = 1500;

/// Runs the gateway until a signal ends it.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let node = node::load(args)?;
    start_logs(&node);
    let open_files = process::raise_open_files();
    let base_nice = process::favour_configuration();
    let place = Placement { cpus: process::allowed_cpus(), base_nice };
    let workers = node::workers(&node, place.cpus.len());
    let mut listeners = Listeners::bind(&node, workers)?;
    let carry = Arc::new(Carry::default());
    let publisher = Arc::new(Publisher::default());
    let tls = Tls::new(&node)?;
    let compiler = compiler::new(&listeners.actual(&node), workers, carry.clone(), tls.loader.clone());
    let trial = Arc::new(Trial::new(&compiler));
    let control = control::start(compiler, carry.clone(), publisher.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("yumen-async")
        .enable_all()
        .build()?;
    let acme = tls.open_acme(&node, &control)?;
    let doors = Doors::open(&node, &control, trial.clone())?;
    let discovered = start_resolving(&runtime, &node, &control);
    wait_for_first_snapshot(&control);
    let (drain, draining) = watch::channel(false);
    let acceptor = tls.acceptor(&node, &publisher)?;
    let fleet = Fleet::start(&node, workers, &place, &publisher, &mut listeners, &acceptor, &draining)?;
    // Workers have theirs: one kept here would take connections in while draining and never serve them.
    listeners.release();
    let supervisor = yumen_proxy::probe::Supervisor::default();
    let probes = supervisor.counters();
    runtime.spawn(supervisor.supervise(control.snapshots.clone()));
    let house = House {
        control,
        carry,
        fleet: fleet.view(),
        probes,
        store: Arc::new(Guarded::new(doors.store.clone(), trial.clone())),
        source: doors.source.clone(),
        publisher,
        trial,
        expiry: tls.expiry.clone(),
        staples: tls.staples.clone(),
        discovered,
    };
    tls.tend(&runtime, &node, &house.control);
    if let Some(acme) = acme {
        runtime.spawn(acme.tend());
    }
    let operators = Operators::serve(&runtime, &node, &house)?;
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    announce(&listeners, &operators, open_files, workers, &node);
    runtime.block_on(signals.next());
    tracing::info!("draining");
    // Workers hold receivers until they end.
    let _ = drain.send(true);
    runtime.spawn(async move {
        signals.next().await;
        tracing::warn!("second signal, ending at once");
        std::process::exit(1);
    });
    fleet.join();
    runtime.shutdown_timeout(Duration::from_millis(200));
    tracing::info!("stopped");
    Ok(())
}

fn start_logs(node: &NodeConfig) {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let level = match node.logs.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let mut filter = EnvFilter::default().add_directive(level.into());
    if level <= LevelFilter::INFO {
        // The libraries of HTTP/2 and QUIC warn of what peers do wrong: a peer must not fill the log.
        filter = filter.add_directive("h2=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn_proto=off".parse().expect("a target and a level"));
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people: a file or a collector gets plain text.
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false);
    // A subscriber that is there already stays.
    let _ = match node.logs.format {
        LogsFormat::Text => builder.try_init(),
        LogsFormat::Json => builder.json().try_init(),
    };
}

/// Bound sockets, one per worker and listener.
struct Listeners {
    settings: Vec<ListenerSettings>,
    /// By listener, then by worker.
    sockets: Vec<Vec<std::net::TcpListener>>,
    /// Addresses and sockets for datagrams, the sockets by worker.
    datagrams: Vec<(SocketAddr, Vec<std::net::UdpSocket>)>,
    /// Sockets for HTTP/3, by listener that has it, then by worker; taken once.
    http3: Vec<Vec<std::net::UdpSocket>>,
}

impl Listeners {
    fn bind(node: &NodeConfig, workers: usize) -> anyhow::Result<Listeners> {
        let (udp, streams): (Vec<_>, Vec<_>) = node::stream_listeners(node)?
            .into_iter()
            .partition(|listener| listener.streams == Some(StreamProtocol::Udp));
        let mut settings = node::listeners(node)?;
        settings.extend(streams);
        let mut sockets = Vec::new();
        let mut datagrams = Vec::new();
        for listener in &udp {
            let bound = yumen_proxy::bind_datagrams(listener, workers)
                .with_context(|| format!("cannot listen on {} for datagrams", listener.address))?;
            let address = bound.first().map_or(Ok(listener.address), std::net::UdpSocket::local_addr)?;
            datagrams.push((address, bound));
        }
        let mut http3 = Vec::new();
        for listener in &mut settings {
            let bound = yumen_proxy::listener::bind(listener, workers)
                .with_context(|| format!("cannot listen on {}", listener.address))?;
            if let Some(first) = bound.first() {
                listener.address = first.local_addr()?;
            }
            sockets.push(bound);
            if listener.http3 {
                let bound = yumen_proxy::bind_http3(listener, workers)
                    .with_context(|| format!("cannot listen on {} for HTTP/3", listener.address))?;
                http3.push(bound);
            }
        }
        Ok(Listeners { settings, sockets, datagrams, http3 })
    }

    /// Closes the handles kept here.
    fn release(&mut self) {
        self.sockets.clear();
        self.datagrams.iter_mut().for_each(|(_, sockets)| sockets.clear());
    }

    /// The configuration with the ports that were really bound.
    fn actual(&self, node: &NodeConfig) -> NodeConfig {
        let mut node = node.clone();
        for (listen, settings) in node.listen.iter_mut().zip(&self.settings) {
            listen.address = settings.address.to_string();
        }
        node
    }
}

/// Keeps names resolved and services discovered; what is known of services can be looked at.
fn start_resolving(runtime: &Runtime, node: &NodeConfig, control: &Control) -> Arc<Ledger> {
    let messages = control.messages.clone();
    let report = move |host: Box<str>, addrs| {
        let _ = messages.send(Message::Resolved(host, addrs));
    };
    runtime.spawn(dns::keep_resolved(control.hosts.clone(), node.dns.clone(), report));
    let (messages, ledger) = (control.messages.clone(), Arc::<Ledger>::default());
    let report = move |service, found| {
        let _ = messages.send(Message::Discovered(service, found));
    };
    let keeping = discovery::keep_discovered(control.services.clone(), node.clone(), ledger.clone(), report);
    runtime.spawn(keeping);
    ledger
}

/// A node that serves has compiled what it was given, however long that takes, and knows the addresses
/// it names if the names can be resolved soon.
fn wait_for_first_snapshot(control: &Control) {
    const PAUSE: Duration = Duration::from_micros(500);
    let shown = &control.shown;
    while !control.is_published() && shown.problems().is_empty() {
        std::thread::sleep(PAUSE);
    }
    let compiled = Instant::now();
    while control.unresolved() > 0 && compiled.elapsed() < Duration::from_millis(FIRST_ADDRESSES_MS) {
        std::thread::sleep(PAUSE);
    }
}

/// The workers' threads and what can be read of them.
struct Fleet {
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    applied: Vec<Arc<AtomicU64>>,
    log_writer: Option<JoinHandle<()>>,
}

impl Fleet {
    /// What can be read of the workers.
    fn view(&self) -> FleetView {
        FleetView { counters: self.counters.clone(), applied: self.applied.clone() }
    }

    fn start(
        node: &NodeConfig,
        workers: usize,
        place: &Placement,
        publisher: &Arc<Publisher>,
        listeners: &mut Listeners,
        acceptor: &Acceptor,
        draining: &watch::Receiver<bool>,
    ) -> anyhow::Result<Fleet> {
        let mut settings = node::settings(node)?;
        settings.overload.memory_full = memory::watch(node.overload.memory_bytes)?;
        let settings = Arc::new(settings);
        let (log_queue, log_writer) = start_access_log(node)?;
        let mut fleet = Fleet { threads: Vec::new(), counters: Vec::new(), applied: Vec::new(), log_writer };
        let http3 = listeners.take_http3(workers, acceptor, &settings)?;
        for (id, http3) in http3.into_iter().enumerate() {
            let (counters, applied) = (Arc::<Counters>::default(), Arc::<AtomicU64>::default());
            let parts = WorkerParts {
                id,
                settings: Arc::<Settings>::clone(&settings),
                publisher: publisher.clone(),
                counters: counters.clone(),
                applied: applied.clone(),
                log: log_queue.as_ref().map(|queue| LogBuffer::new(log_format(node), queue.clone())),
                drain: draining.clone(),
                seed: seed()?,
            };
            let sockets = Sockets {
                listeners: listeners.of_worker(id, node, acceptor)?,
                datagrams: listeners.datagrams_of_worker(id)?,
                http3,
            };
            fleet.threads.push(start_worker(node, place.clone(), parts, sockets)?);
            fleet.counters.push(counters);
            fleet.applied.push(applied);
        }
        Ok(fleet)
    }

    fn join(self) {
        for thread in self.threads.into_iter().chain(self.log_writer) {
            // A worker that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Listeners {
    /// What serves HTTP/3, by worker.
    fn take_http3(
        &mut self,
        workers: usize,
        acceptor: &Acceptor,
        settings: &Settings,
    ) -> anyhow::Result<Vec<Vec<Http3Listener>>> {
        let mut by_worker: Vec<Vec<Http3Listener>> = (0..workers).map(|_| Vec::new()).collect();
        for sockets in self.http3.drain(..) {
            let listeners = yumen_proxy::listen_http3(sockets, acceptor, settings)
                .map_err(|error| anyhow::anyhow!("HTTP/3 cannot be set up: {error}"))?;
            by_worker.iter_mut().zip(listeners).for_each(|(own, listener)| own.push(listener));
        }
        Ok(by_worker)
    }

    fn of_worker(
        &self,
        worker: usize,
        node: &NodeConfig,
        acceptor: &Acceptor,
    ) -> anyhow::Result<Vec<Listener>> {
        let all = self.settings.iter().zip(&self.sockets);
        all.map(|(settings, sockets)| {
            let socket = sockets[worker].try_clone()?;
            let tls = settings.tls.then(|| match settings.streams {
                Some(_) => acceptor.for_streams(),
                None if settings.http3 => {
                    let line = node::alt_svc_line(&node.http3, settings.address.port());
                    line.map_or_else(|| acceptor.clone(), |line| acceptor.telling(line))
                }
                None => acceptor.clone(),
            });
            Ok(Listener { socket, tls, proxy_from: settings.proxy_from.clone(), streams: settings.streams })
        })
        .collect()
    }

    fn datagrams_of_worker(&self, worker: usize) -> anyhow::Result<Vec<Datagrams>> {
        let sockets = self.datagrams.iter().map(|(_, sockets)| sockets[worker].try_clone());
        Ok(sockets.map(|socket| Ok(Datagrams { socket: socket? })).collect::<std::io::Result<_>>()?)
    }
}

/// A worker's own.
struct Sockets {
    listeners: Vec<Listener>,
    datagrams: Vec<Datagrams>,
    http3: Vec<Http3Listener>,
}

fn start_worker(
    node: &NodeConfig,
    place: Placement,
    parts: WorkerParts,
    sockets: Sockets,
) -> anyhow::Result<JoinHandle<()>> {
    let affinity = node.workers.cpu_affinity.clone();
    let nice = if node.workers.nice == 0 { place.base_nice } else { node.workers.nice.into() };
    let thread = std::thread::Builder::new().name(format!("yumen-worker-{}", parts.id));
    Ok(thread.spawn(move || {
        let id = parts.id;
        let Sockets { listeners, datagrams, http3 } = sockets;
        process::settle_worker(id, &affinity, nice, &place.cpus);
        if let Err(error) = yumen_proxy::run::worker(parts, listeners, datagrams, http3) {
            tracing::error!(worker = id, %error, "worker could not start");
        }
    })?)
}

fn seed() -> anyhow::Result<u64> {
    Ok(getrandom::u64()?)
}

fn log_format(node: &NodeConfig) -> LogFormat {
    match node.logs.access.format {
        AccessLogFormat::Json => LogFormat::Json,
        AccessLogFormat::Combined => LogFormat::Combined,
    }
}

type LogQueue = std::sync::mpsc::SyncSender<Vec<u8>>;

fn start_access_log(node: &NodeConfig) -> anyhow::Result<(Option<LogQueue>, Option<JoinHandle<()>>)> {
    let access = &node.logs.access;
    if !access.enabled {
        return Ok((None, None));
    }
    let sink: Box<dyn std::io::Write + Send> = match access.path.as_str() {
        "-" => Box::new(std::io::stdout()),
        path => {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            Box::new(file.with_context(|| format!("cannot write the access log {path}"))?)
        }
    };
    // Lines travel in batches of about a hundred.
    let batches = (access.queue_lines as usize / 100).max(2);
    let (queue, batches) = access_log::queue(batches);
    let thread = std::thread::Builder::new().name("yumen-log".into());
    let writer = thread.spawn(move || access_log::write_all(&batches, sink))?;
    Ok((Some(queue), Some(writer)))
}

/// Says where it listens, and what to try next.
fn announce(
    listeners: &Listeners,
    operators: &Operators,
    open_files: u64,
    workers: usize,
    node: &NodeConfig,
) {
    for listener in &listeners.settings {
        tracing::info!(address = %listener.address, tls = listener.tls, http3 = listener.http3, "listening");
    }
    for (address, _) in &listeners.datagrams {
        tracing::info!(%address, "listening for datagrams");
    }
    tracing::info!(open_files, workers, "ready");
    let mut lines = Vec::new();
    for listener in &listeners.settings {
        let address = listener.address;
        lines.push(match (listener.streams, listener.tls) {
            (Some(protocol), _) => format!("  stream   {} {address}", protocol.name()),
            (None, true) => format!("  https    https://{address}"),
            (None, false) => format!("  http     http://{address}"),
        });
    }
    lines.extend(listeners.datagrams.iter().map(|(address, _)| format!("  stream   udp {address}")));
    if let Some(admin) = operators.admin {
        lines.push(format!("  admin    http://{admin}/apisix/admin"));
    }
    if let Some(status) = operators.status {
        lines.push(format!("  status   http://{status}/status   http://{status}/metrics"));
    }
    let path = match node.store.kind {
        StoreKind::File => {
            lines.push(format!("  routes   {} (edit it: changes apply at once)", node.store.file));
            "/"
        }
        StoreKind::Embedded => {
            lines.push(format!("  store    {}", node.store.data_dir));
            "/hello"
        }
        StoreKind::Etcd => {
            lines.push(format!(
                "  store    etcd {} {}",
                node.store.etcd.host.join(" "),
                node.store.etcd.prefix
            ));
            "/"
        }
    };
    if let Some(keys) = &operators.new_keys {
        lines.push(format!(
            "\nKeys of the admin listener, shown this once:\n  admin    {}\n  viewer   {}",
            keys.admin, keys.viewer
        ));
    }
    if let Some(first) = listeners.settings.first().filter(|first| first.streams.is_none()) {
        let (scheme, insecure) = if first.tls { ("https", "-k ") } else { ("http", "") };
        lines.push(format!("\nTry:\n  curl -i {insecure}{scheme}://{}{path}", first.address));
    }
    let text = format!("yumen {} is ready\n{}\n", env!("CARGO_PKG_VERSION"), lines.join("\n"));
    // A terminal that has gone is no reason not to serve.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
}

/// The signals that end the process, heard from before it says it is ready.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt })
    }

    /// Returns when another one has come; one that came before is not lost.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
