//! The sockets clients reach, bound or taken over, one or more per worker and listener.
//!
//! Knows where sockets come from and which worker gets which; serves none of them.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::Context;
use yumen_config::NodeConfig;
use yumen_proxy::tls::DownstreamTlsAcceptor;
use yumen_proxy::{
    DatagramForwarder, Datagrams, Http3HandoverSender, Http3Identity, Http3Listener, Listener,
    ListenerSettings, StreamProtocol, WorkerSettings,
};

use crate::sockets::{InheritedSockets, SocketRole};
use crate::{node, process};

/// Bound sockets of all workers.
pub(crate) struct BoundListeners {
    pub(crate) settings: Vec<ListenerSettings>,
    /// By listener, then by worker.
    sockets: Vec<Vec<Vec<TcpListener>>>,
    /// Addresses and sockets for datagrams, the sockets by worker.
    pub(crate) datagrams: Vec<(SocketAddr, Vec<Vec<UdpSocket>>)>,
    /// Sockets for HTTP/3, by listener that has it; taken once.
    http3: Vec<Http3Sockets>,
}

struct Http3Sockets {
    /// As the configuration has it.
    asked: SocketAddr,
    sockets: Vec<UdpSocket>,
    /// Leads to the processes before.
    before: Vec<DatagramForwarder>,
}

/// What a listener's HTTP/3 needs for another process to take over.
pub(crate) struct Http3HandoverParts {
    /// As the configuration has it.
    pub(crate) asked: SocketAddr,
    /// Makes it leave its sockets.
    pub(crate) leave: Http3HandoverSender,
    /// Leads to the processes before, which may outlive this one.
    pub(crate) before: Vec<DatagramForwarder>,
}

impl BoundListeners {
    pub(crate) fn open(
        node: &NodeConfig,
        workers: usize,
        outside: &mut InheritedSockets,
    ) -> anyhow::Result<BoundListeners> {
        let (udp, streams): (Vec<_>, Vec<_>) = node::stream_listeners(node)?
            .into_iter()
            .partition(|listener| listener.streams == Some(StreamProtocol::Udp));
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
            let asked = listener.address;
            let opened = open_streams(listener, workers, outside)
                .with_context(|| format!("cannot listen on {}", listener.address))?;
            if let Some(first) = opened.first() {
                listener.address = first.local_addr()?;
            }
            sockets.push(for_each(deal(opened, workers))?);
            if listener.http3 {
                // Both have one address; only the port of the first may have been chosen.
                let asked = ListenerSettings { address: asked, ..listener.clone() };
                let opened = open_http3(&asked, listener, workers, outside)
                    .with_context(|| format!("cannot listen on {} for HTTP/3", listener.address))?;
                let before = outside.take_forwarders(asked.address);
                http3.push(Http3Sockets { asked: asked.address, sockets: opened, before });
            }
        }
        Ok(BoundListeners { settings, sockets, datagrams, http3 })
    }

    /// Closes the handles kept here: workers have theirs.
    pub(crate) fn release(&mut self) {
        self.sockets.clear();
        self.datagrams.iter_mut().for_each(|(_, sockets)| sockets.clear());
    }

    /// The configuration with the ports that were really bound.
    pub(crate) fn actual(&self, node: &NodeConfig) -> NodeConfig {
        let mut node = node.clone();
        for (listen, settings) in node.listen.iter_mut().zip(&self.settings) {
            listen.address = settings.address.to_string();
        }
        node
    }

    /// What serves HTTP/3, by worker.
    pub(crate) fn take_http3(
        &mut self,
        workers: usize,
        acceptor: &DownstreamTlsAcceptor,
        settings: &WorkerSettings,
        identity: &Http3Identity,
    ) -> anyhow::Result<(Vec<Vec<Http3Listener>>, Vec<Http3HandoverParts>)> {
        let mut by_worker: Vec<Vec<Http3Listener>> = (0..workers).map(|_| Vec::new()).collect();
        let mut legacies = Vec::new();
        for Http3Sockets { asked, sockets, before } in self.http3.drain(..) {
            let clone = |pipe: &DatagramForwarder| {
                Ok(DatagramForwarder { generation: pipe.generation, end: pipe.end.try_clone()? })
            };
            let kept: std::io::Result<_> = before.iter().map(clone).collect();
            let (listeners, leave) = yumen_proxy::listen_http3(sockets, acceptor, settings, identity, before)
                .map_err(|error| anyhow::anyhow!("HTTP/3 cannot be set up: {error}"))?;
            legacies.push(Http3HandoverParts { asked, leave, before: kept? });
            by_worker.iter_mut().zip(deal(listeners, workers)).for_each(|(own, dealt)| own.extend(dealt));
        }
        Ok((by_worker, legacies))
    }

    pub(crate) fn of_worker(
        &self,
        worker: usize,
        node: &NodeConfig,
        acceptor: &DownstreamTlsAcceptor,
    ) -> anyhow::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        for (settings, sockets) in self.settings.iter().zip(&self.sockets) {
            let tls = settings.tls.then(|| match settings.streams {
                Some(_) => acceptor.for_streams(),
                None if settings.http3 => {
                    let line = node::alt_svc_line(&node.http3, settings.address.port());
                    line.map_or_else(|| acceptor.clone(), |line| acceptor.telling(line))
                }
                None => acceptor.clone(),
            });
            for socket in &sockets[worker] {
                listeners.push(Listener {
                    socket: socket.try_clone()?,
                    tls: tls.clone(),
                    proxy_from: settings.proxy_from.clone(),
                    streams: settings.streams,
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

fn open_streams(
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<TcpListener>> {
    let door = if listener.streams.is_some() { SocketRole::Stream } else { SocketRole::Http };
    let mut taken = Vec::new();
    for socket in outside.take(door, listener.address) {
        yumen_proxy::listener::settle(&socket, listener)?;
        taken.push(TcpListener::from(socket));
    }
    let sockets = match taken.first() {
        None => yumen_proxy::listener::bind(listener, workers)?,
        Some(first) => {
            let bound = ListenerSettings { address: first.local_addr()?, ..listener.clone() };
            let more = missing(&taken, workers, &bound);
            taken.extend(yumen_proxy::listener::bind_more(&bound, more)?);
            taken
        }
    };
    outside.keep(door, listener.address, &sockets)?;
    Ok(sockets)
}

/// How many sockets there should be beside those taken over: each worker has its own where they can share a port.
fn missing(taken: &[TcpListener], workers: usize, listener: &ListenerSettings) -> usize {
    let shares = |socket: &TcpListener| socket2::SockRef::from(socket).reuse_port().unwrap_or(false);
    let can_share = listener.reuse_port && taken.iter().all(shares);
    if can_share { workers.saturating_sub(taken.len()) } else { 0 }
}

fn open_datagrams(
    door: SocketRole,
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let asked = listener.address;
    let sockets = take_datagrams(door, asked, listener, workers, outside)?;
    outside.keep(door, asked, &sockets)?;
    Ok(sockets)
}

/// The sockets from outside for `asked`, or new ones for the address of `listener`. A socket has one reader, so
/// where those from outside cannot share their port, some workers have none.
fn take_datagrams(
    door: SocketRole,
    asked: SocketAddr,
    listener: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let mut taken = Vec::new();
    let mut can_share = true;
    for socket in outside.take(door, asked) {
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

/// Why an address for datagrams may not be had.
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

fn open_http3(
    asked: &ListenerSettings,
    bound: &ListenerSettings,
    workers: usize,
    outside: &mut InheritedSockets,
) -> anyhow::Result<Vec<UdpSocket>> {
    let sockets = take_datagrams(SocketRole::Http3, asked.address, bound, workers, outside)?;
    outside.keep(SocketRole::Http3, asked.address, &sockets)?;
    Ok(sockets)
}

/// Deals out to so many workers, so that each one is somebody's.
fn deal<T>(all: Vec<T>, workers: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..workers).map(|_| Vec::new()).collect();
    for (at, one) in all.into_iter().enumerate() {
        dealt[at % workers].push(one);
    }
    dealt
}

/// Workers that were dealt nothing accept from the first one's socket.
fn for_each(mut dealt: Vec<Vec<TcpListener>>) -> std::io::Result<Vec<Vec<TcpListener>>> {
    for worker in 1..dealt.len() {
        if dealt[worker].is_empty() {
            let shared = dealt[0][0].try_clone()?;
            dealt[worker].push(shared);
        }
    }
    Ok(dealt)
}
