//! Resources that the translation writes: kinds, identities, texts, changes.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::resource::{ResourceDefect, mark};

use crate::model::{ClusterKind, ObjectKey};

/// A kind of resources that the translation writes. A resource refers only to kinds before its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TranslatedKind {
    /// Settings of plugins that hold for all objects.
    PluginMetadata,
    /// Bound addresses.
    Listeners,
    /// Routing tables and certificates that listeners select.
    Scopes,
    /// Certificates.
    Ssls,
    /// Groups of endpoints.
    Upstreams,
    /// Plugins that routes refer to.
    PluginConfigs,
    /// Consumers.
    Consumers,
    /// Credentials of consumers.
    Credentials,
    /// Plugins for all requests.
    GlobalRules,
    /// HTTP and gRPC routes.
    Routes,
    /// TCP, TLS and UDP routes.
    StreamRoutes,
}

impl TranslatedKind {
    /// The plural, as in `routes/1`.
    pub fn name(self) -> &'static str {
        match self {
            TranslatedKind::PluginMetadata => "plugin_metadata",
            TranslatedKind::Listeners => "listeners",
            TranslatedKind::Scopes => "scopes",
            TranslatedKind::Ssls => "ssls",
            TranslatedKind::Upstreams => "upstreams",
            TranslatedKind::PluginConfigs => "plugin_configs",
            TranslatedKind::Consumers => "consumers",
            TranslatedKind::Credentials => "credentials",
            TranslatedKind::GlobalRules => "global_rules",
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
    /// The id: `{namespace}/{name}!{part}!{detail}`; of consumers `{namespace}_{name}`, of metadata a plugin's name.
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

/// The `plugin_configs` resource of a PluginConfig or ApisixPluginConfig.
pub(crate) fn plugin_set_name(key: &ObjectKey) -> ResourceName {
    let part = if key.kind == ClusterKind::PluginConfig { "plugins" } else { "apisix-plugins" };
    ResourceName::new(TranslatedKind::PluginConfigs, format!("{}/{}!{part}", key.namespace, key.name))
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

/// Why a resource cannot be followed as its object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpecDefect {
    /// Dotted path inside the resource.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl SpecDefect {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> SpecDefect {
        SpecDefect { path: path.into(), message: message.into() }
    }
}

/// Marks a resource, so that the compiler quarantines it: its last good version stays, or its requests are refused.
pub(crate) fn mark_broken(members: &mut Map<String, Value>, defects: &[SpecDefect]) {
    let defects: Vec<ResourceDefect> = defects
        .iter()
        .map(|defect| ResourceDefect {
            path: defect.path.clone(),
            message: defect.message.clone(),
            hint: None,
        })
        .collect();
    mark(members, &defects);
}
