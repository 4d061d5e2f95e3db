//! Listening sockets of the workers, bound or inherited: one or more per worker and listener.
//!
//! Owns the origin of sockets and their distribution to workers; serves no connection.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::Context;
use yumen_config::NodeConfig;
use yumen_proxy::tls::DownstreamTlsAcceptor;
use yumen_proxy::{
    DatagramForwarder, Datagrams, Http3Listener, ListenAddress, ListenTransport, Listener, ListenerProtocol,
    ListenerSettings, StreamProtocol,
};

use super::listener_supervisor::ListenerServices;
use super::sockets::{InheritedSockets, SocketRole};
use crate::{node, process};

/// Bound sockets of all workers.
pub(crate) struct BoundListeners {
    pub(crate) settings: Vec<ListenerSettings>,
    /// Indexed by listener, then by worker.
    sockets: Vec<Vec<Vec<TcpListener>>>,
    /// UDP addresses with their sockets by worker.
    pub(crate) datagrams: Vec<(SocketAddr, Vec<Vec<UdpSocket>>)>,
    /// HTTP/3 sockets of each listener that has HTTP/3; drained by `take_http3`.
    http3: Vec<Http3Sockets>,
}

struct Http3Sockets {
    /// Address as configured.
    configured: SocketAddr,
    sockets: Vec<UdpSocket>,
    /// Datagram link to the predecessor.
    predecessor: Option<DatagramForwarder>,
}

impl BoundListeners {
    pub(crate) fn open(
        node: &NodeConfig,
        workers: usize,
        outside: &mut InheritedSockets,
    ) -> anyhow::Result<BoundListeners> {
        let (udp, streams): (Vec<_>, Vec<_>) = node::stream_listeners(node)?
            .into_iter()
            .partition(|listener| listener.protocol == ListenerProtocol::Stream(StreamProtocol::Udp));
        let mut settings = node::listeners(node)?;
        settings.extend(streams);
        let mut datagrams = Vec::new();
        for listener in &udp {
            let sockets = open_datagrams(SocketRole::Datagrams, listener, workers, outside)
                .with_context(|| format!("cannot listen on {} for datagrams", listener.address))?;
            let address = sockets.first().map_or(Ok(listener.address), UdpSocket::local_addr)?;
            datagrams.push((address, deal(sockets, workers)));
        }
        let (mut sockets, mut http3) = (Vec::new(), Vec::new());
        for listener in &mut settings {
            let configured = listener.address;
            let opened = open_streams(listener, workers, outside)
                .with_context(|| format!("cannot listen on {}", listener.address))?;
            if let Some(first) = opened.first() {
                // With port 0 the kernel has chosen; the node reports the real port.
                listener.address = first.local_addr()?;
            }
            sockets.push(for_each(deal(opened, workers))?);
            if listener.protocol.serves_http3() {
                // TCP and UDP share the address; with port 0, the TCP bind has chosen the port.
                let configured = ListenerSettings { address: configured, ..listener.clone() };
                let opened = open_http3(&configured, listener, workers, outside)
                    .with_context(|| format!("cannot listen on {} for HTTP/3", listener.address))?;
                // By the configured address, under which the predecessor has labelled it.
                let predecessor = outside.take_predecessor_link(configured.address);
                http3.push(Http3Sockets { configured: configured.address, sockets: opened, predecessor });
            }
        }
        Ok(BoundListeners { settings, sockets, datagrams, http3 })
    }

    /// Bound addresses of all listeners.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        let at = |transport, address| ListenAddress { transport, address };
        let tcp = self.settings.iter().map(|listener| at(ListenTransport::Tcp, listener.address));
        let http3 = self.settings.iter().filter(|listener| listener.protocol.serves_http3());
        let http3 = http3.map(|listener| at(ListenTransport::Udp, listener.address));
        let udp = self.datagrams.iter().map(|(address, _)| at(ListenTransport::Udp, *address));
        tcp.chain(http3).chain(udp).collect()
    }

    /// Bound addresses of the HTTP listeners without TLS.
    pub(crate) fn http_addresses(&self) -> Vec<SocketAddr> {
        let plain = self.settings.iter().filter(|listener| listener.protocol == ListenerProtocol::Http);
        plain.map(|listener| listener.address).collect()
    }

    /// Closes the handles kept here; workers own duplicates.
    pub(crate) fn release(&mut self) {
        // Kept handles would keep the port open after the workers have ended.
        self.sockets.clear();
        self.datagrams.iter_mut().for_each(|(_, sockets)| sockets.clear());
    }

    /// Node settings with the ports that were actually bound.
    pub(crate) fn actual(&self, node: &NodeConfig) -> NodeConfig {
        let mut node = node.clone();
        for (listen, settings) in node.listen.iter_mut().zip(&self.settings) {
            listen.address = settings.address.to_string();
        }
        node
    }

    /// HTTP/3 listeners by worker. Adds each to those that a handover makes leave their sockets.
    pub(crate) fn take_http3(
        &mut self,
        services: &ListenerServices,
    ) -> anyhow::Result<Vec<Vec<Http3Listener>>> {
        let ListenerServices { workers, acceptor, settings, http3_identity, http3_handovers, .. } = services;
        let mut by_worker: Vec<Vec<Http3Listener>> = (0..*workers).map(|_| Vec::new()).collect();
        for Http3Sockets { configured, sockets, predecessor } in self.http3.drain(..) {
            let (listeners, leave) =
                yumen_proxy::listen_http3(sockets, acceptor, settings, http3_identity, predecessor)
                    .map_err(|error| anyhow::anyhow!("HTTP/3 cannot be set up: {error}"))?;
            http3_handovers.add(configured, leave);
            by_worker.iter_mut().zip(deal(listeners, *workers)).for_each(|(own, dealt)| own.extend(dealt));
        }
        Ok(by_worker)
    }

    pub(crate) fn of_worker(
        &self,
        worker: usize,
        node: &NodeConfig,
        acceptor: &DownstreamTlsAcceptor,
    ) -> anyhow::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        for (settings, sockets) in self.settings.iter().zip(&self.sockets) {
            let tls = match settings.protocol {
                ListenerProtocol::Stream(StreamProtocol::Tls) => Some(acceptor.for_streams()),
                ListenerProtocol::Https { http3: true } => {
                    let line = node::alt_svc_line(&node.http3, settings.address.port());
                    Some(line.map_or_else(|| acceptor.clone(), |line| acceptor.with_alt_svc(line)))
                }
                ListenerProtocol::Https { http3: false } => Some(acceptor.clone()),
                ListenerProtocol::Http | ListenerProtocol::Stream(_) => None,
            };
            for socket in &sockets[worker] {
                listeners.push(Listener {
                    socket: socket.try_clone()?,
                    tls: tls.clone(),
                    proxy_from: settings.proxy_from.clone(),
                    streams: settings.protocol.stream(),
                });
            }
        }
        Ok(listeners)
    }

    pub(crate) fn datagrams_of_worker(&self, worker: usize) -> anyhow::Result<Vec<Datagrams>> {
        let sockets = self.datagrams.iter().flat_map(|(_, sockets)| &sockets[worker]);
        Ok(sockets
            .map(|socket| Ok(Datagrams { socket: socket.try_clone()? }))
            .collect::<std::io::Result<_>>()?)
    }
}

pub(super) fn open_streams(
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<TcpListener>> {
    let role = if listener.protocol.stream().is_some() { SocketRole::Stream } else { SocketRole::Http };
    let mut taken = Vec::new();
    for socket in outside.take(role, listener.address) {
        // Inherited sockets may have options of the predecessor's settings.
        yumen_proxy::listener::settle(&socket, listener)?;
        taken.push(TcpListener::from(socket));
    }
    let sockets = match taken.first() {
        None => yumen_proxy::listener::bind(listener, workers)?,
        Some(first) => {
            let bound = ListenerSettings { address: first.local_addr()?, ..listener.clone() };
            let more = missing(&taken, workers, &bound);
            // The successor may have more workers than the predecessor.
            taken.extend(yumen_proxy::listener::bind_more(&bound, more)?);
            taken
        }
    };
    // Under the configured address, which the next successor knows too.
    outside.keep(role, listener.address, &sockets)?;
    Ok(sockets)
}

/// Number of sockets to bind beside the inherited ones. With SO_REUSEPORT every worker gets its own.
fn missing(taken: &[TcpListener], workers: usize, listener: &ListenerSettings) -> usize {
    let shares = |socket: &TcpListener| socket2::SockRef::from(socket).reuse_port().unwrap_or(false);
    // A socket without SO_REUSEPORT excludes further binds to its address.
    let can_share = listener.socket.reuse_port && taken.iter().all(shares);
    if can_share { workers.saturating_sub(taken.len()) } else { 0 }
}

pub(super) fn open_datagrams(
    role: SocketRole,
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let configured = listener.address;
    let sockets = take_datagrams(role, configured, listener, workers, outside)?;
    outside.keep(role, configured, &sockets)?;
    Ok(sockets)
}

/// Inherited sockets for `configured`, or new ones for the address of `listener`. A UDP socket has one reader: if
/// inherited sockets lack SO_REUSEPORT, some workers get none.
fn take_datagrams(
    role: SocketRole,
    configured: SocketAddr,
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let mut taken = Vec::new();
    let mut can_share = true;
    for socket in outside.take(role, configured) {
        socket.set_nonblocking(true)?;
        can_share &= socket.reuse_port().unwrap_or(false);
        taken.push(UdpSocket::from(socket));
    }
    let Some(first) = taken.first() else {
        let bound = yumen_proxy::bind_datagrams(listener, workers);
        return bound
            .with_context(|| address_in_use_message(&process::with_datagrams_at(listener.address.port())));
    };
    let address = first.local_addr()?;
    if can_share {
        taken.extend(yumen_proxy::bind_more_datagrams(address, workers.saturating_sub(taken.len()))?);
    }
    Ok(taken)
}

/// Message for a UDP address that cannot be bound.
fn address_in_use_message(holders: &[u32]) -> String {
    let holders: Vec<String> = holders.iter().map(u32::to_string).collect();
    match holders.is_empty() {
        true => "it cannot be bound".to_owned(),
        false => format!(
            "process {} has it: a gateway that was upgraded keeps the port of its streams until they have ended",
            holders.join(", ")
        ),
    }
}

pub(super) fn open_http3(
    configured: &ListenerSettings,
    bound: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let sockets = take_datagrams(SocketRole::Http3, configured.address, bound, workers, outside)?;
    outside.keep(SocketRole::Http3, configured.address, &sockets)?;
    Ok(sockets)
}

/// Distributes sockets round robin over the workers.
pub(super) fn deal<T>(all: Vec<T>, workers: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..workers).map(|_| Vec::new()).collect();
    for (at, one) in all.into_iter().enumerate() {
        // All inherited sockets are read: a queue without a reader would lose its connections (decision 32).
        dealt[at % workers].push(one);
    }
    dealt
}

/// Workers without a socket share the first worker's.
pub(super) fn for_each(mut dealt: Vec<Vec<TcpListener>>) -> std::io::Result<Vec<Vec<TcpListener>>> {
    for worker in 1..dealt.len() {
        if dealt[worker].is_empty() {
            // Several workers may accept from one TCP queue.
            let shared = dealt[0][0].try_clone()?;
            dealt[worker].push(shared);
        }
    }
    Ok(dealt)
}
