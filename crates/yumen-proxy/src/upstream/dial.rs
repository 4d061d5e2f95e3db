//! New connections to endpoints.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use yumen_http::fields::write_line;
use yumen_http::{HeadLimits, Method, ParsedHead, ResponseHead, parse};
use yumen_snapshot::UpstreamTunnel;
use yumen_snapshot::upstream::EndpointState;

use crate::fault::{self, FaultKind};
use crate::runtime::clock;
use crate::tls::UpstreamHandshake;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::upstream::wait::{AttemptWait, wait_for};

/// Interval at which a slow connect checks whether its endpoint has left the configuration, in milliseconds.
pub(super) const DEPARTURE_CHECK_MS: u64 = 100;

/// Longest response head of a proxy.
const TUNNEL_HEAD_BYTES_MAX: usize = 8 * 1024;

/// A connection that is about to be opened.
pub(crate) struct EndpointDial {
    pub(crate) address: SocketAddr,
    /// Bytes to send first, before any TLS: a PROXY header.
    pub(crate) opening: Vec<u8>,
    /// The server that a proxy is asked to connect to, before any TLS.
    pub(crate) tunnel: Option<Arc<UpstreamTunnel>>,
    /// The TLS handshake; `None` for cleartext.
    pub(crate) handshake: Option<UpstreamHandshake>,
    /// The connect timeout in milliseconds; 0 for no limit. `connect` leaves it to the caller.
    pub(crate) timeout_ms: u64,
    pub(crate) endpoint: Arc<EndpointState>,
}

impl EndpointDial {
    /// Connects within the timeout, and gives up on an endpoint that leaves the configuration meanwhile. The
    /// address of an ended endpoint may swallow packets; the retry must not wait for the timeout then.
    pub(crate) async fn connect_within(
        self,
        wait: &mut impl AttemptWait,
    ) -> Result<TransportStream, FaultKind> {
        let (endpoint, timeout_ms) = (self.endpoint.clone(), self.timeout_ms);
        let mut now_ms = clock::now().mono_ms();
        let end_ms = if timeout_ms == 0 { u64::MAX } else { now_ms.saturating_add(timeout_ms) };
        let mut connecting = pin!(self.connect());
        wait.start(DEPARTURE_CHECK_MS.min(end_ms - now_ms));
        loop {
            let check_ms = end_ms.min(now_ms + DEPARTURE_CHECK_MS);
            match wait_for(wait, FaultKind::ConnectTimeout, connecting.as_mut()).await {
                Err(FaultKind::ConnectTimeout) => {}
                ended => return ended?,
            }
            now_ms = clock::now().mono_ms();
            // A wait that ends before the check has met the deadline of the request.
            if now_ms >= end_ms || now_ms < check_ms {
                return Err(FaultKind::ConnectTimeout);
            }
            if endpoint.has_departed() {
                return Err(FaultKind::Connect);
            }
            wait.extend(DEPARTURE_CHECK_MS.min(end_ms - now_ms));
        }
    }

    /// Connects and performs the handshake.
    pub(crate) async fn connect(self) -> Result<TransportStream, FaultKind> {
        let mut tcp = open(self.address, &self.opening).await.map_err(|error| {
            tracing::debug!(%error, endpoint = %self.address, "connect failed");
            fault::of_connect(&error)
        })?;
        if let Some(tunnel) = &self.tunnel {
            begin_tunnel(&mut tcp, tunnel).await.map_err(|error| {
                tracing::warn!(%error, proxy = %self.address, server = %tunnel.authority, "proxy refused a tunnel");
                fault::of_connect(&error)
            })?;
        }
        match self.handshake {
            Some(handshake) => handshake.shake(tcp).await,
            None => Ok(TransportStream::Tcp(tcp)),
        }
    }
}

async fn open(address: SocketAddr, opening: &[u8]) -> io::Result<TcpConnection> {
    let mut tcp = TcpConnection::connect(address).await?;
    send(&mut tcp, opening).await?;
    Ok(tcp)
}

async fn send(tcp: &mut TcpConnection, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += poll_fn(|cx| tcp.write(cx, &[IoSlice::new(&bytes[sent..])])).await?;
    }
    Ok(())
}

/// Asks a proxy for a tunnel (RFC 9110 §9.3.6).
async fn begin_tunnel(tcp: &mut TcpConnection, tunnel: &UpstreamTunnel) -> io::Result<()> {
    let mut head = Vec::new();
    head.extend_from_slice(format!("CONNECT {} HTTP/1.1\r\n", tunnel.authority).as_bytes());
    write_line(&mut head, b"Host", tunnel.authority.as_bytes());
    if let Some(authorization) = &tunnel.authorization {
        write_line(&mut head, b"Proxy-Authorization", authorization.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    send(tcp, &head).await?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() >= TUNNEL_HEAD_BYTES_MAX {
            return Err(refused("the response head is too long"));
        }
        // One byte at a time: the bytes behind the head belong to the handshake.
        response.push(tcp.read_u8().await?);
    }
    let mut parsed = ResponseHead::default();
    match parse::response(&response, 0, &HeadLimits::default(), Method::Get, &mut parsed) {
        Ok(ParsedHead::Head(_)) if (200..300).contains(&parsed.status) => Ok(()),
        Ok(ParsedHead::Head(_)) => Err(refused(&format!("status {}", parsed.status))),
        _ => Err(refused("the response head is malformed")),
    }
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, reason)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tunnel_tests;
