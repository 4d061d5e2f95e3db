//! A connection to an endpoint, and whatever is known of it before there is one.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use crate::fault::{self, Kind};
use crate::stream::Stream;
use crate::tcp::Tcp;
use crate::tls::Handshake;

/// What it takes to connect.
pub(crate) struct Dial {
    pub(crate) address: SocketAddr,
    /// What is said before anything else, TLS included.
    pub(crate) opening: Vec<u8>,
    /// With TLS.
    pub(crate) handshake: Option<Handshake>,
    /// How long it may take, in milliseconds; 0 for ever. Whoever dials sees to it.
    pub(crate) timeout_ms: u64,
}

impl Dial {
    /// Connects, and shakes hands.
    pub(crate) async fn connect(self) -> Result<Stream, Kind> {
        let tcp = open(self.address, &self.opening).await.map_err(|error| {
            tracing::debug!(%error, endpoint = %self.address, "connect failed");
            fault::of_connect(&error)
        })?;
        match self.handshake {
            Some(handshake) => handshake.shake(tcp).await,
            None => Ok(Stream::Tcp(tcp)),
        }
    }
}

async fn open(address: SocketAddr, opening: &[u8]) -> io::Result<Tcp> {
    let mut tcp = Tcp::connect(address).await?;
    let mut sent = 0;
    while sent < opening.len() {
        sent += poll_fn(|cx| tcp.write(cx, &[IoSlice::new(&opening[sent..])])).await?;
    }
    Ok(tcp)
}
