//! Connections to the servers of sinks and directories, and the failures of sending.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use yumen_plugin::SinkTls;

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
pub(crate) trait OutboundStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> OutboundStream for T {}

/// Connections that one connector and its clones open at the same time.
const CONNECTS_MAX: usize = 64;

/// Opens connections, a bounded number at a time. Clones share the bound and the TLS configurations.
#[derive(Clone)]
pub(crate) struct OutboundConnector {
    tls: Arc<TlsClients>,
    connects: Arc<Semaphore>,
}

impl Default for OutboundConnector {
    fn default() -> OutboundConnector {
        OutboundConnector { tls: Arc::default(), connects: Arc::new(Semaphore::new(CONNECTS_MAX)) }
    }
}

impl OutboundConnector {
    /// A connector with a bound of its own and the same TLS configurations.
    pub(crate) fn with_own_bound(&self) -> OutboundConnector {
        OutboundConnector { tls: self.tls.clone(), ..OutboundConnector::default() }
    }

    /// Connects to a server within the time limit.
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        tls: Option<&SinkTls>,
        timeout: Duration,
    ) -> Result<Box<dyn OutboundStream>, SendFault> {
        self.connect_for(None, host, port, tls, timeout).await
    }

    /// [`OutboundConnector::connect`], with a protocol that TLS negotiates (RFC 7301).
    pub(crate) async fn connect_for(
        &self,
        protocol: Option<&[u8]>,
        host: &str,
        port: u16,
        tls: Option<&SinkTls>,
        timeout: Duration,
    ) -> Result<Box<dyn OutboundStream>, SendFault> {
        let address = format!("{host}:{port}");
        let failed = |why: String| SendFault::Failed(format!("failed to connect to {address}: {why}"));
        let connecting = async {
            // Never closed.
            let _permit = self.connects.acquire().await;
            let tcp = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
            // Batches are written whole.
            let _ = tcp.set_nodelay(true);
            match tls {
                None => Ok::<_, String>(Box::new(tcp) as Box<dyn OutboundStream>),
                Some(settings) => self.secure(host, Box::new(tcp), settings, protocol).await,
            }
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(failed("timeout".to_owned())),
        }
    }

    /// Starts TLS on an open connection.
    pub(crate) async fn secure(
        &self,
        host: &str,
        stream: Box<dyn OutboundStream>,
        settings: &SinkTls,
        protocol: Option<&[u8]>,
    ) -> Result<Box<dyn OutboundStream>, String> {
        let mut config = self.tls.get(settings)?;
        if let Some(protocol) = protocol {
            // A copy, since connections without the protocol share the configuration. The session cache stays shared.
            Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_vec()];
        }
        let connector = TlsConnector::from(config);
        let name = settings.server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = rustls::pki_types::ServerName::try_from(name).map_err(|error| error.to_string())?;
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        Ok(Box::new(stream))
    }
}
