//! The transport of a sink, chosen by its address.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use yumen_plugin::{SinkAddress, SinkReply, SinkRequest, SinkTls};

use crate::file_sink::FileSink;
use crate::http_sink::HttpSink;
use crate::stream_sink::{TcpSink, UdpSink};
use crate::tls::TlsClients;

/// The reason why a request was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// The request may be repeated.
    Failed(String),
    /// The request can never be sent.
    Refused(String),
}

/// A plain or TLS connection.
pub(crate) trait SinkStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SinkStream for T {}

/// The transport of one sink.
pub(crate) enum SinkTransport {
    Http(HttpSink),
    Tcp(TcpSink),
    Udp(UdpSink),
    File(FileSink),
}

impl SinkTransport {
    /// The transport for an address; connects when it is used.
    pub(crate) fn new(address: &SinkAddress, connector: SinkConnector) -> SinkTransport {
        match address.clone() {
            SinkAddress::Http { endpoints, tls, timeout_ms, idle_ms } => {
                SinkTransport::Http(HttpSink::new(&endpoints, tls, timeout_ms, idle_ms, connector))
            }
            SinkAddress::Tcp { host, port, tls, timeout_ms, idle_ms } => {
                SinkTransport::Tcp(TcpSink::new(host, port, tls, timeout_ms, idle_ms, connector))
            }
            SinkAddress::Udp { host, port } => SinkTransport::Udp(UdpSink::new(host, port)),
            SinkAddress::File { path } => SinkTransport::File(FileSink::new(path)),
        }
    }

    /// Sends one request. Transports without responses return status 200.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<SinkReply, SendFault> {
        let ok = SinkReply { status: 200, ..SinkReply::default() };
        match self {
            SinkTransport::Http(http) => http.send(request).await,
            SinkTransport::Tcp(tcp) => tcp.send(request).await.map(|()| ok),
            SinkTransport::Udp(udp) => udp.send(request).await.map(|()| ok),
            SinkTransport::File(file) => file.send(request).await.map(|()| ok),
        }
    }
}

/// Opens connections of all sinks, a bounded number at a time.
#[derive(Clone)]
pub(crate) struct SinkConnector {
    pub(crate) tls: Arc<TlsClients>,
    pub(crate) connects: Arc<Semaphore>,
}

impl SinkConnector {
    /// Connects to a server within the time limit.
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        tls: Option<&SinkTls>,
        timeout: Duration,
    ) -> Result<Box<dyn SinkStream>, SendFault> {
        let address = format!("{host}:{port}");
        let failed = |why: String| SendFault::Failed(format!("failed to connect to {address}: {why}"));
        let connecting = async {
            // Never closed.
            let _permit = self.connects.acquire().await;
            let tcp = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
            // Batches are written whole.
            let _ = tcp.set_nodelay(true);
            let Some(settings) = tls else { return Ok(Box::new(tcp) as Box<dyn SinkStream>) };
            let connector = TlsConnector::from(self.tls.get(settings)?);
            let name = settings.server_name.clone().unwrap_or_else(|| host.to_owned());
            let name = rustls::pki_types::ServerName::try_from(name).map_err(|error| error.to_string())?;
            let stream = connector.connect(name, tcp).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(Box::new(stream) as Box<dyn SinkStream>)
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(failed("timeout".to_owned())),
        }
    }
}
