//! Start-up before any configuration is read: node settings, runtime, sockets.

use tokio::runtime::Runtime;
use yumen_config::NodeConfig;
use yumen_proxy::Http3Identity;

use crate::node::{self, GatewayRunArgs};
use crate::operators::OperatorSockets;
use crate::process::signals::ProcessSignals;
use crate::process::{self, WorkerPlacement, node_log};
use crate::serving::listeners::BoundListeners;
use crate::serving::socket_activation;
use crate::upgrade::{HandoverReceived, Successor};

/// Resources that exist before any configuration is read.
pub(super) struct GatewayBootstrap {
    pub(super) node: NodeConfig,
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
        args: &GatewayRunArgs,
        successor: Option<&Successor>,
    ) -> anyhow::Result<GatewayBootstrap> {
        let node = node::load(args)?;
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
        received.sockets.check_all_taken()?;
        Ok(GatewayBootstrap {
            node,
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

    /// The identity of HTTP/3 endpoints: that of the predecessor, so that its connections reach this process,
    /// or a new one.
    pub(super) fn http3_identity(&mut self) -> anyhow::Result<Http3Identity> {
        let identity = self.received.http3_identity.take().map_or_else(Http3Identity::new, Ok);
        identity.map_err(|error| anyhow::anyhow!("HTTP/3: {error}"))
    }
}
