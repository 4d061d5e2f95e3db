//! New connections to endpoints.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use yumen_snapshot::upstream::EndpointState;

use crate::fault::{self, FaultKind};
use crate::runtime::clock;
use crate::tls::UpstreamHandshake;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::upstream::wait::{AttemptWait, wait_for};

/// Interval at which a slow connect checks whether its endpoint has left the configuration, in milliseconds.
pub(super) const DEPARTURE_CHECK_MS: u64 = 100;

/// A connection that is about to be opened.
pub(crate) struct EndpointDial {
    pub(crate) address: SocketAddr,
    /// Bytes to send first, before any TLS: a PROXY header.
    pub(crate) opening: Vec<u8>,
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

#[cfg(test)]
mod tests;
