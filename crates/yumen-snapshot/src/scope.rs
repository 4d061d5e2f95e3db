//! Listeners that belong to the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_plugin::ListenerNumber;

/// The protocol of a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListenProtocol {
    /// HTTP in plaintext.
    Http,
    /// HTTP over TLS.
    Https,
    /// TCP streams.
    Tcp,
    /// Streams over TLS, ended or passed through by the mode of the scope.
    Tls,
    /// UDP sessions.
    Udp,
}

/// The settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// The address to bind.
    pub address: SocketAddr,
    /// The protocol of the connections.
    pub protocol: ListenProtocol,
    /// The port that clients dial; that of `address` unless a load balancer maps it.
    pub port: u16,
    /// Peers whose connections begin with a PROXY protocol header.
    pub proxy_from: IpSet,
    /// Whether HTTP/3 is served as well.
    pub http3: bool,
    /// Connections that wait in the kernel; `None` for the node's setting.
    pub backlog: Option<u32>,
}

/// A listener of the configuration.
#[derive(Debug)]
pub struct CompiledListener {
    /// The id of the object.
    pub id: Arc<str>,
    /// The number that its connections carry.
    pub number: ListenerNumber,
    /// Creation time, in seconds since 1970; of two listeners with one address the older is opened.
    pub created_s: i64,
    /// The settings. The same allocation while they are equal.
    pub settings: Arc<ListenSettings>,
}

/// By slot; slot 0 is always empty.
pub(crate) type CompiledListeners = imbl::Vector<Option<Arc<CompiledListener>>>;
