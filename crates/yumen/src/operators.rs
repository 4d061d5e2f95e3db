//! Operators' listeners: admin, status with metrics, and control. They run on the control runtime.
//!
//! Connects these listeners to the state of the gateway; serves no traffic.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use yumen_admin::keys::{self, NewKeys};
use yumen_admin::{
    AdminAccess, AdminState, AdminTls, AllowedHosts, ClusterView, ControlState, Described, Document,
    IdentityProvider, LiveGateway, LoginGuard, SecretVisibility, StatusState, V1State,
};
use yumen_base::metric::MetricSource;
use yumen_base::{Now, Problem};
use yumen_config::masking::without_values;
use yumen_config::{NodeConfig, Resource};
use yumen_plugin::{Carry, PluginRegistry};
use yumen_plugins::prometheus::PrometheusMetrics;
use yumen_proxy::probe::{HealthMetrics, ProbeCounters};
use yumen_proxy::protection::ProtectionMetrics;
use yumen_proxy::tls::CertificateLoader;
use yumen_proxy::{AllCounters, RecentRequest, WorkerDuty};
use yumen_snapshot::plan::{ChangePlan, PlanLimits};
use yumen_snapshot::{Publisher, Question, Snapshot};
use yumen_store::{Revision, Store, StoreError};

use crate::admin_socket::{self, AdminSocketFile};
use crate::config::cluster::NodeCluster;
use crate::config::origin::ConfigSource;
use crate::config::trial::{PlannedTraffic, TrialCompiler};
use crate::control::{ControlHandle, InputSources};
use crate::endpoints::dns::DnsMetrics;
use crate::environment::{self, ReadVariables};
use crate::fetched::FetchLedger;
use crate::identity_provider::OpenidProvider;
use crate::kubernetes::{self, NginxMetrics, ProcessUse};
use crate::node;
use crate::process::{NodeInfo, memory};
use crate::senders::LogSenders;
use crate::serving::listener_supervisor::ListenerReport;
use crate::serving::sockets::{InheritedSockets, SocketRole};
use crate::serving::worker_threads::WorkersView;
use crate::tls::{self, ExpiryMonitor, StapleCache};

/// Minimum number of sampled requests for a meaningful share of changed requests.
const SAMPLE_MIN: usize = 20;

/// Gateway state that the operators' listeners expose.
pub(crate) struct OperatorContext {
    pub(crate) control: ControlHandle,
    pub(crate) carry: Arc<Carry>,
    pub(crate) workers: WorkersView,
    pub(crate) probes: Arc<ProbeCounters>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) source: ConfigSource,
    pub(crate) cluster: Arc<NodeCluster>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) trial: Arc<TrialCompiler>,
    pub(crate) expiry: Arc<ExpiryMonitor>,
    pub(crate) staples: Arc<StapleCache>,
    pub(crate) inputs: InputSources,
    pub(crate) listeners: ListenerReport,
    pub(crate) senders: Arc<LogSenders>,
    /// Current duty of the process: serve, hand over, or end.
    pub(crate) duty: watch::Receiver<WorkerDuty>,
}

/// Running operators' listeners.
pub(crate) struct OperatorServers {
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) status: Option<SocketAddr>,
    pub(crate) control: Option<SocketAddr>,
    /// Admin keys generated at the first start.
    pub(crate) new_keys: Option<NewKeys>,
    /// Becomes `true` when the listeners must stop accepting.
    stop: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
    /// Kept for its removal.
    _socket: Option<AdminSocketFile>,
}

/// Bound sockets of the operators' listeners, before they serve.
pub(crate) struct OperatorSockets {
    admin: Option<TcpListener>,
    status: Option<TcpListener>,
    control: Option<TcpListener>,
}

impl OperatorSockets {
    /// Binds the configured addresses, or takes inherited sockets.
    pub(crate) fn open(
        runtime: &Runtime,
        node: &NodeConfig,
        outside: &mut InheritedSockets,
    ) -> anyhow::Result<OperatorSockets> {
        let admin = bind(runtime, &node.admin.listen, SocketRole::Admin, outside);
        let status = bind(runtime, &node.status.listen, SocketRole::Status, outside);
        let control = bind(runtime, &node.control.listen, SocketRole::Control, outside);
        let admin = admin.with_context(|| format!("cannot listen on {} (admin)", node.admin.listen))?;
        // Checked on the bound address: a host name or an inherited socket may expose more than the setting
        // shows.
        if let Some(address) = admin.as_ref().and_then(|listener| listener.local_addr().ok()) {
            node::refuse_admin(&node.admin_exposure_problems(address))?;
        }
        Ok(OperatorSockets {
            admin,
            status: status.with_context(|| format!("cannot listen on {} (status)", node.status.listen))?,
            control: control
                .with_context(|| format!("cannot listen on {} (control)", node.control.listen))?,
        })
    }

    /// Bound addresses by listener name.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let of = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        [("admin", of(&self.admin)), ("status", of(&self.status)), ("control", of(&self.control))]
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)))
    }
}

impl OperatorServers {
    pub(crate) fn serve(
        runtime: &Runtime,
        node: &NodeConfig,
        context: &OperatorContext,
        sockets: OperatorSockets,
    ) -> anyhow::Result<OperatorServers> {
        let OperatorSockets { admin, status, control } = sockets;
        let (stop, stopped) = watch::channel(false);
        let address =
            |listener: &Option<TcpListener>| listener.as_ref().and_then(|one| one.local_addr().ok());
        let addresses = [address(&admin), address(&status), address(&control)];
        let (mut new, mut serving) = (None, Vec::new());
        // One for all listeners, because its index grows with the configuration.
        let mut admin_state = admin_state(node, context)?;
        let provider = OpenidProvider::open(&node.admin.dashboard.openid)?;
        admin_state.identity = provider.map(|provider| provider as Arc<dyn IdentityProvider>);
        if let Some(status) = status {
            let state = status_state(node, context, admin_state.clone());
            let stopped = wait_for_stop(stopped.clone());
            serving.push(runtime.spawn(yumen_admin::serve_status(status, state, stopped)));
        }
        if let Some(control) = control {
            let state = control_state(node, context, admin_state.clone());
            let hosts = AllowedHosts::new(&node.control.hosts, "control.hosts");
            let stopped = wait_for_stop(stopped.clone());
            serving.push(runtime.spawn(yumen_admin::serve_control(control, state, hosts, stopped)));
        }
        if let Some(admin) = admin {
            // Only with an admin listener: keys without one could not be used.
            new = new_keys(runtime, node, context)?;
            let v1 = v1_state(node, context, admin_state.clone());
            let tls = admin_tls(node)?;
            let stopped = wait_for_stop(stopped);
            serving.push(runtime.spawn(yumen_admin::serve_api(admin, tls, admin_state, v1, stopped)));
        }
        let [admin, status, control] = addresses;
        Ok(OperatorServers { admin, status, control, new_keys: new, stop, serving, _socket: None })
    }

    /// Serves the Admin API on the socket in the data directory. Without it, commands need the admin listener and a
    /// key.
    pub(crate) fn serve_socket(
        &mut self,
        runtime: &Runtime,
        node: &NodeConfig,
        context: &OperatorContext,
        takes_over: bool,
    ) {
        let opened = || -> anyhow::Result<(UnixListener, AdminSocketFile, AdminState)> {
            let (listener, file) = admin_socket::open(node, takes_over)?;
            let _inside = runtime.enter();
            Ok((UnixListener::from_std(listener)?, file, admin_state(node, context)?))
        };
        match opened() {
            Ok((listener, file, state)) => {
                let v1 = v1_state(node, context, state.clone());
                let owner = rustix::process::geteuid().as_raw();
                let stopped = wait_for_stop(self.stop.subscribe());
                let serving = yumen_admin::serve_local(listener, owner, state, v1, stopped);
                self.serving.push(runtime.spawn(serving));
                self._socket = Some(file);
            }
            Err(error) => {
                let socket = admin_socket::path(node);
                tracing::warn!(%error, socket = %socket.display(), "admin socket unavailable; set --data-dir");
            }
        }
    }

    /// Stops accepting; the successor accepts.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for in-flight requests; their duration is bounded.
    pub(crate) async fn join(self) {
        for serving in self.serving {
            // A task that panicked has ended too.
            let _ = serving.await;
        }
    }
}

async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Without a sender, no stop can be requested.
        std::future::pending::<()>().await;
    }
}

fn bind(
    runtime: &Runtime,
    address: &str,
    role: SocketRole,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Option<TcpListener>> {
    if address.is_empty() {
        return Ok(None);
    }
    let address = node::address(address)?;
    let listener = match outside.take(role, address).into_iter().next() {
        Some(socket) => std::net::TcpListener::from(socket),
        None => runtime.block_on(TcpListener::bind(address))?.into_std()?,
    };
    listener.set_nonblocking(true)?;
    // Accepted connections inherit TCP_NODELAY. Without it, a response of several writes waits up to 40 ms
    // for the client's delayed ACK.
    socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
    outside.keep(role, address, std::slice::from_ref(&listener))?;
    let _inside = runtime.enter();
    Ok(Some(TcpListener::from_std(listener)?))
}

fn admin_tls(node: &NodeConfig) -> anyhow::Result<Option<AdminTls>> {
    let tls = &node.admin.tls;
    if !tls.is_on() {
        return Ok(None);
    }
    let read = |path: &str| std::fs::read(path).with_context(|| format!("admin.tls: cannot read {path}"));
    let client_ca = if tls.client_ca.is_empty() { None } else { Some(read(&tls.client_ca)?) };
    AdminTls::new(&read(&tls.certificate)?, &read(&tls.key)?, client_ca.as_deref())
        .map(Some)
        .map_err(|error| anyhow::anyhow!(error))
}

fn new_keys(
    runtime: &Runtime,
    node: &NodeConfig,
    context: &OperatorContext,
) -> anyhow::Result<Option<NewKeys>> {
    if !node.admin.key_required || !node.admin.keys.is_empty() {
        return Ok(None);
    }
    match runtime.block_on(keys::ensure(&*context.store)) {
        Ok(keys) => Ok(keys),
        // The store is not writable now; a later start generates the keys.
        Err(StoreError::ReadOnly(_) | StoreError::Unreachable(_)) => Ok(None),
        Err(error) => Err(error).context("cannot keep the keys of the admin listener"),
    }
}

fn admin_state(node: &NodeConfig, context: &OperatorContext) -> anyhow::Result<AdminState> {
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let mut state = AdminState::new(
        context.store.clone(),
        registry,
        yumen_plugins::inactive::missing(&node.plugins.allow_missing),
        Arc::new(CertificateLoader::default()),
    );
    let access = AdminAccess::new(&node.admin).map_err(|error| anyhow::anyhow!("admin.allow: {error}"))?;
    state.access = Arc::new(access);
    state.logins = failed_logins(&context.carry);
    state.variables = Arc::new(environment::variable);
    state.api_version = node.admin.api_version;
    state.stream_routes = !node.stream_listen.is_empty();
    Ok(state)
}

/// Failed logins at all listeners of the process.
fn failed_logins(carry: &Carry) -> Arc<LoginGuard> {
    carry.keep("failed logins", LoginGuard::default)
}

/// Name of a backup in the data directory while it is sent.
const BACKUP: &str = "backup.sending";

/// The running gateway, as exposed to `/yumen/v1`.
struct RunningGateway {
    control: ControlHandle,
    trial: Arc<TrialCompiler>,
    counters: AllCounters,
    workers: WorkersView,
    publisher: Arc<Publisher>,
    store: Arc<dyn Store>,
    data_dir: PathBuf,
    backing_up: Mutex<()>,
    cluster: Arc<NodeCluster>,
    top: Document,
    listeners: ListenerReport,
    fetched: Arc<FetchLedger>,
    variables: Arc<ReadVariables>,
    lists_recent: bool,
}

impl LiveGateway for RunningGateway {
    fn applied(&self) -> watch::Receiver<Revision> {
        self.control.applied.clone()
    }

    fn workers(&self) -> (Vec<u64>, u64) {
        (self.workers.applied(), self.publisher.version())
    }

    fn problems(&self) -> Vec<Problem> {
        self.control.status.problems()
    }

    fn cluster(&self) -> ClusterView {
        self.cluster.view()
    }

    fn cluster_moved(&self) -> watch::Receiver<u64> {
        self.cluster.moved()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.publisher.load()
    }

    fn trial(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        self.trial.compile(resources)
    }

    fn plan(
        &self,
        before: &[Resource],
        after: &[Resource],
        mut limits: PlanLimits,
        visibility: SecretVisibility,
    ) -> ChangePlan {
        let sample: Vec<Question> = self.counters.recent().iter().filter_map(question).collect();
        // With too few samples the share is not meaningful: disable its limit.
        if sample.len() < SAMPLE_MIN {
            limits.changed_share_max = 1.0;
        }
        let snapshot = self.publisher.load();
        let mut healthy: HashMap<SocketAddr, bool> = HashMap::new();
        for endpoint in snapshot.upstreams().flat_map(|(_, upstream)| upstream.endpoints.iter()) {
            if let Some(health) = &endpoint.health {
                // The state in force, since the snapshots of a plan have no probes of their own.
                healthy.insert(endpoint.addr, health.is_up());
            }
        }
        let is_healthy = |addr| healthy.get(&addr).copied();
        let traffic = PlannedTraffic { sample: &sample, is_healthy: &is_healthy, limits };
        self.trial.plan(before, after, traffic, visibility)
    }

    fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem> {
        self.trial.lint(resources, strict)
    }

    fn backup(&self) -> Result<File, StoreError> {
        let path = self.data_dir.join(BACKUP);
        // A fixed name: after a crash in between, one file is left, which the next backup replaces.
        let _one = self.backing_up.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.backup(&path)?;
        let file = File::open(&path)?;
        // The open handle keeps the content; the name disappears even if the client never reads.
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    fn listeners(&self) -> serde_json::Value {
        self.listeners.document()
    }

    fn top(&self) -> serde_json::Value {
        (self.top)()
    }

    fn recent(&self) -> Option<serde_json::Value> {
        let list = |_| serde_json::to_value(self.counters.recent()).unwrap_or_default();
        self.lists_recent.then_some(()).map(list)
    }

    fn certificates(&self) -> serde_json::Value {
        tls::certificates(&self.publisher.load())
    }

    fn secrets(&self) -> BTreeMap<String, serde_json::Value> {
        self.fetched.secrets()
    }

    fn refresh_secrets(&self) -> usize {
        self.fetched.refresh_secrets()
    }

    fn forget_secret(&self, name: &str) -> bool {
        self.fetched.forget_secret(name)
    }

    fn without_secrets(&self, text: String) -> String {
        let mut values = self.fetched.secret_values();
        values.extend(self.variables.values());
        without_values(text, values)
    }

    fn now(&self) -> Now {
        yumen_proxy::clock::exact()
    }
}

fn v1_state(node: &NodeConfig, context: &OperatorContext, admin: AdminState) -> V1State {
    let live = RunningGateway {
        control: context.control.clone(),
        trial: context.trial.clone(),
        counters: AllCounters(context.workers.counters.clone()),
        workers: context.workers.clone(),
        publisher: context.publisher.clone(),
        store: context.store.clone(),
        data_dir: PathBuf::from(&node.store.data_dir),
        backing_up: Mutex::default(),
        cluster: context.cluster.clone(),
        top: top(&Arc::new(AllCounters(context.workers.counters.clone())), context),
        listeners: context.listeners.clone(),
        fetched: context.inputs.fetched.clone(),
        variables: context.inputs.variables.clone(),
        lists_recent: node.observe.list_recent_requests,
    };
    V1State::new(admin, Arc::new(live))
}

/// Converts a recent request to a question, unless its text was truncated.
fn question(recent: &RecentRequest) -> Option<Question> {
    // A truncated URL could match another route.
    (!recent.is_cut).then(|| Question {
        method: recent.method.to_string(),
        url: format!("{}://{}{}", recent.scheme, recent.host, recent.path),
        client_ip: Some(recent.client_ip),
        consumer: recent.consumer.as_deref().map(str::to_owned),
        sni: recent.sni.as_deref().map(str::to_owned),
        listener: recent.listener.as_deref().map(str::to_owned),
        ..Question::default()
    })
}

/// All sources of metrics.
pub(crate) fn metric_sources(context: &OperatorContext) -> Vec<Arc<dyn MetricSource>> {
    let snapshots = &context.control.snapshots;
    vec![
        Arc::new(AllCounters(context.workers.counters.clone())),
        context.control.status.clone(),
        yumen_plugins::prometheus::metrics(&context.carry),
        context.probes.clone(),
        Arc::new(ProtectionMetrics(snapshots.clone())),
        yumen_plugins::adaptive_concurrency::metrics(&context.carry),
        yumen_plugins::limit_usage::metrics(&context.carry),
        Arc::new(HealthMetrics(snapshots.clone())),
        Arc::new(context.source.clone()),
        Arc::new(NodeInfo),
        context.cluster.clone(),
        context.expiry.clone(),
        context.staples.clone(),
        context.senders.clone(),
        context.inputs.services.clone(),
        context.inputs.fetched.clone(),
        failed_logins(&context.carry),
        Arc::new(DnsMetrics),
        Arc::new(context.listeners.clone()),
    ]
}

fn status_state(node: &NodeConfig, context: &OperatorContext, admin: AdminState) -> StatusState {
    let counters = Arc::new(AllCounters(context.workers.counters.clone()));
    let status = context.control.status.clone();
    let (ready, described) = (context.control.clone(), status.clone());
    let (duty, first_listeners) = (context.duty.clone(), context.listeners.clone());
    let origin = context.source.clone();
    let listeners = context.listeners.clone();
    let current = context.control.snapshots.clone();
    let (problems, workers, source) = (status.clone(), context.workers.clone(), context.source.clone());
    let prometheus = yumen_plugins::prometheus::metrics(&context.carry);
    let nginx = nginx_metrics(node, context, &counters, &prometheus);
    let mut state = StatusState {
        ready: Arc::new(move || match *duty.borrow() {
            // Reports not ready, so that load balancers send no new connections during the drain.
            WorkerDuty::End { .. } => Err("the gateway is shutting down and drains its connections".into()),
            _ if origin.is_ending() => Err("the gateway is about to shut down".into()),
            _ => {
                ready.readiness()?;
                let newest = ready.snapshots.borrow().clone();
                let are_open = first_listeners.are_first_open(&newest);
                are_open
                    .then_some(())
                    .ok_or_else(|| "the listeners of the configuration are not open yet".into())
            }
        }),
        top: top(&counters, context),
        recent: node.observe.list_recent_requests.then(|| recent(&counters)),
        gather: metric_sources(context),
        listeners: Arc::new(move || listeners.document()),
        describe: Arc::new(move || {
            let mut members = source.document();
            members.insert("version".into(), env!("CARGO_PKG_VERSION").into());
            members.insert("pid".into(), std::process::id().into());
            members.insert("revision".into(), described.revision.load(Ordering::Acquire).into());
            members.insert("workers".into(), workers.counters.len().into());
            members.insert("problems".into(), described.problems().len().into());
            let ejected = yumen_proxy::protection::ejected(&current.borrow().clone());
            members.insert("ejected".into(), serde_json::to_value(ejected).unwrap_or_default());
            members.into()
        }),
        hosts: AllowedHosts::new(&node.status.hosts, "status.hosts"),
        more: yumen_admin::control_routes(control_state(node, context, admin)),
        health: health(context),
        problems: Arc::new(move || serde_json::to_value(problems.problems()).unwrap_or_default()),
    };
    state.gather.extend(nginx);
    state
}

/// The metrics of ingress-nginx, if the settings ask for them.
fn nginx_metrics(
    node: &NodeConfig,
    context: &OperatorContext,
    counters: &Arc<AllCounters>,
    prometheus: &Arc<PrometheusMetrics>,
) -> Option<Arc<dyn MetricSource>> {
    let controller = kubernetes::nginx_labels(node)?;
    Some(Arc::new(NginxMetrics {
        controller,
        sources: vec![
            counters.clone(),
            prometheus.clone(),
            Arc::new(context.source.clone()),
            context.expiry.clone(),
        ],
        store: context.store.clone(),
        process: || ProcessUse {
            cpu_s: memory::cpu_time().as_secs_f64(),
            resident_bytes: memory::resident_bytes().unwrap_or_default() as f64,
        },
    }))
}

fn control_state(node: &NodeConfig, context: &OperatorContext, admin: AdminState) -> ControlState {
    ControlState { admin, health: health(context), discovery: discovery(node, context) }
}

/// Health of endpoints from active and passive checks.
fn health(context: &OperatorContext) -> Document {
    let snapshots = context.control.snapshots.clone();
    Arc::new(move || {
        let snapshot = snapshots.borrow().clone();
        serde_json::to_value(yumen_proxy::probe::report(&snapshot)).unwrap_or_default()
    })
}

/// All discovered services, or those of one type in the format of APISIX.
fn discovery(node: &NodeConfig, context: &OperatorContext) -> Described {
    let (settings, ledger) = (node.discovery.clone(), context.inputs.services.clone());
    Arc::new(move |source| match source {
        None => Some(ledger.document()),
        Some(source) => ledger.dump(source, &settings),
    })
}

/// Document for `yumen top`.
fn top(counters: &Arc<AllCounters>, context: &OperatorContext) -> Document {
    let (counters, senders, started) = (counters.clone(), context.senders.clone(), Instant::now());
    let status = context.control.status.clone();
    Arc::new(move || {
        let mut document = counters.top();
        document["sinks"] = senders.document();
        document["cpu_ms"] = (memory::cpu_time().as_millis() as u64).into();
        document["memory_bytes"] = memory::resident_bytes().unwrap_or(0).into();
        document["version"] = env!("CARGO_PKG_VERSION").into();
        document["revision"] = status.revision.load(Ordering::Acquire).into();
        document["uptime_ms"] = (started.elapsed().as_millis() as u64).into();
        document
    })
}

fn recent(counters: &Arc<AllCounters>) -> Document {
    let counters = counters.clone();
    Arc::new(move || serde_json::to_value(counters.recent()).unwrap_or_default())
}
