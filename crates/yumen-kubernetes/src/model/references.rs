//! References from one object to another.

use std::sync::Arc;

use serde::Deserialize;

use super::kind::ClusterKind;
use super::object::ObjectKey;
use super::saturating;

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The parent of a route: a Gateway, a ListenerSet, or one listener of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ParentReference {
    pub(crate) group: Option<Arc<str>>,
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
    pub(crate) section_name: Option<Arc<str>>,
    pub(crate) port: Option<u16>,
}

impl ParentReference {
    pub(crate) fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(GATEWAY_GROUP)
    }

    pub(crate) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Gateway")
    }

    /// The Gateway or ListenerSet; `None` for other kinds, such as a Service of a mesh.
    pub(crate) fn key(&self, namespace: &Arc<str>) -> Option<ObjectKey> {
        let kind = ClusterKind::find(self.group(), self.kind())?;
        let namespace = self.namespace.as_ref().unwrap_or(namespace);
        matches!(kind, ClusterKind::Gateway | ClusterKind::ListenerSet).then(|| ObjectKey {
            kind,
            namespace: namespace.clone(),
            name: self.name.clone(),
        })
    }
}

/// A backend of a route, a mirror or an authorization service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackendReference {
    pub(crate) group: Option<Arc<str>>,
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
    pub(crate) port: Option<u16>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) weight: Option<u32>,
}

impl BackendReference {
    /// The group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.group.as_deref().unwrap_or_default()
    }

    pub(crate) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Service")
    }
}

/// A reference to a Secret, a ConfigMap or another object, in any namespace that grants it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ObjectReference {
    pub(crate) group: Option<Arc<str>>,
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
}

impl ObjectReference {
    /// The group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.group.as_deref().unwrap_or_default()
    }

    /// The kind, or `default` where the API has a default.
    pub(crate) fn kind_or<'r>(&'r self, default: &'r str) -> &'r str {
        self.kind.as_deref().unwrap_or(default)
    }

    /// The namespace, or `own` if the reference names none.
    pub(crate) fn namespace_or<'r>(&'r self, own: &'r Arc<str>) -> &'r Arc<str> {
        self.namespace.as_ref().unwrap_or(own)
    }
}

/// A reference to an object of a kind of the implementation, in the namespace of the object that names it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExtensionReference {
    pub(crate) group: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
}
