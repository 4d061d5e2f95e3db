//! Resources that the translation writes: kinds, identities, texts, changes.

use std::fmt;
use std::sync::Arc;

use yumen_config::Kind;

/// A kind of resources that the translation writes. A resource refers only to kinds before its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TranslatedKind {
    /// Bound addresses.
    Listeners,
    /// Routing tables and certificates that listeners select.
    Scopes,
    /// Certificates.
    Ssls,
    /// Groups of endpoints.
    Upstreams,
    /// HTTP and gRPC routes.
    Routes,
    /// TCP, TLS and UDP routes.
    StreamRoutes,
}

impl TranslatedKind {
    /// The plural, as in `routes/1`.
    pub fn name(self) -> &'static str {
        match self {
            TranslatedKind::Listeners => "listeners",
            TranslatedKind::Scopes => "scopes",
            TranslatedKind::Ssls => "ssls",
            TranslatedKind::Upstreams => "upstreams",
            TranslatedKind::Routes => "routes",
            TranslatedKind::StreamRoutes => "stream_routes",
        }
    }

    /// The kind of the resources; `None` if this build has none of the name.
    pub fn kind(self) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == self.name())
    }
}

/// Identity of a translated resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    /// The kind.
    pub kind: TranslatedKind,
    /// The id: `{namespace}/{name}!{part}!{detail}`.
    pub id: Arc<str>,
}

impl ResourceName {
    /// The name of the resource `id` of `kind`.
    pub fn new(kind: TranslatedKind, id: impl Into<Arc<str>>) -> ResourceName {
        ResourceName { kind, id: id.into() }
    }
}

/// Formats as `routes/shop/cart!http!00!000`.
impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.name(), self.id)
    }
}

/// A resource as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedResource {
    /// The identity.
    pub name: ResourceName,
    /// Compact JSON.
    pub json: Arc<str>,
}

/// A change of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceChange {
    /// The resource is new, or its text differs.
    Put(TranslatedResource),
    /// The resource is removed.
    Delete(ResourceName),
}
