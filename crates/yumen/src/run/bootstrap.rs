//! Start-up before any configuration is read: node settings, runtime, sockets.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use yumen_config::NodeConfig;
use yumen_outbound::DirectoryClient;
use yumen_plugin::DirectoryAccess;
use yumen_proxy::{Http3Identity, ListenAddress, ListenTransport, ListenerCommand};

use super::GatewayLaunch;
use super::config_runtime::ConfigRuntime;
use crate::config::given::GivenResources;
use crate::node;
use crate::operators::OperatorSockets;
use crate::process::signals::ProcessSignals;
use crate::process::{self, WorkerPlacement, memory, node_log};
use crate::serving::listener_supervisor::{ListenerServices, ListenerSupervisor};
use crate::serving::listeners::BoundListeners;
use crate::serving::socket_activation;
use crate::upgrade::{HandoverReceived, Successor};

/// Resources that exist before any configuration is read.
pub(super) struct GatewayBootstrap {
    pub(super) node: NodeConfig,
    /// Resources in place of a store.
    pub(super) given: Option<GivenResources>,
    pub(super) placement: WorkerPlacement,
    pub(super) worker_count: usize,
    pub(super) open_files: u64,
    pub(super) runtime: Runtime,
    pub(super) signals: ProcessSignals,
    pub(super) listeners: BoundListeners,
    pub(super) operator_sockets: OperatorSockets,
    /// State received from the predecessor, or sockets from the service manager.
    pub(super) received: HandoverReceived,
}

impl GatewayBootstrap {
    pub(super) fn new(
        launch: GatewayLaunch,
        successor: Option<&Successor>,
    ) -> anyhow::Result<GatewayBootstrap> {
        let GatewayLaunch { node, given } = launch;
        node_log::start(&node.logs);
        let mut received = match successor {
            Some(successor) => successor.receive()?,
            None => HandoverReceived::without_predecessor(socket_activation::sockets()?),
        };
        let open_files = process::raise_open_files();
        let base_nice = process::raise_control_priority();
        let placement = WorkerPlacement { cpus: process::allowed_cpus(), base_nice };
        let worker_count = node::workers(&node, placement.cpus.len());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("yumen-async")
            .enable_all()
            .build()?;
        let signals = runtime.block_on(async { ProcessSignals::listen() })?;
        let listeners = BoundListeners::open(&node, worker_count, &mut received.sockets)?;
        let operator_sockets = OperatorSockets::open(&runtime, &node, &mut received.sockets)?;
        received.sockets.check_activation_taken()?;
        Ok(GatewayBootstrap {
            node,
            given,
            placement,
            worker_count,
            open_files,
            runtime,
            signals,
            listeners,
            operator_sockets,
            received,
        })
    }

    /// The parts of the process that all listeners use.
    pub(super) fn listener_services(&mut self, config: &ConfigRuntime) -> anyhow::Result<ListenerServices> {
        let mut settings = node::settings(&self.node)?;
        settings.overload.memory_full = memory::watch(self.node.overload.memory_bytes)?;
        let directories = DirectoryClient::new(self.runtime.handle().clone());
        settings.directories = DirectoryAccess::new(Arc::new(directories));
        Ok(ListenerServices {
            node: self.node.clone(),
            workers: self.worker_count,
            acceptor: config.tls.acceptor(&self.node, &config.publisher)?,
            settings: Arc::new(settings),
            http3_identity: self.http3_identity()?,
            http3_handovers: Arc::default(),
        })
    }

    /// Opens the listeners of the first snapshot. Afterwards, no inherited socket is left over.
    pub(super) fn open_first_listeners(
        &mut self,
        config: &ConfigRuntime,
        services: Arc<ListenerServices>,
    ) -> (ListenerSupervisor, Vec<UnboundedReceiver<ListenerCommand>>) {
        let of_node = self.listeners.addresses().into_iter().map(|at| (at, "a listener of yumen.yaml"));
        let operators = self.operator_sockets.addresses().map(|(name, address)| {
            let owner = match name {
                "admin" => "the admin listener",
                "status" => "the status listener",
                _ => "the control listener",
            };
            (ListenAddress { transport: ListenTransport::Tcp, address }, owner)
        });
        let occupied = of_node.chain(operators).collect();
        let snapshot = config.control.snapshots.borrow().clone();
        let (inherited, problems) = (&mut self.received.sockets, config.control.messages.clone());
        ListenerSupervisor::open_first(&snapshot, services, occupied, inherited, problems)
    }

    /// The identity of HTTP/3 endpoints: that of the predecessor, so that its connections reach this process,
    /// or a new one.
    fn http3_identity(&mut self) -> anyhow::Result<Http3Identity> {
        let identity = self.received.http3_identity.take().map_or_else(Http3Identity::new, Ok);
        identity.map_err(|error| anyhow::anyhow!("HTTP/3: {error}"))
    }
}
