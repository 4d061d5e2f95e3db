//! `yumen run`: binds sockets, compiles the configuration, serves, hands over, and drains.

mod announce;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use yumen_config::NodeConfig;
use yumen_config::node::{LogLevel, NodeLogFormat as LogsFormat, StoreKind};
use yumen_plugin::Carry;
use yumen_proxy::probe::ProbeCounters;
use yumen_proxy::{Http3Identity, ListenerProtocol, WorkerDuty};
use yumen_snapshot::Publisher;
use yumen_store::LastGoodVersions;
use yumen_store::etcd::AnnouncedNode;

use crate::applied_tracker::AppliedTracker;
use crate::cli::GatewayRunArgs;
use crate::cluster::{self, NodeCluster};
use crate::config_origin::ConfigSource;
use crate::config_source::OpenedConfigSource;
use crate::control::{self, ControlHandle, ControlMessage};
use crate::discovery::ServiceLedger;
use crate::dns::HostNames;
use crate::guard::GuardedStore;
use crate::known_inputs::{InputSources, KnownInputs};
use crate::listeners::{BoundListeners, Http3HandoverParts};
use crate::node_log::NodeLog;
use crate::operators::{OperatorContext, OperatorServers, OperatorSockets};
use crate::process::WorkerPlacement;
use crate::signals::{ProcessEvent, ProcessSignals};
use crate::sockets::InheritedSockets;
use crate::tls::{AcmeManager, TlsServices};
use crate::trial::{TrialCompiler, watch_tests};
use crate::upgrade::{
    self, HandoverReceived, HandoverState, HandoverStore, Predecessor, PredecessorSync, Successor,
    UpgradeOptions,
};
use crate::worker_threads::{WorkerSockets, WorkerThreads};
use crate::{compiler, discovery, dns, limit_watch, memory, node, process, service};

/// Grace beyond the drain limit within which a draining process ends, in milliseconds.
const ENDED_WITHIN_MS: u64 = 5000;

/// Runs the gateway until a signal ends the process or a successor has taken over.
pub(crate) fn run(args: &GatewayRunArgs) -> anyhow::Result<()> {
    let successor = Successor::from_environment()?.map(Arc::new);
    let ended = start(args, successor.as_ref()).map(|gateway| gateway.run(successor.clone()));
    if let (Err(error), Some(successor)) = (&ended, &successor) {
        successor.refuses(error);
    }
    ended
}

struct GatewayProcess {
    node: NodeConfig,
    runtime: Runtime,
    fleet: WorkerThreads,
    operators: OperatorServers,
    /// Node record of this node in the cluster; `None` without a cluster.
    announced: Option<AnnouncedNode>,
    /// Stops the configuration source when dropped.
    _doors: OpenedConfigSource,
    /// Path of the upgrade socket, if open.
    door: Option<PathBuf>,
    signals: ProcessSignals,
    duty: watch::Sender<WorkerDuty>,
    predecessor: Arc<Predecessor>,
    handed_over: UnboundedReceiver<u32>,
    /// Tasks that only one process of a node may run; aborted on handover.
    exclusive: Vec<AbortHandle>,
}

/// Resources that exist before any configuration is read: node settings, runtime, sockets.
struct GatewayBootstrap {
    node: NodeConfig,
    place: WorkerPlacement,
    workers: usize,
    open_files: u64,
    runtime: Runtime,
    signals: ProcessSignals,
    listeners: BoundListeners,
    doorway: OperatorSockets,
    before: HandoverReceived,
}

impl GatewayBootstrap {
    fn lay(args: &GatewayRunArgs, successor: Option<&Arc<Successor>>) -> anyhow::Result<GatewayBootstrap> {
        let node = node::load(args)?;
        start_logs(&node);
        let mut before = match successor {
            Some(successor) => successor.receive()?,
            None => HandoverReceived::without_predecessor(service::sockets()?),
        };
        let open_files = process::raise_open_files();
        let base_nice = process::raise_control_priority();
        let place = WorkerPlacement { cpus: process::allowed_cpus(), base_nice };
        let workers = node::workers(&node, place.cpus.len());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("yumen-async")
            .enable_all()
            .build()?;
        let signals = runtime.block_on(async { ProcessSignals::listen() })?;
        let listeners = BoundListeners::open(&node, workers, &mut before.sockets)?;
        let doorway = OperatorSockets::open(&runtime, &node, &mut before.sockets)?;
        before.sockets.check_all_taken()?;
        Ok(GatewayBootstrap {
            node,
            place,
            workers,
            open_files,
            runtime,
            signals,
            listeners,
            doorway,
            before,
        })
    }

    /// The identity of HTTP/3 endpoints: that of the predecessor, so that its connections reach this process, or a new one.
    fn http3_identity(&mut self) -> anyhow::Result<Http3Identity> {
        let identity = self.before.http3_identity.take().map_or_else(Http3Identity::new, Ok);
        identity.map_err(|error| anyhow::anyhow!("HTTP/3: {error}"))
    }
}

/// The current configuration and the components that update it.
struct ConfigRuntime {
    carry: Arc<Carry>,
    publisher: Arc<Publisher>,
    tls: TlsServices,
    acme: Option<AcmeManager>,
    trial: Arc<TrialCompiler>,
    control: ControlHandle,
    doors: OpenedConfigSource,
    held: Arc<HandoverStore>,
    knowledge: InputSources,
}

impl ConfigRuntime {
    fn begin(ground: &GatewayBootstrap, successor: Option<&Arc<Successor>>) -> anyhow::Result<ConfigRuntime> {
        let GatewayBootstrap { node, listeners, .. } = ground;
        ground.before.start.check(&node.store)?;
        let (carry, publisher) = (Arc::new(Carry::default()), Arc::new(Publisher::default()));
        let mut tls = TlsServices::new(node, &ground.before.ticket_keys, &ground.before.staples)?;
        let compiler =
            compiler::new(&listeners.actual(node), ground.workers, carry.clone(), tls.loader.clone());
        let trial = Arc::new(TrialCompiler::new(&compiler));
        let versions = Arc::new(LastGoodVersions::default());
        let reach = Arc::new(AppliedTracker::new(!ground.before.follows));
        let known = &ground.before.known;
        let (carried, published) = (carry.clone(), publisher.clone());
        let control = control::start(compiler, known.clone(), carried, published, versions.clone(), reach)?;
        let mut acme = tls.open_acme(node, &control)?;
        if let Some(successor) = successor.filter(|_| node.store.kind != StoreKind::File) {
            successor.acquire_store()?;
        }
        let doors = OpenedConfigSource::open(node, &ground.before.start, &control, trial.clone(), versions)?;
        if let (Some(acme), ConfigSource::Etcd(store)) = (&mut acme, &doors.source) {
            acme.share(node, store, &ground.runtime).context("acme")?;
        }
        // A restored store may be at a lower revision than the predecessor had applied.
        control.reach.start_at(ground.before.applied.min(doors.store.state().revision));
        let knowledge = start_resolving(&ground.runtime, node, &control, known);
        successor.iter().for_each(|successor| successor.does("the new process compiles the configuration"));
        control.wait_for_first_publication(&ground.runtime)?;
        tls.staple_known();
        let held = doors.held();
        Ok(ConfigRuntime { carry, publisher, tls, acme, trial, control, doors, held, knowledge })
    }

    /// Reports to the predecessor, if there is one, what this process makes of the configuration.
    fn report_ready(&self, successor: Option<&Arc<Successor>>) -> anyhow::Result<()> {
        let Some(successor) = successor else { return Ok(()) };
        successor.ready(&self.control.shown.problems(), &self.doors.store.state(), &self.carry)
    }

    /// Membership of this node in the cluster of its store.
    fn cluster(
        &self,
        node: &NodeConfig,
        listeners: &BoundListeners,
        doorway: &OperatorSockets,
        workers: usize,
    ) -> anyhow::Result<Arc<NodeCluster>> {
        let mut addresses: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let clients = listeners.settings.iter().map(|one| {
            let name = match one.protocol {
                ListenerProtocol::Stream(_) => "stream",
                ListenerProtocol::Https { .. } => "https",
                ListenerProtocol::Http => "http",
            };
            (name, one.address)
        });
        for (name, address) in clients.chain(doorway.addresses()) {
            addresses.entry(name.into()).or_default().push(address.to_string());
        }
        let own = cluster::LocalNode { name: cluster::node_name(node), addresses, workers };
        let (source, store) = (self.doors.source.clone(), self.doors.store.clone());
        Ok(Arc::new(NodeCluster::new(node, own, source, store, self.control.clone())?))
    }

    fn handover(
        &self,
        node: &NodeConfig,
        sockets: InheritedSockets,
        http3_identity: Http3Identity,
        http3: Vec<Http3HandoverParts>,
    ) -> HandoverState {
        HandoverState {
            sockets,
            ticket_keys: self.tls.tickets.clone(),
            http3_identity,
            http3,
            carry: self.carry.clone(),
            store: self.doors.exclusive(),
            pid_file: node.upgrade.pid_file.clone(),
            held: self.held.clone(),
            control: self.control.clone(),
            knowledge: self.knowledge.clone(),
            staples: self.tls.staples.clone(),
            orders: self.tls.orders.clone(),
        }
    }

    fn house(
        &self,
        fleet: &WorkerThreads,
        probes: Arc<ProbeCounters>,
        cluster: Arc<NodeCluster>,
        duty: watch::Receiver<WorkerDuty>,
    ) -> OperatorContext {
        OperatorContext {
            cluster,
            control: self.control.clone(),
            carry: self.carry.clone(),
            fleet: fleet.view(),
            probes,
            store: Arc::new(GuardedStore::new(
                self.doors.store.clone(),
                self.trial.clone(),
                self.control.versions.clone(),
            )),
            source: self.doors.source.clone(),
            discovered: self.knowledge.services.clone(),
            publisher: self.publisher.clone(),
            trial: self.trial.clone(),
            expiry: self.tls.expiry.clone(),
            staples: self.tls.staples.clone(),
            duty,
        }
    }
}

fn start(args: &GatewayRunArgs, successor: Option<&Arc<Successor>>) -> anyhow::Result<GatewayProcess> {
    let mut ground = GatewayBootstrap::lay(args, successor)?;
    let rule = ConfigRuntime::begin(&ground, successor)?;
    let (duty, asked) = watch::channel(WorkerDuty::Serve);
    let acceptor = rule.tls.acceptor(&ground.node, &rule.publisher)?;
    rule.report_ready(successor)?;
    let mut settings = node::settings(&ground.node)?;
    settings.overload.memory_full = memory::watch(ground.node.overload.memory_bytes)?;
    let settings = Arc::new(settings);
    let http3_identity = ground.http3_identity()?;
    let GatewayBootstrap {
        node,
        place,
        workers,
        open_files,
        runtime,
        signals,
        mut listeners,
        doorway,
        before,
    } = ground;
    let (by_worker, http3) = listeners.take_http3(workers, &acceptor, &settings, &http3_identity)?;
    let sockets = WorkerSockets::of_all(&listeners, by_worker, &node, &acceptor)?;
    let fleet = WorkerThreads::start(&node, &place, &rule.publisher, settings, sockets, &asked)?;
    // Workers own duplicates. A handle left here would queue connections that no worker accepts.
    listeners.release();
    let supervisor = yumen_proxy::probe::Supervisor::default();
    let cluster = rule.cluster(&node, &listeners, &doorway, workers)?;
    let house = rule.house(&fleet, supervisor.counters(), cluster.clone(), asked.clone());
    runtime.spawn(supervisor.supervise(rule.control.snapshots.clone()));
    let handover = rule.handover(&node, before.sockets, http3_identity, http3);
    let ConfigRuntime { carry, tls, acme, control, doors, held, trial, .. } = rule;
    tls.tend(&runtime, &node, &control);
    runtime.spawn(limit_watch::watch(yumen_plugins::limit_usage::metrics(&carry), control.clone()));
    let mut exclusive: Vec<AbortHandle> =
        acme.into_iter().map(|acme| runtime.spawn(acme.tend()).abort_handle()).collect();
    let operators = OperatorServers::serve(&runtime, &node, &house, doorway)?;
    let (predecessor, handed_over) = Predecessor::listening(handover, &node, place.base_nice);
    if let Some(successor) = successor {
        successor.serves()?;
    }
    let door = listen_for_upgrades(&node, successor.is_some(), &predecessor);
    exclusive.extend(notify_service_manager(&runtime, &fleet));
    if let Some(successor) = successor {
        let (follows, outlived_for) = (before.follows, predecessor_lifetime(before.outlives, &node));
        let control = control.clone();
        successor.clone().settled(PredecessorSync { carry, held, control, follows, outlived_for })?;
    }
    let watch_source = doors.source.clone().watch_over(control.messages.clone());
    exclusive.push(runtime.spawn(cluster.clone().watch_over()).abort_handle());
    exclusive.push(runtime.spawn(watch_source).abort_handle());
    exclusive.push(runtime.spawn(watch_tests(trial, doors.store.clone(), control.clone())).abort_handle());
    let announced = cluster.announce();
    announce::announce(&listeners, &operators, open_files, workers, &node);
    let _doors = doors;
    Ok(GatewayProcess {
        node,
        runtime,
        fleet,
        operators,
        announced,
        _doors,
        door,
        signals,
        duty,
        predecessor,
        handed_over,
        exclusive,
    })
}

/// How long a predecessor that drains may outlive the handover.
fn predecessor_lifetime(outlives: bool, node: &NodeConfig) -> Duration {
    match outlives {
        true => Duration::from_millis(node.timeouts.drain_ms + ENDED_WITHIN_MS),
        false => Duration::ZERO,
    }
}

/// Opens the upgrade socket and writes the pid file. Returns the path of the socket, if it is open.
fn listen_for_upgrades(
    node: &NodeConfig,
    takes_over: bool,
    predecessor: &Arc<Predecessor>,
) -> Option<PathBuf> {
    // The default path lies in the data directory; without that directory there is no socket.
    let is_place = |place: &PathBuf| {
        !node.upgrade.socket.is_empty() || place.parent().is_some_and(std::path::Path::is_dir)
    };
    let place = Some(upgrade::socket(node)).filter(is_place);
    let door = place.filter(|place| {
        let opened = upgrade::open_door(place, takes_over, predecessor.clone());
        let told = opened.inspect_err(|error| {
            tracing::warn!(%error, socket = %place.display(), "upgrade socket unavailable; use SIGUSR2");
        });
        told.is_ok()
    });
    if let Err(error) = process::write_pid_file(&node.upgrade.pid_file) {
        tracing::error!(%error, file = node.upgrade.pid_file, "pid file cannot be written");
    }
    door
}

/// Reports readiness to the service manager and starts its watchdog pings, if any.
fn notify_service_manager(runtime: &Runtime, fleet: &WorkerThreads) -> Option<AbortHandle> {
    service::notify(&format!("READY=1\nMAINPID={}\nSTATUS=serving", std::process::id()));
    let pause = service::watchdog_pause()?;
    Some(runtime.spawn(service::ping_watchdog(pause, fleet.counters.clone())).abort_handle())
}

impl GatewayProcess {
    /// Runs until a signal or a handover, then drains. `before` is the connection to the predecessor.
    fn run(mut self, before: Option<Arc<Successor>>) {
        let successor = loop {
            match self.runtime.block_on(self.signals.next(&mut self.handed_over)) {
                ProcessEvent::End => break None,
                ProcessEvent::HandedOver(pid) => break Some(pid),
                ProcessEvent::Upgrade => start_upgrade(&self.predecessor),
                ProcessEvent::Reload => {
                    tracing::info!("SIGHUP ignored: configuration changes apply without a reload")
                }
                ProcessEvent::ReopenLogs => {
                    tracing::info!("SIGUSR1 ignored: log files are reopened after rotation without it");
                }
            }
        };
        let end = WorkerDuty::End { within_ms: self.node.timeouts.drain_ms };
        let duty = match successor {
            None => {
                tracing::info!("draining");
                service::notify("STOPPING=1");
                self.predecessor.release();
                before.iter().for_each(|before| before.ends());
                end
            }
            Some(pid) => {
                tracing::info!(pid, "draining, successor serves");
                self.exclusive.iter().for_each(AbortHandle::abort);
                self.operators.stop();
                WorkerDuty::HandOver { within_ms: u64::from(self.node.upgrade.drain_s) * 1000 }
            }
        };
        // Fails only if all workers have ended.
        let _ = self.duty.send(duty);
        let (asked, outlived) = (self.duty.subscribe(), before.clone().filter(|_| successor.is_some()));
        let hurry = ForcedDrain { duty: self.duty, end: successor.map(|_| end), before };
        self.runtime.spawn(hurry.run(self.signals, self.handed_over, self.predecessor.clone()));
        let leave = if successor.is_some() { AnnouncedNode::hand_over } else { AnnouncedNode::leave };
        self.announced.take().into_iter().for_each(leave);
        self.fleet.join();
        let hurried_ms = self.node.timeouts.drain_ms + ENDED_WITHIN_MS;
        let is_hurried = || matches!(*asked.borrow(), WorkerDuty::End { .. });
        outlived.iter().for_each(|before| before.wait_for_predecessor_end(hurried_ms, is_hurried));
        self.predecessor.finish();
        match successor {
            Some(_) => self.runtime.block_on(self.operators.join()),
            None => {
                process::remove_pid_file(&self.node.upgrade.pid_file);
                // If another gateway had this path, this process could not have opened the socket.
                self.door.into_iter().for_each(|door| drop(std::fs::remove_file(door)));
            }
        }
        self.runtime.shutdown_timeout(Duration::from_millis(200));
        tracing::info!("stopped");
    }
}

/// Starts an upgrade requested by SIGUSR2. Steps and failures go to the node log.
fn start_upgrade(predecessor: &Arc<Predecessor>) {
    let (predecessor, call) = (predecessor.clone(), predecessor.begin_call());
    let run = move || {
        let mut tell = |step: &str| tracing::info!(step, "upgrade");
        if let Err(reason) = predecessor.hand_over(&UpgradeOptions::default(), &mut tell) {
            tracing::error!(reason, "not upgraded");
        }
        drop(call);
    };
    if let Err(error) = std::thread::Builder::new().name("yumen-upgrade".into()).spawn(run) {
        tracing::error!(%error, "not upgraded");
    }
}

/// Shortens the drain of a draining process.
struct ForcedDrain {
    duty: watch::Sender<WorkerDuty>,
    /// Duty of the shortened drain; `None` once that duty is in effect.
    end: Option<WorkerDuty>,
    /// Connection to the predecessor, which may still drain.
    before: Option<Arc<Successor>>,
}

impl ForcedDrain {
    /// A signal, or the end of the successor, shortens the drain after a handover. A further signal exits at
    /// once.
    async fn run(
        mut self,
        mut signals: ProcessSignals,
        mut handed_over: UnboundedReceiver<u32>,
        predecessor: Arc<Predecessor>,
    ) {
        handed_over.close();
        loop {
            let event = tokio::select! {
                event = signals.next(&mut handed_over) => event,
                () = predecessor.successor_ends() => {
                    self.before.iter().for_each(|before| before.ends());
                    self.shorten_drain();
                    continue;
                }
            };
            match event {
                ProcessEvent::End if !self.shorten_drain() => {
                    tracing::warn!("second signal, exiting immediately");
                    std::process::exit(1);
                }
                ProcessEvent::End | ProcessEvent::Reload | ProcessEvent::ReopenLogs => {}
                _ => tracing::error!("upgrade refused: this process is shutting down"),
            }
        }
    }

    /// Switches to the shortened drain; `false` if it is already in effect.
    fn shorten_drain(&mut self) -> bool {
        let Some(end) = self.end.take() else { return false };
        tracing::info!("drain shortened");
        let _ = self.duty.send(end);
        true
    }
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
        // The HTTP/2 and QUIC crates log protocol errors of peers: a peer must not be able to fill the log.
        filter = filter.add_directive("h2=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn_proto=off".parse().expect("a target and a level"));
    }
    // Colours only on a terminal: files and log collectors get plain text.
    let has_colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // `tracing` requires a writer that lives as long as the process.
    let log: &NodeLog = Box::leak(Box::new(NodeLog::new(node.logs.format, has_colours)));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || log)
        .with_ansi(has_colours)
        .with_target(false);
    // An existing global subscriber stays in place.
    let _ = match node.logs.format {
        LogsFormat::Text => builder.try_init(),
        LogsFormat::Json => builder.json().try_init(),
    };
}

/// Starts name resolution and service discovery from the known inputs; returns both as input sources.
fn start_resolving(
    runtime: &Runtime,
    node: &NodeConfig,
    control: &ControlHandle,
    known: &KnownInputs,
) -> InputSources {
    let KnownInputs { names, services } = known.clone();
    let names = Arc::new(HostNames::open(Path::new(&node.store.data_dir), names));
    let messages = control.messages.clone();
    let report = move |host: Box<str>, addrs| {
        let _ = messages.send(ControlMessage::Resolved(host, addrs));
    };
    runtime.spawn(dns::keep_resolved(control.hosts.clone(), node.dns.clone(), names.clone(), report));
    let (messages, ledger) = (control.messages.clone(), Arc::<ServiceLedger>::default());
    let report = move |service, found| {
        let _ = messages.send(ControlMessage::Discovered(service, found));
    };
    let wanted = control.services.clone();
    let keeping = discovery::run_discovery(wanted, node.clone(), ledger.clone(), services, report);
    runtime.spawn(keeping);
    InputSources { names, services: ledger }
}
