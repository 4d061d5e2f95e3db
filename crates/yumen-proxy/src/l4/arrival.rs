//! What stands before the stream itself: a PROXY header, a TLS handshake, or the server name in passing.

use std::io;
use std::net::SocketAddr;

use rustix::net::RecvFlags;
use tokio::io::Interest;
use yumen_http::client_hello::{self, ClientHello};
use yumen_http::proxy_protocol::{self, Ends, HEADER_BYTES_MAX, ProxyHeader};
use yumen_plugin::{Client, TlsInfo};

use super::{Fault, Front, phases};
use crate::settings::StreamProtocol;
use crate::stream::Stream;
use crate::tcp::Tcp;
use crate::telling::{Told, may_tell};
use crate::timers::{Timer, until};
use crate::tls::{self, Accepted, Acceptor, Refused};
use crate::worker::Worker;

/// Takes the PROXY header off a connection, byte for byte, and makes the client whom it tells. Says whether
/// the connection may go on.
pub(crate) async fn take_proxy_header(worker: &Worker, tcp: &mut Tcp, client: &mut Client) -> bool {
    let timer: Timer = worker.timers.timer();
    timer.set(worker.settings.handshake_timeout_ms);
    let taken = until(&timer, std::pin::pin!(read_proxy_header(tcp))).await;
    match taken {
        Some(Ok(ends)) => {
            if let Some(ends) = ends {
                client.peer = ends.source;
            }
            true
        }
        failed => {
            let error = failed.and_then(Result::err).map_or("too late".to_owned(), |error| error.to_string());
            tracing::debug!(error, peer = %client.peer, "no PROXY header from a peer that must send one");
            worker.counters.streams.no_proxy_header();
            false
        }
    }
}

/// Looks at what has arrived without taking it until the header is whole, then takes just the header.
async fn read_proxy_header(tcp: &mut Tcp) -> io::Result<Option<Ends>> {
    let mut room = [0; HEADER_BYTES_MAX];
    loop {
        tcp.register()?.readable().await?;
        // Asked before looking: what comes in between is not missed.
        let has_left = tcp.has_left();
        let stream = tcp.register()?;
        let looked = stream.try_io(Interest::READABLE, || {
            let (count, _) = rustix::net::recv(&*stream, &mut room[..], RecvFlags::PEEK)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match proxy_protocol::parse(&room[..count]).map_err(io::Error::other)? {
                ProxyHeader::Whole { used, ends } => Ok((used, ends)),
                // The reactor tells when more has come.
                ProxyHeader::Partial => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match looked {
            // An end is there to be read for ever, and a part of a header in front of it as well.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_left => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok((used, ends)) => {
                rustix::net::recv(&*stream, &mut room[..used], RecvFlags::empty())?;
                return Ok(ends);
            }
        }
    }
}

/// What the listener's protocol asks for before a route can be found.
pub(super) async fn open(
    worker: &Worker,
    front: &mut Front,
    client: &mut Client,
    protocol: StreamProtocol,
    tls: Option<&Acceptor>,
) -> Result<(), Fault> {
    front.timer.set(worker.settings.handshake_timeout_ms);
    match (protocol, tls) {
        (StreamProtocol::TlsPassthrough, _) => {
            let sni = server_name(worker, front).await?;
            client.tls = Some(TlsInfo { sni, ..TlsInfo::default() });
        }
        (_, Some(acceptor)) => {
            client.tls = Some(handshake(worker, front, acceptor, client.local).await?);
        }
        (StreamProtocol::Tcp | StreamProtocol::Tls | StreamProtocol::Udp, None) => {}
    }
    Ok(())
}

/// Reads the client's first TLS message and leaves it for the endpoint.
async fn server_name(worker: &Worker, front: &mut Front) -> Result<Option<Box<str>>, Fault> {
    loop {
        match client_hello::parse(front.inbox.bytes()) {
            Ok(ClientHello::Whole(name)) => return Ok(name.map(|name| tls::asked_name(Some(&name)).into())),
            Ok(ClientHello::Partial) => phases::fill(worker, front).await?,
            Err(_) => return Err(Fault::NotTls),
        }
    }
}

/// `local` is the address the client came to.
async fn handshake(
    worker: &Worker,
    front: &mut Front,
    acceptor: &Acceptor,
    local: SocketAddr,
) -> Result<TlsInfo, Fault> {
    let Stream::Tcp(tcp) = &mut front.stream else { return Err(Fault::ClientTls) };
    let tcp = std::mem::replace(tcp, Tcp::moving());
    match until(&front.timer, Box::pin(acceptor.accept(tcp)).as_mut()).await {
        Some(Ok(Accepted { stream, info, .. })) => {
            worker.counters.handshakes.add(1);
            front.stream = Stream::Accepted(Box::new(stream));
            if let Some(reason) = tls::refuses_stream(&worker.pinned(), &info) {
                tracing::debug!(reason, "stream refused");
                return Err(Fault::ClientTls);
            }
            Ok(info)
        }
        Some(Err(refused)) => {
            worker.counters.handshake_failures.add(1);
            match refused {
                Refused::NotTls(_) => Err(Fault::NotTls),
                Refused::UnknownName(sni) => {
                    warn_of_unknown_name(local, &sni);
                    Err(Fault::UnknownName)
                }
                Refused::Failed(error) => {
                    tracing::debug!(%error, "tls handshake failed");
                    Err(Fault::ClientTls)
                }
            }
        }
        None => {
            worker.counters.handshake_failures.add(1);
            Err(Fault::ClientTimeout)
        }
    }
}

/// Tells the operator why clients without a name, or under one that was forgotten, do not get in.
#[cold]
fn warn_of_unknown_name(local: SocketAddr, sni: &str) {
    if let Some(untold) = may_tell(local, Told::UnknownName) {
        let reason = "no ssl object is for the server name, and others ask clients for certificates";
        tracing::warn!(listener = %local, sni, reason, untold, "stream refused");
    }
}
