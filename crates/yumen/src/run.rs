//! `yumen run`: binds, compiles, serves, drains.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::TcpListener as AsyncListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use yumen_admin::{Document, StatusState};
use yumen_config::NodeConfig;
use yumen_config::node::{AccessLogFormat, LogFormat as LogsFormat, LogLevel, StoreKind};
use yumen_plugin::Carry;
use yumen_proxy::access_log::{self, LogBuffer, LogFormat};
use yumen_proxy::probe::{HealthMetrics, ProbeCounters};
use yumen_proxy::tls::{self, Acceptor, ServerTls};
use yumen_proxy::{AllCounters, Counters, Listener, ListenerSettings, Settings, WorkerParts};
use yumen_snapshot::Publisher;
use yumen_store::file::{FileEvent, FileStore, WatchGuard};

use crate::cli::RunArgs;
use crate::control::{self, Control, Message, Shown};
use crate::{compiler, dns, node, process};

/// Configuration that waits for addresses waits at most so long before it serves.
const FIRST_ADDRESSES_MS: u64 = 1500;

/// Runs the gateway until a signal ends it.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let node = node::load(args)?;
    start_logs(&node);
    let open_files = process::raise_open_files();
    let cpus = process::allowed_cpus();
    let workers = node::workers(&node, cpus.len());
    let mut listeners = Listeners::bind(&node, workers)?;
    let carry = Arc::new(Carry::default());
    let publisher = Arc::new(Publisher::default());
    let compiler = compiler::new(&listeners.actual(&node), workers, carry.clone());
    let control = control::start(compiler, carry.clone(), publisher.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("yumen-async")
        .enable_all()
        .build()?;
    let _watch = open_store(&node, &control)?;
    start_resolving(&runtime, &node, &control);
    wait_for_first_snapshot(&control);
    let (drain, draining) = watch::channel(false);
    let fleet = Fleet::start(&node, workers, &cpus, &publisher, &listeners, &draining)?;
    // Workers have theirs: one kept here would take connections in while draining and never serve them.
    listeners.sockets.clear();
    let supervisor = yumen_proxy::probe::Supervisor::default();
    let probes = supervisor.counters();
    runtime.spawn(supervisor.supervise(control.snapshots.clone()));
    let doors = serve_doors(&runtime, &node, status_state(&node, &control, &carry, &fleet, probes))?;
    announce(&listeners, &doors, open_files, workers, &node);
    runtime.block_on(wait_for_signal());
    tracing::info!("draining");
    // Workers hold receivers until they end.
    let _ = drain.send(true);
    runtime.spawn(async {
        wait_for_signal().await;
        tracing::warn!("second signal, ending at once");
        std::process::exit(1);
    });
    fleet.join();
    runtime.shutdown_timeout(Duration::from_millis(200));
    tracing::info!("stopped");
    Ok(())
}

fn start_logs(node: &NodeConfig) {
    use tracing_subscriber::filter::LevelFilter;
    let level = match node.logs.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
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
}

impl Listeners {
    fn bind(node: &NodeConfig, workers: usize) -> anyhow::Result<Listeners> {
        let mut settings = node::listeners(node)?;
        let mut sockets = Vec::new();
        for listener in &mut settings {
            let bound = yumen_proxy::listener::bind(listener, workers)
                .with_context(|| format!("cannot listen on {}", listener.address))?;
            if let Some(first) = bound.first() {
                listener.address = first.local_addr()?;
            }
            sockets.push(bound);
        }
        Ok(Listeners { settings, sockets })
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

/// The file the resources are in: the one named, or the starter in the data directory.
fn resource_file(node: &NodeConfig) -> anyhow::Result<PathBuf> {
    match node.store.kind {
        StoreKind::File => Ok(PathBuf::from(&node.store.file)),
        StoreKind::Embedded => {
            let dir = PathBuf::from(&node.store.data_dir);
            yumen_store::starter::ensure_starter(&dir)
                .with_context(|| format!("cannot keep files in {}", dir.display()))
        }
    }
}

/// Reads the resources and has every change of them told to the control thread.
fn open_store(node: &NodeConfig, control: &Control) -> anyhow::Result<WatchGuard> {
    let path = resource_file(node)?;
    let store = FileStore::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let text = store.read().with_context(|| format!("cannot read {}", path.display()))?;
    let messages = control.messages.clone();
    // The control thread ends with the process.
    let _ = messages.send(Message::Document(text));
    let guard = store.watch(move |event| {
        let message = match event {
            FileEvent::Changed(text) => Message::Document(text),
            FileEvent::Recovered => Message::DocumentRecovered,
            FileEvent::Vanished => Message::DocumentFault("the resource file is gone".into()),
            FileEvent::HalfWritten => {
                Message::DocumentFault("the resource file lost its #END: half written?".into())
            }
            FileEvent::Unreadable(error) => {
                Message::DocumentFault(format!("the resource file cannot be read: {error}"))
            }
        };
        let _ = messages.send(message);
    })?;
    Ok(guard)
}

fn start_resolving(runtime: &Runtime, node: &NodeConfig, control: &Control) {
    let messages = control.messages.clone();
    let report = move |host: Box<str>, addrs| {
        let _ = messages.send(Message::Resolved(host, addrs));
    };
    runtime.spawn(dns::keep_resolved(control.hosts.clone(), node.dns.clone(), report));
}

/// A node that serves has compiled what it was given, and knows the addresses it names if the names
/// can be resolved soon.
fn wait_for_first_snapshot(control: &Control) {
    let started = Instant::now();
    let waited = || started.elapsed() < Duration::from_millis(FIRST_ADDRESSES_MS);
    while waited() {
        let shown = &control.shown;
        let is_compiled = shown.revision.load(Ordering::Acquire) > 0 || !shown.problems().is_empty();
        if is_compiled && control.unresolved() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_micros(500));
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
    fn start(
        node: &NodeConfig,
        workers: usize,
        cpus: &[usize],
        publisher: &Arc<Publisher>,
        listeners: &Listeners,
        draining: &watch::Receiver<bool>,
    ) -> anyhow::Result<Fleet> {
        let settings = Arc::new(node::settings(node)?);
        let acceptor = acceptor(node, publisher)?;
        let (log_queue, log_writer) = start_access_log(node)?;
        let mut fleet = Fleet { threads: Vec::new(), counters: Vec::new(), applied: Vec::new(), log_writer };
        for id in 0..workers {
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
            let sockets = listeners.of_worker(id, &acceptor)?;
            fleet.threads.push(start_worker(node, cpus.to_vec(), parts, sockets)?);
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
    fn of_worker(&self, worker: usize, acceptor: &Acceptor) -> anyhow::Result<Vec<Listener>> {
        let all = self.settings.iter().zip(&self.sockets);
        all.map(|(settings, sockets)| {
            let socket = sockets[worker].try_clone()?;
            Ok(Listener { socket, tls: settings.tls.then(|| acceptor.clone()) })
        })
        .collect()
    }
}

fn start_worker(
    node: &NodeConfig,
    cpus: Vec<usize>,
    parts: WorkerParts,
    listeners: Vec<Listener>,
) -> anyhow::Result<JoinHandle<()>> {
    let (affinity, nice) = (node.workers.cpu_affinity.clone(), node.workers.nice);
    let thread = std::thread::Builder::new().name(format!("yumen-worker-{}", parts.id));
    Ok(thread.spawn(move || {
        let id = parts.id;
        process::settle_worker(id, &affinity, nice, &cpus);
        if let Err(error) = yumen_proxy::run::worker(parts, listeners) {
            tracing::error!(worker = id, %error, "worker could not start");
        }
    })?)
}

fn seed() -> anyhow::Result<u64> {
    Ok(getrandom::u64()?)
}

/// TLS for all listeners: the snapshot's certificates, and a self-signed one where none fits.
fn acceptor(node: &NodeConfig, publisher: &Arc<Publisher>) -> anyhow::Result<Acceptor> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()])?;
    let default = tls::load_key_pair(&made.cert.pem(), &made.signing_key.serialize_pem())
        .map_err(|error| anyhow::anyhow!("the default certificate cannot be used: {error}"))?;
    let tls12 = node.tls.version_min != yumen_config::node::TlsVersion::V1_3;
    let publisher = publisher.clone();
    // All workers share one memory, so that a session is found wherever its client lands.
    let sessions_max = node.tls.session_entries as usize * node::workers(node, process::allowed_cpus().len());
    let tickets = node.tls.session_tickets;
    tls::acceptor(ServerTls { publisher, default: Some(default), tls12, tickets, sessions_max })
        .map_err(|error| anyhow::anyhow!("TLS cannot be set up: {error}"))
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

/// Where the doors of the control plane listen.
struct Doors {
    admin: Option<std::net::SocketAddr>,
    status: Option<std::net::SocketAddr>,
}

fn serve_doors(runtime: &Runtime, node: &NodeConfig, state: StatusState) -> anyhow::Result<Doors> {
    let listen = |address: &str, what: &str| -> anyhow::Result<Option<AsyncListener>> {
        if address.is_empty() {
            return Ok(None);
        }
        let bound = runtime.block_on(AsyncListener::bind(node::address(address)?));
        Ok(Some(bound.with_context(|| format!("cannot listen on {address} ({what})"))?))
    };
    let admin = listen(&node.admin.listen, "admin")?;
    let status = listen(&node.status.listen, "status")?;
    let addresses =
        |listener: &Option<AsyncListener>| listener.as_ref().and_then(|one| one.local_addr().ok());
    let doors = Doors { admin: addresses(&admin), status: addresses(&status) };
    if let Some(status) = status {
        runtime.spawn(yumen_admin::serve_status(status, state, std::future::pending::<()>()));
    }
    if let Some(admin) = admin {
        runtime.spawn(yumen_admin::serve_admin(admin, std::future::pending::<()>()));
    }
    Ok(doors)
}

fn status_state(
    node: &NodeConfig,
    control: &Control,
    carry: &Arc<Carry>,
    fleet: &Fleet,
    probes: Arc<ProbeCounters>,
) -> StatusState {
    let (shown, snapshots) = (control.shown.clone(), control.snapshots.clone());
    let prometheus = yumen_plugins::prometheus::metrics(carry);
    let applied = fleet.applied.clone();
    let (ready, described, health) = (shown.clone(), shown.clone(), snapshots.clone());
    let problems = shown.clone();
    let counters = Arc::new(AllCounters(fleet.counters.clone()));
    StatusState {
        ready: Arc::new(move || match ready.revision.load(Ordering::Acquire) {
            0 => Err("no configuration has been compiled yet".into()),
            _ => Ok(()),
        }),
        top: top(&counters, &control.shown),
        recent: node.observe.list_recent_requests.then(|| recent(&counters)),
        gather: vec![counters, shown, prometheus, probes, Arc::new(HealthMetrics(snapshots))],
        describe: Arc::new(move || {
            let applied: Vec<u64> = applied.iter().map(|version| version.load(Ordering::Acquire)).collect();
            serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "revision": described.revision.load(Ordering::Acquire),
                "workers": applied.len(),
                "problems": described.problems().len(),
            })
        }),
        health: Arc::new(move || {
            let snapshot = health.borrow().clone();
            serde_json::to_value(yumen_proxy::probe::report(&snapshot)).unwrap_or_default()
        }),
        problems: Arc::new(move || serde_json::to_value(problems.problems()).unwrap_or_default()),
    }
}

/// What `yumen top` asks for.
fn top(counters: &Arc<AllCounters>, shown: &Arc<Shown>) -> Document {
    let (counters, shown, started) = (counters.clone(), shown.clone(), Instant::now());
    Arc::new(move || {
        let mut document = counters.top();
        document["version"] = env!("CARGO_PKG_VERSION").into();
        document["revision"] = shown.revision.load(Ordering::Acquire).into();
        document["uptime_ms"] = (started.elapsed().as_millis() as u64).into();
        document
    })
}

fn recent(counters: &Arc<AllCounters>) -> Document {
    let counters = counters.clone();
    Arc::new(move || serde_json::to_value(counters.recent()).unwrap_or_default())
}

/// Says where it listens, and what to try next.
fn announce(listeners: &Listeners, doors: &Doors, open_files: u64, workers: usize, node: &NodeConfig) {
    for listener in &listeners.settings {
        tracing::info!(address = %listener.address, tls = listener.tls, "listening");
    }
    tracing::info!(open_files, workers, "ready");
    let mut lines = Vec::new();
    for listener in &listeners.settings {
        let scheme = if listener.tls { "https" } else { "http" };
        lines.push(format!("  {scheme:<8} {scheme}://{}", listener.address));
    }
    if let Some(admin) = doors.admin {
        lines.push(format!("  admin    http://{admin}/apisix/admin"));
    }
    if let Some(status) = doors.status {
        lines.push(format!("  status   http://{status}/status   http://{status}/metrics"));
    }
    let (file, path) = match node.store.kind {
        StoreKind::File => (node.store.file.clone(), "/"),
        StoreKind::Embedded => (format!("{}/routes.yaml", node.store.data_dir), "/hello"),
    };
    lines.push(format!("  routes   {file} (edit it: changes apply at once)"));
    if let Some(first) = listeners.settings.first() {
        let (scheme, insecure) = if first.tls { ("https", "-k ") } else { ("http", "") };
        lines.push(format!("\nTry:\n  curl -i {insecure}{scheme}://{}{path}", first.address));
    }
    let text = format!("yumen {} is ready\n{}\n", env!("CARGO_PKG_VERSION"), lines.join("\n"));
    // A terminal that has gone is no reason not to serve.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be heard");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
