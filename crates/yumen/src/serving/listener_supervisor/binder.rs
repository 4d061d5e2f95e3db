//! Binds the sockets of listeners of the configuration, or takes those of the predecessor.
//!
//! Owns the options of the sockets; must not choose between listeners.

use std::sync::Arc;

use anyhow::anyhow;
use yumen_config::NodeConfig;
use yumen_config::node::ListenerConfig;
use yumen_proxy::settings::ListenSocketOptions;
use yumen_proxy::tls::DownstreamTlsAcceptor;
use yumen_proxy::{
    DynamicListener, Http3Identity, ListenerProtocol, ListenerSettings, StreamProtocol, WorkerListenSockets,
    WorkerSettings,
};
use yumen_snapshot::{ListenProtocol, ListenSettings};

use super::claims::SocketClaim;
use crate::node;
use crate::serving::http3_handovers::Http3Handovers;
use crate::serving::listeners;
use crate::serving::sockets::{InheritedSockets, SocketRole};

/// The parts of the process that listeners of the configuration use.
pub(crate) struct ListenerServices {
    pub(crate) node: NodeConfig,
    pub(crate) workers: usize,
    pub(crate) acceptor: DownstreamTlsAcceptor,
    pub(crate) settings: Arc<WorkerSettings>,
    pub(crate) http3_identity: Http3Identity,
    pub(crate) http3_handovers: Arc<Http3Handovers>,
}

impl ListenerServices {
    /// The sockets for a claim, by worker.
    pub(super) fn bind(
        &self,
        claim: &SocketClaim,
        sockets: &mut InheritedSockets,
    ) -> anyhow::Result<Vec<WorkerListenSockets>> {
        let settings = socket_settings(&claim.listener.settings);
        let workers = self.workers;
        match claim.role {
            SocketRole::Datagrams => {
                let bound = listeners::open_datagrams(claim.role, &settings, workers, sockets)?;
                Ok(listeners::deal(bound, workers).into_iter().map(WorkerListenSockets::Udp).collect())
            }
            SocketRole::Http3 => {
                let bound = listeners::open_http3(&settings, &settings, workers, sockets)?;
                let predecessor = sockets.take_predecessor_link(settings.address);
                let (acceptor, identity) =
                    (self.acceptor.for_listener(claim.listener.number), &self.http3_identity);
                let (endpoints, leave) =
                    yumen_proxy::listen_http3(bound, &acceptor, &self.settings, identity, predecessor)
                        .map_err(|error| anyhow!("HTTP/3 cannot be set up: {error}"))?;
                self.http3_handovers.add(settings.address, leave);
                let dealt = listeners::deal(endpoints, workers);
                Ok(dealt.into_iter().map(WorkerListenSockets::Http3).collect())
            }
            _ => {
                let bound = listeners::open_streams(&settings, workers, sockets)?;
                let dealt = listeners::for_each(listeners::deal(bound, workers))?;
                Ok(dealt.into_iter().map(WorkerListenSockets::Tcp).collect())
            }
        }
    }

    /// The listener as the workers serve it. `has_http3` is whether its HTTP/3 port belongs to it.
    pub(super) fn dynamic(&self, claim: &SocketClaim, has_http3: bool) -> DynamicListener {
        let settings = claim.listener.settings.clone();
        let alt_svc = has_http3.then(|| node::alt_svc_line(&self.node.http3, settings.port)).flatten();
        DynamicListener { number: claim.listener.number, settings, alt_svc }
    }
}

/// The settings of the sockets; those that a listener leaves open are the defaults of the node's settings.
pub(super) fn socket_settings(listener: &ListenSettings) -> ListenerSettings {
    let defaults = ListenerConfig::default();
    let protocol = match listener.protocol {
        ListenProtocol::Http => ListenerProtocol::Http,
        ListenProtocol::Https => ListenerProtocol::Https { http3: listener.http3 },
        ListenProtocol::Tcp => ListenerProtocol::Stream(StreamProtocol::Tcp),
        ListenProtocol::Tls => ListenerProtocol::Stream(StreamProtocol::Tls),
        ListenProtocol::Udp => ListenerProtocol::Stream(StreamProtocol::Udp),
    };
    ListenerSettings {
        address: listener.address,
        protocol,
        proxy_from: listener.proxy_from.clone(),
        socket: ListenSocketOptions {
            backlog: i32::try_from(listener.backlog.unwrap_or(defaults.backlog)).unwrap_or(i32::MAX),
            reuse_port: defaults.reuse_port,
            // In some stream protocols the server sends first.
            defer_accept: defaults.defer_accept && protocol.stream().is_none(),
        },
    }
}
