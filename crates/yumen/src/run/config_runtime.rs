//! The current configuration and the components that update it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use yumen_base::Problem;
use yumen_config::NodeConfig;
use yumen_config::node::StoreKind;
use yumen_plugin::{Carry, SinkRegistry};
use yumen_proxy::probe::ProbeCounters;
use yumen_proxy::{ListenerProtocol, WorkerDuty};
use yumen_snapshot::Publisher;
use yumen_store::LastGoodVersions;

use super::bootstrap::GatewayBootstrap;
use crate::config::cluster::{self, NodeCluster};
use crate::config::compiler;
use crate::config::guard::GuardedStore;
use crate::config::handover_store::HandoverStore;
use crate::config::origin::ConfigSource;
use crate::config::source::OpenedConfigSource;
use crate::config::trial::TrialCompiler;
use crate::control::applied_tracker::AppliedTracker;
use crate::control::{self, ControlContext, ControlHandle, ControlMessage, InputSources};
use crate::endpoints::discovery::{self, ServiceLedger};
use crate::endpoints::dns::{self, HostNames};
use crate::endpoints::inputs::{KnownDocuments, KnownInputs};
use crate::environment::ReadVariables;
use crate::fetched::{self, FetchLedger};
use crate::operators::{OperatorContext, OperatorSockets};
use crate::senders::LogSenders;
use crate::serving::listener_supervisor::{ListenerReport, ListenerServices};
use crate::serving::listeners::BoundListeners;
use crate::serving::sockets::SocketHandles;
use crate::serving::worker_threads::{WorkerThreads, WorkersView};
use crate::tls::{AcmeManager, TlsServices};
use crate::upgrade::{HandoverState, Successor};

/// Control thread, store and background tasks, once the first configuration is published.
pub(super) struct ConfigRuntime {
    /// Senders of log entries.
    pub(super) senders: Arc<LogSenders>,
    pub(super) carry: Arc<Carry>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) tls: TlsServices,
    pub(super) acme: Option<AcmeManager>,
    pub(super) trial: Arc<TrialCompiler>,
    pub(super) control: ControlHandle,
    pub(super) source: OpenedConfigSource,
    pub(super) handover_store: Arc<HandoverStore>,
    inputs: InputSources,
}

impl ConfigRuntime {
    /// Starts the components and waits for the first publication.
    pub(super) fn start(
        bootstrap: &GatewayBootstrap,
        successor: Option<&Successor>,
    ) -> anyhow::Result<ConfigRuntime> {
        let GatewayBootstrap { node, given, listeners, received, runtime, .. } = bootstrap;
        // Before anything is bound or created.
        received.start.check(&node.store)?;
        let (carry, publisher) = (Arc::new(Carry::default()), Arc::new(Publisher::default()));
        let mut tls = TlsServices::new(node, &received.ticket_keys, &received.staples)?;
        let sinks = Arc::<SinkRegistry>::default();
        let (actual, variables) = (listeners.actual(node), Arc::<ReadVariables>::default());
        let (worker_count, loader) = (bootstrap.worker_count, tls.loader.clone());
        let compiler = compiler::new(&actual, worker_count, carry.clone(), loader, variables.clone())
            .with_sinks(sinks.clone())
            .with_secrets();
        let trial = Arc::new(TrialCompiler::new(&compiler, variables.clone()));
        let versions = Arc::new(LastGoodVersions::default());
        let control = control::start(
            compiler,
            ControlContext {
                carry: carry.clone(),
                publisher: publisher.clone(),
                versions: versions.clone(),
                applied_tracker: applied_tracker_of(successor),
                initial_inputs: received.known.clone(),
                huge_pages: node.router.huge_pages,
            },
        )?;
        let mut acme = tls.open_acme(node, &control)?;
        // A resource file has no owner.
        if let Some(successor) = successor.filter(|_| node.store.kind != StoreKind::File) {
            // As late as possible: writes wait in the predecessor until the handover ends.
            successor.acquire_store()?;
        }
        let (given, trial_source) = (given.as_ref(), trial.clone());
        let source = OpenedConfigSource::open(
            node,
            given,
            &received.start,
            &control,
            trial_source,
            versions,
            runtime,
        )?;
        // Before the first compilation, so that certificates of other nodes are in it.
        share_certificates(acme.as_mut(), &source.source, node, runtime)?;
        // A restored store may be at a lower revision than the predecessor had applied.
        control.applied_tracker.start_at(received.applied.min(source.store.state().revision));
        // After the store is open; the first compilation waits for the addresses of its names.
        let inputs = start_resolving(runtime, node, &control, &received.known, variables);
        trial.hide_secrets(inputs.fetched.clone());
        if let Some(successor) = successor {
            successor.report_step("the new process compiles the configuration");
        }
        control.wait_for_first_publication(runtime)?;
        // Before serving: clients reject must-staple certificates without one (decision 32).
        tls.staple_known();
        Ok(ConfigRuntime {
            senders: LogSenders::new(sinks),
            handover_store: source.handover_store(),
            carry,
            publisher,
            tls,
            acme,
            trial,
            control,
            source,
            inputs,
        })
    }

    /// Reports the result of the compilation to the predecessor, if there is one.
    /// `of_listeners` are problems that the control thread may not have received yet.
    pub(super) fn report_ready(
        &self,
        successor: Option<&Successor>,
        of_listeners: Vec<Problem>,
    ) -> anyhow::Result<()> {
        let Some(successor) = successor else { return Ok(()) };
        let problems = [self.control.status.problems(), of_listeners].concat();
        successor.report_ready(&problems, &self.source.store.state(), &self.carry)
    }

    /// Membership of this node in the cluster of its store.
    pub(super) fn cluster(
        &self,
        node: &NodeConfig,
        listeners: &BoundListeners,
        operator_sockets: &OperatorSockets,
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
        for (name, address) in clients.chain(operator_sockets.addresses()) {
            addresses.entry(name.into()).or_default().push(address.to_string());
        }
        let local = cluster::LocalNode { name: cluster::node_name(node), addresses, workers };
        let (source, store) = (self.source.source.clone(), self.source.store.clone());
        Ok(Arc::new(NodeCluster::new(node, local, source, store, self.control.clone())?))
    }

    /// State of this process for a successor.
    pub(super) fn handover(
        &self,
        services: &ListenerServices,
        sockets: Arc<SocketHandles>,
        workers: WorkersView,
    ) -> HandoverState {
        HandoverState {
            sockets,
            ticket_keys: self.tls.tickets.clone(),
            http3_identity: services.http3_identity.clone(),
            http3: services.http3_handovers.clone(),
            carry: self.carry.clone(),
            workers,
            exclusive: self.source.exclusive(),
            pid_file: services.node.upgrade.pid_file.clone(),
            store: self.handover_store.clone(),
            control: self.control.clone(),
            inputs: self.inputs.clone(),
            staples: self.tls.staples.clone(),
            orders: self.tls.orders.clone(),
        }
    }

    /// State that the operators' listeners expose.
    pub(super) fn operator_context(
        &self,
        workers: &WorkerThreads,
        probes: Arc<ProbeCounters>,
        cluster: Arc<NodeCluster>,
        listeners: ListenerReport,
        duty: watch::Receiver<WorkerDuty>,
    ) -> OperatorContext {
        OperatorContext {
            cluster,
            control: self.control.clone(),
            carry: self.carry.clone(),
            workers: workers.view(),
            probes,
            store: Arc::new(GuardedStore::new(
                self.source.store.clone(),
                self.trial.clone(),
                self.control.versions.clone(),
            )),
            source: self.source.source.clone(),
            inputs: self.inputs.clone(),
            publisher: self.publisher.clone(),
            trial: self.trial.clone(),
            expiry: self.tls.expiry.clone(),
            staples: self.tls.staples.clone(),
            listeners,
            senders: self.senders.clone(),
            duty,
        }
    }
}

/// A revision counts as applied only when the predecessor has published it as well (decision 20).
fn applied_tracker_of(successor: Option<&Successor>) -> AppliedTracker {
    match successor {
        Some(_) => AppliedTracker::with_predecessor(),
        None => AppliedTracker::alone(),
    }
}

/// Shares the certificates of ACME with the nodes of a cluster.
fn share_certificates(
    acme: Option<&mut AcmeManager>,
    source: &ConfigSource,
    node: &NodeConfig,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let (Some(acme), ConfigSource::Etcd(store)) = (acme, source) else { return Ok(()) };
    acme.share(node, store, runtime).context("acme")
}

/// Starts name resolution, service discovery and fetching from the known inputs; returns them as input sources.
fn start_resolving(
    runtime: &Runtime,
    node: &NodeConfig,
    control: &ControlHandle,
    known: &KnownInputs,
    variables: Arc<ReadVariables>,
) -> InputSources {
    let KnownInputs { names, services, documents } = known.clone();
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
    let required = control.services.clone();
    let discovering = discovery::run_discovery(required, node.clone(), ledger.clone(), services, report);
    runtime.spawn(discovering);
    let fetched = start_fetching(runtime, node, control, documents);
    InputSources { names, services: ledger, fetched, variables }
}

/// Starts the fetching of documents and secrets; returns their state.
fn start_fetching(
    runtime: &Runtime,
    node: &NodeConfig,
    control: &ControlHandle,
    known: KnownDocuments,
) -> Arc<FetchLedger> {
    let (messages, ledger) = (control.messages.clone(), Arc::<FetchLedger>::default());
    let report = move |request, result| {
        let _ = messages.send(ControlMessage::Fetched(request, result));
    };
    let data_dir = Path::new(&node.store.data_dir).to_owned();
    runtime.spawn(fetched::run_fetching(control.fetches.clone(), data_dir, ledger.clone(), known, report));
    ledger
}
