//! The compiled configuration: what workers serve from until the next one is published.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use regex::bytes::RegexSet;
use yumen_base::IpSet;
use yumen_plugin::{ConditionExpr, ConsumerIndex, PluginChain, RouteInfo};

use crate::protection::UpstreamLimiter;
use crate::router::{BodyRequired, Router};
use crate::streams::StreamRouter;
use crate::upstream::{AttemptTimeouts, Upstream};

/// Where an upstream stands in the snapshots that have it. Routes name upstreams by slot, so that a
/// change of endpoints touches no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamSlotId(pub u32);

/// Where a matched request goes.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteTarget {
    /// To an upstream.
    Upstream(UpstreamSlotId),
    /// Nowhere: plugins answer, or else there is no upstream to ask.
    None,
    /// The route is broken and fails closed, with this status and message.
    Refuse {
        /// Status code: 404 where the service is missing or disabled, else 503.
        status: u16,
        /// `error_msg` of the body.
        message: Box<str>,
    },
}

/// What a request must look like for a route to get it.
#[derive(Debug, Clone, Default, PartialEq)]
// Laid out as written: a route begins with it, so what every request reads comes last, next to what follows there.
#[repr(C)]
pub struct RouteMatching {
    /// Higher goes first among routes of the same host and path.
    pub priority: i32,
    /// When it was created, in seconds since the Unix epoch; 0 where that is not known.
    pub created: u64,
    /// Host patterns in lower case; none is any host. Its service's where the route has none.
    pub hosts: Arc<[Box<str>]>,
    /// Path patterns, as written.
    pub uris: Arc<[Box<str>]>,
    /// What few routes ask for.
    pub filters: Option<Arc<RouteFilters>>,
    /// Bits of the methods it takes, see [`yumen_plugin::Method::bit`]; 0 is any.
    pub methods: u16,
}

impl RouteMatching {
    /// Whether its conditions look into the request body.
    pub fn needs_body(&self) -> bool {
        self.filters.as_ref().and_then(|filters| filters.vars.as_ref()).is_some_and(ConditionExpr::needs_body)
    }
}

/// Filters beyond host, path and method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteFilters {
    /// Where the client must be; the empty set is anywhere.
    pub remote_addrs: IpSet,
    /// What must hold of the request.
    pub vars: Option<ConditionExpr>,
}

/// A compiled route.
#[derive(Debug)]
// Laid out as written: what every request reads stands together. Of a large table each line of memory is far away.
#[repr(C)]
pub struct Route {
    /// What a request must look like for the route to get it.
    pub matching: RouteMatching,
    /// Its merged plugins: route over plugin config over service.
    pub chain: Arc<PluginChain>,
    /// Where its requests go.
    pub target: RouteTarget,
    /// Its own timeouts, which win over the upstream's.
    pub timeouts: Option<Box<AttemptTimeouts>>,
    /// Whether the client may change the protocol of its connection.
    pub enable_websocket: bool,
    /// Whether global rules are not for it.
    pub skips_global_rules: bool,
    /// What becomes of its tunnels when it or their endpoint changes, where it says so.
    pub on_change: Option<TunnelPolicy>,
    /// What plugins and logs may know of it.
    pub info: RouteInfo,
    /// Ends when it is taken out or changed.
    pub life: Arc<RouteLifetime>,
}

/// What becomes of tunnels when what they depend on changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TunnelPolicy {
    /// They go on.
    #[default]
    Keep,
    /// They end after so many milliseconds.
    EndAfter(u64),
}

impl TunnelPolicy {
    /// How long tunnels go on, in milliseconds; `None` where nothing ends them.
    pub fn grace_ms(self) -> Option<u64> {
        match self {
            TunnelPolicy::Keep => None,
            TunnelPolicy::EndAfter(ms) => Some(ms),
        }
    }
}

/// Whether something is still in force, for whoever holds on to it longer than to a snapshot.
#[derive(Debug, Default)]
pub struct RouteLifetime(AtomicBool);

impl RouteLifetime {
    /// Whether it was taken out or changed.
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn end(&self) {
        self.0.store(true, Relaxed);
    }
}

/// A compiled certificate object.
pub struct CompiledCertificate {
    /// Its id.
    pub id: Box<str>,
    /// Key pairs in the order written, loaded by the door that speaks TLS.
    pub keys: Box<[Arc<dyn Any + Send + Sync>]>,
    /// What its handshakes ask beyond the node's settings, loaded by the same door.
    pub rules: Option<Arc<dyn Any + Send + Sync>>,
    /// Where clients must show a certificate of theirs.
    pub client: Option<ClientCertPolicy>,
}

impl CompiledCertificate {
    /// The same keys, under what another object asks of handshakes and clients.
    pub(crate) fn under_rules_of(&self, ruling: &CompiledCertificate) -> CompiledCertificate {
        CompiledCertificate {
            id: self.id.clone(),
            keys: self.keys.clone(),
            rules: ruling.rules.clone(),
            client: ruling.client.clone(),
        }
    }
}

/// Which requests need a valid certificate of the client.
#[derive(Debug, Clone)]
pub struct ClientCertPolicy {
    /// Patterns of the paths that do not; none where the handshake already refuses.
    pub(crate) skip: RegexSet,
}

impl ClientCertPolicy {
    /// Whether a request for this path is served without a certificate.
    pub fn skips(&self, path: &[u8]) -> bool {
        self.skip.is_match(path)
    }
}

/// By name in lower case; a wildcard as `*.example.com`, the default as `*`.
pub(crate) type Certificates = imbl::GenericHashMap<
    Box<str>,
    Arc<CompiledCertificate>,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;

/// By slot.
pub(crate) type Upstreams = imbl::Vector<Option<Arc<Upstream>>>;

/// What workers serve from; they see what `compile` put in through these methods.
#[derive(Default)]
pub struct Snapshot {
    /// Revision of the resources it was compiled from.
    pub revision: u64,
    /// Global rules, one after another, each in its own order.
    pub global: Arc<PluginChain>,
    /// All consumers.
    pub consumers: ConsumerIndex,
    /// All routes.
    pub router: Router,
    /// All stream routes.
    pub streams: StreamRouter,
    pub(crate) upstreams: Upstreams,
    pub(crate) certificates: Certificates,
    pub(crate) asks_clients: bool,
    pub(crate) chains: u64,
    pub(crate) no_rules: Arc<PluginChain>,
    /// Where those wait whose upstream was built anew.
    pub(crate) recalled: Box<[Weak<UpstreamLimiter>]>,
}

impl Snapshot {
    /// Snapshots of one process with the same number have the same routes and consumers, which the later one keeps where
    /// they were.
    pub fn chains(&self) -> u64 {
        self.chains
    }

    /// The route for a request; see [`Router::find`].
    #[inline]
    pub fn find<'s>(&'s self, ex: &mut yumen_plugin::Exchange<'s>) -> Option<&'s Route> {
        self.router.find(ex, &mut ())
    }

    /// The global rules for requests of a route, or of none.
    pub fn global_rules(&self, route: Option<&Route>) -> &PluginChain {
        match route {
            Some(route) if route.skips_global_rules => &self.no_rules,
            _ => &self.global,
        }
    }

    /// The route for a request whose body was not read; see [`Router::find_before_body`].
    #[inline]
    pub fn find_before_body<'s>(
        &'s self,
        ex: &mut yumen_plugin::Exchange<'s>,
    ) -> Result<Option<&'s Route>, BodyRequired> {
        self.router.find_before_body(ex)
    }

    /// The upstream in a slot.
    #[inline]
    pub fn upstream(&self, slot: UpstreamSlotId) -> Option<&Upstream> {
        self.upstreams.get(slot.0 as usize)?.as_deref()
    }

    /// The upstream in a slot, for whoever keeps it longer than the snapshot.
    pub fn shared_upstream(&self, slot: UpstreamSlotId) -> Option<&Arc<Upstream>> {
        self.upstreams.get(slot.0 as usize)?.as_ref()
    }

    /// All upstreams, for those who watch over their endpoints.
    pub fn upstreams(&self) -> impl Iterator<Item = (UpstreamSlotId, &Arc<Upstream>)> {
        let slots = self.upstreams.iter().enumerate();
        slots.filter_map(|(slot, upstream)| Some((UpstreamSlotId(slot as u32), upstream.as_ref()?)))
    }

    /// Whether any certificate asks clients for theirs.
    #[inline]
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Whether streams under this name are refused whatever their clients show: no object is for it, and some ask for
    /// certificates. The node's own certificate asks nobody, and a stream tells no host by which that could be made
    /// good: leaving out the name would lead around every object.
    pub fn is_closed(&self, sni: &str) -> bool {
        self.asks_clients && self.certificate(sni).is_none()
    }

    /// The certificates by server name.
    pub fn certificates(&self) -> impl Iterator<Item = (&str, &Arc<CompiledCertificate>)> {
        self.certificates.iter().map(|(name, certificate)| (&**name, certificate))
    }

    /// The certificate for a server name in any case: an exact name wins over a wildcard, which stands
    /// for one label (RFC 6125 §6.4.3), and that over `*`. An empty name asks for `*`.
    pub fn certificate(&self, sni: &str) -> Option<&CompiledCertificate> {
        self.certificate_by_name(sni).map(|(_, certificate)| certificate)
    }

    /// [`Snapshot::certificate`] and the name of its object that matched.
    pub fn certificate_by_name(&self, sni: &str) -> Option<(&str, &CompiledCertificate)> {
        let found = find_certificate(&self.certificates, &sni.to_ascii_lowercase());
        found.map(|(name, certificate)| (name, &**certificate))
    }
}

/// The certificate for a server name in lower case, and the name of its object that matched.
pub(crate) fn find_certificate<'c>(
    all: &'c Certificates,
    sni: &str,
) -> Option<(&'c str, &'c Arc<CompiledCertificate>)> {
    let wildcard = || {
        let (_, parent) = sni.split_once('.')?;
        all.get_key_value(format!("*.{parent}").as_str())
    };
    let found = all.get_key_value(sni).or_else(wildcard).or_else(|| all.get_key_value("*"));
    found.map(|(name, certificate)| (&**name, certificate))
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let routes = self.router.len();
        f.debug_struct("Snapshot").field("revision", &self.revision).field("routes", &routes).finish()
    }
}
