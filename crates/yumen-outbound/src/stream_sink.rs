//! Sinks that are TCP, TLS or UDP servers.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use yumen_plugin::{SinkRequest, SinkTls};

use crate::connector::{OutboundConnector, OutboundStream, SendFault};

/// Largest UDP payload over IPv4 in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// A TCP or TLS server.
pub(crate) struct TcpSink {
    host: String,
    port: u16,
    tls: Option<SinkTls>,
    timeout: Duration,
    idle: Duration,
    connector: OutboundConnector,
    kept: Option<(Box<dyn OutboundStream>, Instant)>,
}

impl TcpSink {
    pub(crate) fn new(
        host: String,
        port: u16,
        tls: Option<SinkTls>,
        timeout_ms: u64,
        idle_ms: u64,
        connector: OutboundConnector,
    ) -> TcpSink {
        let (timeout, idle) = (Duration::from_millis(timeout_ms), Duration::from_millis(idle_ms));
        TcpSink { host, port, tls, timeout, idle, connector, kept: None }
    }

    /// Writes the body, on a kept connection if the server has not closed it.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<(), SendFault> {
        let mut stream = match self.take_kept().await {
            Some(stream) => stream,
            None => self.connector.connect(&self.host, self.port, self.tls.as_ref(), self.timeout).await?,
        };
        let keeps = !self.idle.is_zero();
        let writing = async {
            for part in &request.body {
                stream.write_all(part).await?;
            }
            stream.flush().await?;
            if !keeps {
                stream.shutdown().await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let to = || format!("failed to send data to TCP server: host[{}] port[{}]", self.host, self.port);
        match tokio::time::timeout(self.timeout, writing).await {
            Ok(Ok(())) => {
                self.kept = keeps.then(|| (stream, Instant::now()));
                Ok(())
            }
            Ok(Err(error)) => Err(SendFault::Failed(format!("{} err: {error}", to()))),
            Err(_) => Err(SendFault::Failed(format!("{} err: timeout", to()))),
        }
    }

    async fn take_kept(&mut self) -> Option<Box<dyn OutboundStream>> {
        let (mut stream, since) = self.kept.take()?;
        if since.elapsed() >= self.idle {
            return None;
        }
        // A write to a connection that the server has closed succeeds, and its bytes are lost.
        let is_open = poll_fn(|cx| {
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            Poll::Ready(match Pin::new(&mut stream).poll_read(cx, &mut buffer) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => !buffer.filled().is_empty(),
                Poll::Ready(Err(_)) => false,
            })
        })
        .await;
        is_open.then_some(stream)
    }
}

/// A UDP server.
pub(crate) struct UdpSink {
    host: String,
    port: u16,
    socket: Option<UdpSocket>,
}

impl UdpSink {
    pub(crate) fn new(host: String, port: u16) -> UdpSink {
        UdpSink { host, port, socket: None }
    }

    /// Sends the body as one datagram.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<(), SendFault> {
        let datagram = request.body.concat();
        let to = format!("failed to send data to UDP server: host[{}] port[{}]", self.host, self.port);
        if datagram.len() > DATAGRAM_BYTES_MAX {
            let bytes = datagram.len();
            let why = format!("{to} err: {bytes} bytes do not fit into a datagram; lower batch_max_size");
            return Err(SendFault::Refused(why));
        }
        let failed = |error: std::io::Error| SendFault::Failed(format!("{to} err: {error}"));
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect().await.map_err(failed)?,
        };
        // An error leaves the socket closed: the name may have another address by now.
        socket.send(&datagram).await.map_err(failed)?;
        self.socket = Some(socket);
        Ok(())
    }

    async fn connect(&self) -> std::io::Result<UdpSocket> {
        let none = || std::io::Error::other("host not found");
        let address =
            tokio::net::lookup_host((self.host.as_str(), self.port)).await?.next().ok_or_else(none)?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        Ok(socket)
    }
}
