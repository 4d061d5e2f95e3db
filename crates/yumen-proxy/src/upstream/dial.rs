//! New connections to endpoints.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use crate::fault::{self, FaultKind};
use crate::tls::UpstreamHandshake;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;

/// A connection that is about to be opened.
pub(crate) struct EndpointDial {
    pub(crate) address: SocketAddr,
    /// Bytes to send first, before any TLS: a PROXY header.
    pub(crate) opening: Vec<u8>,
    /// The TLS handshake; `None` for cleartext.
    pub(crate) handshake: Option<UpstreamHandshake>,
    /// The connect timeout in milliseconds; 0 for no limit. The caller enforces it.
    pub(crate) timeout_ms: u64,
}

impl EndpointDial {
    /// Connects and performs the handshake.
    pub(crate) async fn connect(self) -> Result<TransportStream, FaultKind> {
        let tcp = open(self.address, &self.opening).await.map_err(|error| {
            tracing::debug!(%error, endpoint = %self.address, "connect failed");
            fault::of_connect(&error)
        })?;
        match self.handshake {
            Some(handshake) => handshake.shake(tcp).await,
            None => Ok(TransportStream::Tcp(tcp)),
        }
    }
}

async fn open(address: SocketAddr, opening: &[u8]) -> io::Result<TcpConnection> {
    let mut tcp = TcpConnection::connect(address).await?;
    let mut sent = 0;
    while sent < opening.len() {
        sent += poll_fn(|cx| tcp.write(cx, &[IoSlice::new(&opening[sent..])])).await?;
    }
    Ok(tcp)
}
