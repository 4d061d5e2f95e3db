//! The compiled configuration that workers serve from until the next one is published.

mod by_listener;
mod scoped_terms;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use yumen_plugin::{ConsumerIndex, PluginChain};

use crate::certificates::{Certificates, CompiledCertificate, find_certificate};
use crate::protection::UpstreamLimiter;
use crate::route::Route;
use crate::router::Router;
use crate::scope::{CompiledListeners, CompiledScopes};
use crate::streams::StreamRouter;
use crate::upstream::{Upstream, UpstreamSlotId};

pub use by_listener::ScopeOfRequest;
pub(crate) use scoped_terms::ScopedTerms;

/// By slot.
pub(crate) type Upstreams = imbl::Vector<Option<Arc<Upstream>>>;

/// The configuration of workers.
#[derive(Default)]
pub struct Snapshot {
    /// Revision of the resources it was compiled from.
    pub revision: u64,
    /// The plugins of the global rules, rule after rule, each rule in its own order, for the listeners of the node's
    /// settings.
    pub global: Arc<PluginChain>,
    /// The consumers for the listeners of the node's settings.
    pub consumers: ConsumerIndex,
    /// The routes without scopes, which serve the listeners of the node's settings.
    pub router: Router,
    /// The stream routes without scopes.
    pub streams: StreamRouter,
    pub(crate) upstreams: Upstreams,
    pub(crate) listeners: CompiledListeners,
    pub(crate) scopes: CompiledScopes,
    pub(crate) certificates: Certificates,
    pub(crate) requests_client_certificates: bool,
    pub(crate) chains: u64,
    pub(crate) no_rules: Arc<PluginChain>,
    /// For the listeners of the configuration.
    pub(crate) scope_rules: Arc<ScopedTerms<Arc<PluginChain>>>,
    /// For the listeners of the configuration.
    pub(crate) scope_consumers: Arc<ScopedTerms<ConsumerIndex>>,
    /// Limiters of rebuilt upstreams, whose queues are woken at publication.
    pub(crate) recalled: Box<[Weak<UpstreamLimiter>]>,
}

impl Snapshot {
    /// Counts changes of anything but endpoints. Snapshots of one process with the same number share routes and
    /// consumers.
    pub fn chains(&self) -> u64 {
        self.chains
    }

    /// The route for a request; see [`Router::find`].
    #[inline]
    pub fn find<'s>(&'s self, ex: &mut yumen_plugin::Exchange<'s>) -> Option<&'s Route> {
        self.router_of(ex.client.connection, ex.request.host())?.find(ex, &mut ())
    }

    /// All routes of all scopes, by id.
    pub fn routes(&self) -> BTreeMap<&str, &Arc<Route>> {
        let mut routes = self.router.routes();
        self.scopes().for_each(|scope| routes.extend(scope.router.routes()));
        routes
    }

    /// The upstream in a slot.
    #[inline]
    pub fn upstream(&self, slot: UpstreamSlotId) -> Option<&Upstream> {
        self.upstreams.get(slot.0 as usize)?.as_deref()
    }

    /// The upstream in a slot, for use beyond the life of the snapshot.
    pub fn shared_upstream(&self, slot: UpstreamSlotId) -> Option<&Arc<Upstream>> {
        self.upstreams.get(slot.0 as usize)?.as_ref()
    }

    /// All upstreams with their slots.
    pub fn upstreams(&self) -> impl Iterator<Item = (UpstreamSlotId, &Arc<Upstream>)> {
        let slots = self.upstreams.iter().enumerate();
        slots.filter_map(|(slot, upstream)| Some((UpstreamSlotId(slot as u32), upstream.as_ref()?)))
    }

    /// Whether any certificate requests one of the client.
    #[inline]
    pub fn requests_client_certificates(&self) -> bool {
        self.requests_client_certificates
    }

    /// Whether TLS streams with this server name are refused: no object has the name, and some objects require client
    /// certificates. The node's own certificate requires none, and a stream has no `Host` to check later, so an unknown
    /// name would evade the rules of every object.
    pub fn is_closed(&self, sni: &str) -> bool {
        // Without client certificates anywhere the check costs one branch.
        self.requests_client_certificates && self.certificate(sni).is_none()
    }

    /// The certificates by server name, those without scopes first.
    pub fn certificates(&self) -> impl Iterator<Item = (&str, &Arc<CompiledCertificate>)> {
        let of_node = self.certificates.iter().map(|(name, certificate)| (&**name, certificate));
        of_node.chain(self.scopes().flat_map(|scope| scope.certificates()))
    }

    /// The certificate for a server name in any case. An exact name wins over a wildcard, which stands for one label
    /// (RFC 9525 §6.3), and a wildcard over `*`. The empty name finds `*`.
    pub fn certificate(&self, sni: &str) -> Option<&CompiledCertificate> {
        self.certificate_by_name(sni).map(|(_, certificate)| certificate)
    }

    /// [`Snapshot::certificate`] with the name that matched.
    pub fn certificate_by_name(&self, sni: &str) -> Option<(&str, &CompiledCertificate)> {
        let found = find_certificate(&self.certificates, &sni.to_ascii_lowercase());
        found.map(|(name, certificate)| (name, &**certificate))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let routes = self.router.len();
        f.debug_struct("Snapshot").field("revision", &self.revision).field("routes", &routes).finish()
    }
}
