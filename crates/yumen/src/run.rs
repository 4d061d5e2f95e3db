//! `yumen run`: binds sockets, compiles the configuration, serves, hands over, and drains.
//!
//! Start-up has an owner per phase: [`GatewayBootstrap`] before any configuration is read, [`ConfigRuntime`] once
//! it is compiled, [`GatewayProcess`] while the workers run.

mod announce;
mod bootstrap;
mod config_runtime;
mod drain;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use yumen_config::NodeConfig;
use yumen_proxy::{AllCounters, WorkerDuty};
use yumen_store::etcd::AnnouncedNode;

use crate::config::cluster::NodeCluster;
use crate::config::given::GivenResources;
use crate::config::source::OpenedConfigSource;
use crate::config::trial::{TrialCompiler, watch_tests};
use crate::control::{ControlHandle, call_watch, limit_watch};
use crate::node::{self, GatewayRunArgs};
use crate::operators::{OperatorContext, OperatorServers};
use crate::otlp_export;
use crate::process;
use crate::process::service;
use crate::process::signals::ProcessSignals;
use crate::senders::LogSenders;
use crate::serving::worker_threads::{WorkerThreads, listeners_by_worker};
use crate::upgrade::{self, Predecessor, PredecessorSync, Successor};
use bootstrap::GatewayBootstrap;
use config_runtime::ConfigRuntime;

/// Settings of a process, and its resources if it has no store.
pub(crate) struct GatewayLaunch {
    pub(crate) node: NodeConfig,
    pub(crate) given: Option<GivenResources>,
}

/// `yumen run`: serves with the node settings and their store.
pub(crate) fn run(args: &GatewayRunArgs) -> anyhow::Result<()> {
    serve(|| Ok(GatewayLaunch { node: node::load(args)?, given: None }))
}

/// Runs the gateway until a signal ends the process or a successor has taken over.
pub(crate) fn serve(prepare: impl FnOnce() -> anyhow::Result<GatewayLaunch>) -> anyhow::Result<()> {
    // Before the settings are read: the predecessor reports an error in them.
    let successor = Successor::from_environment()?;
    let started = prepare().and_then(|launch| start(launch, successor.as_ref()));
    let result = started.map(GatewayProcess::run);
    if let (Err(error), Some(successor)) = (&result, &successor) {
        // The predecessor reports the reason to the requester of the upgrade.
        successor.refuse(error);
    }
    result
}

/// A serving gateway.
struct GatewayProcess {
    node: NodeConfig,
    runtime: Runtime,
    workers: WorkerThreads,
    operators: OperatorServers,
    /// Node record of this node in the cluster; `None` without a cluster.
    announced: Option<AnnouncedNode>,
    /// Stops when dropped.
    config_source: OpenedConfigSource,
    /// Path of the upgrade socket, if open.
    upgrade_socket: Option<PathBuf>,
    signals: ProcessSignals,
    duty: watch::Sender<WorkerDuty>,
    predecessor: Arc<Predecessor>,
    /// Receives the pid of a successor that serves.
    handed_over: UnboundedReceiver<u32>,
    /// Tasks that only one process of a node may run; aborted on handover.
    exclusive: Vec<AbortHandle>,
    senders: Arc<LogSenders>,
}

fn start(launch: GatewayLaunch, successor: Option<&Successor>) -> anyhow::Result<GatewayProcess> {
    let mut bootstrap = GatewayBootstrap::new(launch, successor)?;
    let config = ConfigRuntime::start(&bootstrap, successor)?;
    let (duty, worker_duty) = watch::channel(WorkerDuty::Serve);
    // Before `report_ready`, which blocks until the handover: a failure here leaves the predecessor serving.
    let services = Arc::new(bootstrap.listener_services(&config)?);
    let (dynamic, commands) = bootstrap.open_first_listeners(&config, services.clone());
    config.report_ready(successor, dynamic.problems())?;
    let GatewayBootstrap {
        node,
        given,
        placement,
        worker_count,
        open_files,
        runtime,
        signals,
        mut listeners,
        operator_sockets,
        received,
    } = bootstrap;
    let by_worker = listeners_by_worker(&mut listeners, &services, commands)?;
    let (settings, publisher) = (services.settings.clone(), &config.publisher);
    let records = otlp_export::open_records(&node, &config.senders);
    let workers =
        WorkerThreads::start(&node, &placement, publisher, settings, by_worker, &worker_duty, records)?;
    // Workers own duplicates. A handle left here would queue connections that no worker accepts.
    listeners.release();
    let supervisor = yumen_proxy::probe::Supervisor::default();
    let cluster = config.cluster(&node, &listeners, &operator_sockets, worker_count)?;
    let (probes, report) = (supervisor.counters(), dynamic.report());
    config.source.follow_listeners(&runtime, report.states());
    runtime.spawn(dynamic.follow(config.control.snapshots.clone(), worker_duty.clone()));
    let context = config.operator_context(&workers, probes, cluster.clone(), report, worker_duty);
    runtime.spawn(supervisor.supervise(config.control.snapshots.clone()));
    let handover = config.handover(&services, received.sockets.handles.clone(), workers.view());
    let ConfigRuntime { senders, carry, tls, acme, control, source, handover_store, trial, .. } = config;
    tls.tend(&runtime, &node, &control);
    watch_plugins(&runtime, &node, &context);
    // Only one process of a node may order certificates.
    let mut exclusive = Vec::from_iter(acme.map(|acme| runtime.spawn(acme.tend()).abort_handle()));
    let mut operators = OperatorServers::serve(&runtime, &node, &context, operator_sockets)?;
    // After the workers accept: the predecessor stops only then.
    let draining = successor.map(|successor| successor.take_over(received.drain_limits)).transpose()?;
    let (predecessor, handed_over) = Predecessor::new(handover, &node, placement.base_nice, draining.clone());
    operators.serve_socket(&runtime, &node, &context, draining.is_some());
    let upgrade_socket = listen_for_upgrades(&node, draining.is_some(), &predecessor);
    exclusive.extend(notify_service_manager(&runtime, &workers));
    if let Some(draining) = draining {
        // The predecessor ends its upgrade request only now: the next one must reach this process.
        draining.start_sync(PredecessorSync { carry, store: handover_store, control: control.clone() })?;
    }
    exclusive.extend(watch_config(&runtime, &source, trial, &control, &cluster));
    let found = &control.status.problems();
    announce::announce(&listeners, &operators, open_files, worker_count, &node, given, found);
    Ok(GatewayProcess {
        node,
        runtime,
        workers,
        operators,
        announced: cluster.announce(),
        config_source: source,
        upgrade_socket,
        signals,
        duty,
        predecessor,
        handed_over,
        exclusive,
        senders,
    })
}

/// Starts the tasks that watch the store, its tests and the cluster.
fn watch_config(
    runtime: &Runtime,
    source: &OpenedConfigSource,
    trial: Arc<TrialCompiler>,
    control: &ControlHandle,
    cluster: &Arc<NodeCluster>,
) -> [AbortHandle; 3] {
    let watch_source = source.source.clone().watch_over(control.messages.clone());
    [
        runtime.spawn(cluster.clone().watch_over()).abort_handle(),
        runtime.spawn(watch_source).abort_handle(),
        runtime.spawn(watch_tests(trial, source.store.clone(), control.clone())).abort_handle(),
    ]
}

/// Starts the tasks behind plugins: full counter tables, senders of entries; and the export of metrics, which has one.
fn watch_plugins(runtime: &Runtime, node: &NodeConfig, context: &OperatorContext) {
    let OperatorContext { carry, control, senders, .. } = context;
    runtime.spawn(limit_watch::watch(yumen_plugins::limit_usage::metrics(carry), control.clone()));
    let counters = AllCounters(context.workers.counters.clone());
    runtime.spawn(call_watch::watch(counters, control.clone()));
    otlp_export::start(runtime, node, context);
    runtime.spawn(senders.clone().follow(control.snapshots.clone(), control.clone()));
}

/// Opens the upgrade socket and writes the pid file. Returns the path of the socket, if it is open.
fn listen_for_upgrades(
    node: &NodeConfig,
    takes_over: bool,
    predecessor: &Arc<Predecessor>,
) -> Option<PathBuf> {
    // The default path lies in the data directory; without that directory there is no socket.
    let has_directory = |path: &PathBuf| {
        !node.upgrade.socket.is_empty() || path.parent().is_some_and(std::path::Path::is_dir)
    };
    let path = Some(upgrade::socket(node)).filter(has_directory);
    let open = path.filter(|path| {
        let opened = upgrade::open_upgrade_socket(path, takes_over, predecessor.clone());
        let opened = opened.inspect_err(|error| {
            tracing::warn!(%error, socket = %path.display(), "upgrade socket unavailable; use SIGUSR2");
        });
        opened.is_ok()
    });
    if let Err(error) = process::write_pid_file(&node.upgrade.pid_file) {
        tracing::error!(%error, file = node.upgrade.pid_file, "pid file cannot be written");
    }
    open
}

/// Reports readiness to the service manager and starts its watchdog pings, if any.
fn notify_service_manager(runtime: &Runtime, workers: &WorkerThreads) -> Option<AbortHandle> {
    service::notify(&format!("READY=1\nMAINPID={}\nSTATUS=serving", std::process::id()));
    let pause = service::watchdog_pause()?;
    Some(runtime.spawn(service::ping_watchdog(pause, workers.counters.clone())).abort_handle())
}
