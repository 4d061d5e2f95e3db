//! The first bytes of a connection, ahead of its stream: PROXY header, TLS handshake, or SNI of a
//! passthrough.

use std::io;
use std::net::SocketAddr;

use rustix::net::RecvFlags;
use tokio::io::Interest;
use yumen_http::client_hello::{self, ClientHelloPeek, HELLO_BYTES_MAX};
use yumen_http::proxy_protocol::{self, HEADER_BYTES_MAX, ProxyAddresses, ProxyHeader};
use yumen_plugin::{ClientInfo, TlsInfo};
use yumen_snapshot::ScopeTlsMode;

use super::{L4Downstream, StreamFault, phases};
use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::runtime::cold_future::box_cold;
use crate::runtime::timers::{Timer, until};
use crate::settings::StreamProtocol;
use crate::tls::{self, AcceptedTls, DownstreamTlsAcceptor, HandshakeRefusal};
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::worker::Worker;

/// Reads exactly the PROXY header of a connection and sets the client address from it. Returns whether the
/// connection is accepted.
pub(crate) async fn take_proxy_header(
    worker: &Worker,
    tcp: &mut TcpConnection,
    client: &mut ClientInfo,
) -> bool {
    let timer: Timer = worker.timers.timer();
    timer.set(worker.settings.timeouts.handshake_ms);
    let taken = until(&timer, std::pin::pin!(read_proxy_header(tcp))).await;
    match taken {
        Some(Ok(ends)) => {
            // A header without addresses, as for health checks of the load balancer, leaves those of the
            // connection in place.
            if let Some(ends) = ends {
                client.peer = ends.source;
            }
            true
        }
        // Listed peers must send the header: without it, the load balancer would be taken for the client
        // (decision 22).
        failed => {
            let error = failed.and_then(Result::err).map_or("too late".to_owned(), |error| error.to_string());
            tracing::debug!(error, peer = %client.peer, "PROXY header missing or invalid");
            worker.counters.streams.no_proxy_header();
            false
        }
    }
}

/// Peeks until the header is complete, then reads only the header: TLS needs the bytes behind it.
async fn read_proxy_header(tcp: &mut TcpConnection) -> io::Result<Option<ProxyAddresses>> {
    let mut room = [0; HEADER_BYTES_MAX];
    let parse = |bytes: &[u8]| match proxy_protocol::parse(bytes).map_err(io::Error::other)? {
        ProxyHeader::Complete { used, ends } => Ok(Some((used, ends))),
        ProxyHeader::Partial => Ok(None),
    };
    let (used, ends) = peek(tcp, &mut room, parse).await?;
    rustix::net::recv(tcp.register()?, &mut room[..used], RecvFlags::empty())?;
    Ok(ends)
}

/// Peeks at the first bytes of a connection until they are complete for `parse`. They stay in the socket.
async fn peek<T>(
    tcp: &mut TcpConnection,
    room: &mut [u8],
    parse: impl Fn(&[u8]) -> io::Result<Option<T>>,
) -> io::Result<T> {
    loop {
        tcp.register()?.readable().await?;
        // Checked before the peek, so that bytes that arrive in between are seen.
        let has_left = tcp.has_left();
        let stream = tcp.register()?;
        let looked = stream.try_io(Interest::READABLE, || {
            let (count, _) = rustix::net::recv(&*stream, &mut room[..], RecvFlags::PEEK)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // Clears the readiness, so that the reactor reports further bytes.
            parse(&room[..count])?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        });
        match looked {
            // After FIN the socket stays readable, so incomplete bytes would be peeked forever.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_left => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            looked => return looked,
        }
    }
}

/// Whether the listener passes TLS of some names through, so that the server name is needed before the handshake.
pub(crate) fn needs_server_name(worker: &Worker, client: &ClientInfo) -> bool {
    // Listeners of the node's settings cost one comparison.
    !client.listener.is_static()
        && worker.pinned().listener(client.listener).is_some_and(|listener| listener.needs_sni)
}

/// Whether the scope of the server name passes TLS through. The ClientHello stays in the socket, so that either the
/// handshake or the endpoint reads it.
///
/// Without a readable ClientHello the answer is no: the handshake then fails by its own rules.
pub(crate) async fn passes_through(worker: &Worker, tcp: &mut TcpConnection, client: &ClientInfo) -> bool {
    if !needs_server_name(worker, client) {
        return false;
    }
    box_cold(async {
        let timer: Timer = worker.timers.timer();
        timer.set(worker.settings.timeouts.handshake_ms);
        let Some(Ok(name)) = until(&timer, std::pin::pin!(peek_server_name(tcp))).await else { return false };
        // The newest snapshot: the listener may have changed while the ClientHello was on its way.
        let pinned = worker.pinned();
        let sni = tls::requested_name(name.as_deref());
        pinned.scope_of_name(client.listener, sni).is_some_and(|one| one.mode() == ScopeTlsMode::Passthrough)
    })
    .await
}

/// Peeks until the ClientHello is complete; returns its server name.
async fn peek_server_name(tcp: &mut TcpConnection) -> io::Result<Option<Box<str>>> {
    let mut room = vec![0; HELLO_BYTES_MAX];
    let parse = |bytes: &[u8]| match client_hello::parse(bytes).map_err(io::Error::other)? {
        ClientHelloPeek::Complete(name) => Ok(Some(name)),
        ClientHelloPeek::Partial => Ok(None),
    };
    peek(tcp, &mut room, parse).await
}

/// Prepares a stream for routing: SNI of the passthrough or TLS handshake, by the protocol of the listener.
pub(super) async fn open(
    worker: &Worker,
    downstream: &mut L4Downstream,
    client: &mut ClientInfo,
    protocol: StreamProtocol,
    tls: Option<&DownstreamTlsAcceptor>,
) -> Result<(), StreamFault> {
    downstream.timer.set(worker.settings.timeouts.handshake_ms);
    match (protocol, tls) {
        (StreamProtocol::TlsPassthrough, _) => {
            let sni = server_name(worker, downstream).await?;
            client.tls = Some(TlsInfo { sni, ..TlsInfo::default() });
        }
        (_, Some(acceptor)) => {
            client.tls = Some(handshake(worker, downstream, acceptor, client).await?);
        }
        (StreamProtocol::Tcp | StreamProtocol::Tls | StreamProtocol::Udp, None) => {}
    }
    Ok(())
}

/// Reads the ClientHello and leaves it in the inbox for the endpoint.
async fn server_name(
    worker: &Worker,
    downstream: &mut L4Downstream,
) -> Result<Option<Box<str>>, StreamFault> {
    loop {
        match client_hello::parse(downstream.inbox.bytes()) {
            Ok(ClientHelloPeek::Complete(name)) => {
                return Ok(name.map(|name| tls::requested_name(Some(&name)).into()));
            }
            Ok(ClientHelloPeek::Partial) => phases::fill(worker, downstream).await?,
            Err(_) => return Err(StreamFault::NotTls),
        }
    }
}

/// Performs the TLS handshake.
async fn handshake(
    worker: &Worker,
    downstream: &mut L4Downstream,
    acceptor: &DownstreamTlsAcceptor,
    client: &ClientInfo,
) -> Result<TlsInfo, StreamFault> {
    let TransportStream::Tcp(tcp) = &mut downstream.stream else { return Err(StreamFault::ClientTls) };
    // The acceptor takes the socket by value; the placeholder stays after a failed handshake.
    let tcp = std::mem::replace(tcp, TcpConnection::moving());
    match until(&downstream.timer, Box::pin(acceptor.accept(tcp)).as_mut()).await {
        Some(Ok(AcceptedTls { stream, info, .. })) => {
            worker.counters.connections.handshakes.add(1);
            downstream.stream = TransportStream::Accepted(Box::new(stream));
            if let Some(reason) = tls::stream_refusal(&worker.pinned(), client.listener, &info) {
                tracing::debug!(reason, "stream refused");
                return Err(StreamFault::ClientTls);
            }
            Ok(info)
        }
        Some(Err(refused)) => {
            worker.counters.connections.handshake_failures.add(1);
            match refused {
                HandshakeRefusal::NotTls(_) => Err(StreamFault::NotTls),
                HandshakeRefusal::UnknownName(sni) => {
                    // Names that no scope has are as common as scans of the port.
                    if client.listener.is_static() {
                        warn_of_unknown_name(client.local, &sni);
                    }
                    Err(StreamFault::UnknownName)
                }
                HandshakeRefusal::Failed(error) => {
                    tracing::debug!(%error, "tls handshake failed");
                    Err(StreamFault::ClientTls)
                }
            }
        }
        None => {
            worker.counters.connections.handshake_failures.add(1);
            Err(StreamFault::ClientTimeout)
        }
    }
}

/// Logs, with suppression, that clients send an unknown server name or none.
#[cold]
fn warn_of_unknown_name(local: SocketAddr, sni: &str) {
    if let Some(untold) = should_log(local, SuppressionKey::UnknownName) {
        let reason = "no ssl object is for the server name, and others ask clients for certificates";
        tracing::warn!(listener = %local, sni, reason, untold, "stream refused");
    }
}

#[cfg(test)]
mod tests;
