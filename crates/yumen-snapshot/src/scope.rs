//! Listeners that belong to the configuration, and the scopes that divide their traffic.
//!
//! A listener and a host name select one scope, which has routes and certificates of its own. Knows no socket.

mod host_map;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_config::resource::ClientCertMode;
use yumen_plugin::{ClientInfo, ListenerNumber};

use crate::Snapshot;
use crate::compile::Loaded;
use crate::router::Router;
use crate::snapshot::{Certificates, CompiledCertificate, find_certificate};
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
pub(crate) type CompiledListeners = imbl::Vector<Option<Arc<CompiledListener>>>;

/// The position of a scope in the tables of one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScopeSlotId(pub(crate) u32);

/// By slot.
pub(crate) type CompiledScopes = imbl::Vector<Option<Arc<CompiledScope>>>;

/// Ids of the scopes that an object belongs to; not empty.
#[derive(Debug, PartialEq, Eq)]
pub struct ScopeIds(Box<[Arc<str>]>);

impl ScopeIds {
    /// The scopes that a text names; `None` for the listeners of the node's settings.
    pub(crate) fn of(written: Option<&[yumen_config::resource::ResourceId]>) -> Option<Arc<ScopeIds>> {
        let ids: Box<[Arc<str>]> = written?.iter().map(|id| id.0.clone()).collect();
        (!ids.is_empty()).then(|| Arc::new(ScopeIds(ids)))
    }

    /// The ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// The ids; empty for the listeners of the node's settings.
    pub(crate) fn list(of: &Option<Arc<ScopeIds>>) -> &[Arc<str>] {
        of.as_ref().map_or(&[], |ids| &ids.0)
    }
}

/// The end of TLS on listeners of protocol `https` and `tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScopeTlsMode {
    /// The gateway.
    #[default]
    Terminate,
    /// The endpoint of a stream route.
    Passthrough,
}

/// The settings of a scope beside its hosts and listeners.
#[derive(Clone, Default)]
pub(crate) struct ScopeTerms {
    pub(crate) mode: ScopeTlsMode,
    pub(crate) client_mode: Option<ClientCertMode>,
    pub(crate) tls: Option<Loaded>,
    /// Whether a server name without a certificate gets that of the node.
    pub(crate) default_certificate: bool,
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
    pub fn tls(&self) -> Option<&Loaded> {
        self.terms
            .tls
            .as_ref()
            .filter(|_| !self.terms.is_broken && self.terms.mode == ScopeTlsMode::Terminate)
    }

    /// Whether a server name without a certificate gets that of the node. Otherwise its handshake fails.
    pub fn default_certificate(&self) -> bool {
        self.terms.default_certificate
    }

    /// Whether the text of the scope is broken and was never valid. Such a scope refuses its traffic.
    pub fn is_broken(&self) -> bool {
        self.terms.is_broken
    }

    /// The certificate for a server name in any case, with the name that matched; see
    /// [`Snapshot::certificate_by_name`].
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

/// The relation of a request to the TLS handshake of its connection.
#[derive(Debug, Clone, Copy)]
pub enum ScopeOfRequest<'s> {
    /// The scope of the host; `None` if no scope of the listener has it.
    Found(Option<&'s CompiledScope>),
    /// The host belongs to another scope than the server name of the handshake (RFC 9110 §15.5.20).
    Misdirected,
}

impl Snapshot {
    /// The listener that accepted a connection; `None` for one of the node's settings, or if it is gone.
    pub fn listener(&self, number: ListenerNumber) -> Option<&Arc<CompiledListener>> {
        // Another epoch: the slot has passed to another listener, and this connection was not accepted by it.
        self.listeners.get(usize::from(number.slot))?.as_ref().filter(|one| one.number == number)
    }

    /// The scope of a host in lower case on a listener of the configuration. The empty name stands for none.
    #[inline]
    pub fn scope_of(&self, listener: ListenerNumber, host: &[u8]) -> Option<&CompiledScope> {
        self.scope(self.listener(listener)?.hosts.find(host)?)
    }

    /// The scope of a server name in any case on a listener of the configuration. The empty name stands for none.
    pub fn scope_of_name(&self, listener: ListenerNumber, sni: &str) -> Option<&CompiledScope> {
        self.scope_of(listener, sni.to_ascii_lowercase().as_bytes())
    }

    /// The scope in a slot.
    #[inline]
    pub fn scope(&self, slot: ScopeSlotId) -> Option<&CompiledScope> {
        self.scopes.get(slot.0 as usize)?.as_deref()
    }

    /// All scopes, in no particular order.
    pub fn scopes(&self) -> impl Iterator<Item = &Arc<CompiledScope>> {
        self.scopes.iter().flatten()
    }

    /// The routing table of a request; `None` if its listener is gone, or no scope of the listener has the host.
    #[inline]
    pub fn router_of(&self, client: &ClientInfo, host: &[u8]) -> Option<&Router> {
        if client.listener.is_static() {
            return Some(&self.router);
        }
        self.scope_of(client.listener, host).map(|scope| &scope.router)
    }

    /// The stream routes of a connection; `None` if its listener is gone, or no scope of the listener has the name.
    pub fn streams_of(&self, listener: ListenerNumber, sni: Option<&str>) -> Option<&StreamRouter> {
        if listener.is_static() {
            return Some(&self.streams);
        }
        self.scope_of_name(listener, sni.unwrap_or_default()).map(|scope| &scope.streams)
    }

    /// The scope of a request on a listener of the configuration.
    ///
    /// Clients coalesce connections by certificate (RFC 9113 §9.1.1), so a request may arrive on a connection whose
    /// handshake followed the rules of another scope. A host that no scope has is not misdirected: no other connection
    /// would serve it.
    pub fn scope_of_request(&self, client: &ClientInfo, host: &[u8]) -> ScopeOfRequest<'_> {
        let scope = self.scope_of(client.listener, host);
        let (Some(tls), Some(of_host)) = (&client.tls, scope) else { return ScopeOfRequest::Found(scope) };
        let sni = tls.sni.as_deref().unwrap_or_default();
        // The common case costs one comparison.
        if sni.as_bytes() == host {
            return ScopeOfRequest::Found(scope);
        }
        // A request without a host is for the server name of the handshake.
        if host.is_empty() {
            return ScopeOfRequest::Found(self.scope_of_name(client.listener, sni));
        }
        match self.scope_of_name(client.listener, sni) {
            Some(of_name) if of_name.slot == of_host.slot => ScopeOfRequest::Found(scope),
            _ => ScopeOfRequest::Misdirected,
        }
    }
}
