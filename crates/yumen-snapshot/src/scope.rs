//! Listeners that belong to the configuration, and the scopes that divide their traffic.
//!
//! A listener and a host name select one scope, which has routes and certificates of its own. Knows no socket.

mod host_map;

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_config::resource::ClientCertMode;
use yumen_plugin::ListenerNumber;
use yumen_plugin::real_ip::RealIpFinder;

use crate::certificates::{Certificates, CompiledCertificate, find_certificate};
use crate::router::Router;
use crate::slot_table::SlotTable;
use crate::streams::StreamRouter;

pub(crate) use host_map::{ANY_HOST, HostMap, HostTrie, ScopeOfHost};

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

impl ListenProtocol {
    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            ListenProtocol::Http => "http",
            ListenProtocol::Https => "https",
            ListenProtocol::Tcp => "tcp",
            ListenProtocol::Tls => "tls",
            ListenProtocol::Udp => "udp",
        }
    }
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
    /// The client address of requests; `None` for the node's setting.
    pub real_ip: Option<RealIpFinder>,
    /// Whether HTTP/3 is served as well.
    pub http3: bool,
    /// Connections that wait in the kernel; `None` for the node's setting.
    pub backlog: Option<u32>,
}

/// A listener of the configuration.
#[derive(Debug, Clone)]
pub struct CompiledListener {
    /// The id of the object.
    pub id: Arc<str>,
    /// The number that its connections carry.
    pub number: ListenerNumber,
    /// Creation time, in seconds since 1970; of two listeners with one address the older is opened.
    pub created_s: i64,
    /// The settings. The same allocation while they are equal.
    pub settings: Arc<ListenSettings>,
    /// The scope of each host name.
    pub(crate) hosts: HostMap,
    /// Whether TLS of some names is passed through, so that the server name is needed before the handshake.
    pub needs_sni: bool,
}

/// By slot; slot 0 is always empty.
pub(crate) type CompiledListeners = SlotTable<CompiledListener>;

/// The position of a scope in the tables of one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScopeSlotId(pub(crate) u32);

/// By slot.
pub(crate) type CompiledScopes = SlotTable<CompiledScope>;

/// The end of TLS on listeners of protocol `https` and `tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScopeTlsMode {
    /// The gateway.
    #[default]
    Terminate,
    /// The endpoint of a stream route.
    Passthrough,
}

/// The treatment of server names without a match.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerNameTerms {
    /// Whether a server name without a certificate gets that of the node.
    pub(crate) default_certificate: bool,
    /// Whether connections with another server name may send requests.
    pub(crate) any_server_name: bool,
}

/// The settings of a scope beside its hosts and listeners.
#[derive(Clone, Default)]
pub(crate) struct ScopeTerms {
    pub(crate) mode: ScopeTlsMode,
    pub(crate) client_mode: Option<ClientCertMode>,
    /// Loaded by the TLS implementation.
    pub(crate) tls: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) names: ServerNameTerms,
    /// Whether only the matching part of the text is valid.
    pub(crate) is_broken: bool,
}

/// A scope, with the routes and certificates that belong to it.
pub struct CompiledScope {
    /// The id of the object.
    pub id: Arc<str>,
    /// The position in this snapshot.
    pub slot: ScopeSlotId,
    /// The routes.
    pub router: Router,
    /// The stream routes.
    pub streams: StreamRouter,
    pub(crate) terms: ScopeTerms,
    pub(crate) certificates: Certificates,
}

impl CompiledScope {
    /// The end of TLS.
    pub fn mode(&self) -> ScopeTlsMode {
        self.terms.mode
    }

    /// The effect of a client certificate that is absent or not valid; `None` if the handshake requests none.
    pub fn client_mode(&self) -> Option<ClientCertMode> {
        self.terms.client_mode
    }

    /// The handshake rules, loaded by the TLS implementation; `None` if no handshake may succeed.
    pub fn tls(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.terms
            .tls
            .as_ref()
            .filter(|_| !self.terms.is_broken && self.terms.mode == ScopeTlsMode::Terminate)
    }

    /// Whether a server name without a certificate gets that of the node. Otherwise its handshake fails.
    pub fn default_certificate(&self) -> bool {
        self.terms.names.default_certificate
    }

    /// Whether connections with another server name may send requests for hosts of the scope.
    pub(crate) fn admits_any_name(&self) -> bool {
        self.terms.names.any_server_name && self.terms.client_mode.is_none()
    }

    /// Whether the text of the scope is broken and was never valid. Such a scope refuses its traffic.
    pub fn is_broken(&self) -> bool {
        self.terms.is_broken
    }

    /// The certificate for a server name in any case, with the name that matched; see
    /// [`crate::Snapshot::certificate_by_name`].
    pub fn certificate_by_name(&self, sni: &str) -> Option<(&str, &CompiledCertificate)> {
        let found = find_certificate(&self.certificates, &sni.to_ascii_lowercase());
        found.map(|(name, certificate)| (name, &**certificate))
    }

    /// The certificates by server name.
    pub fn certificates(&self) -> impl Iterator<Item = (&str, &Arc<CompiledCertificate>)> {
        self.certificates.iter().map(|(name, certificate)| (&**name, certificate))
    }
}

impl fmt::Debug for CompiledScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledScope")
            .field("id", &self.id)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
