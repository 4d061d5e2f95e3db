//! Groups of Ingresses that share a host name or a Service.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::model::{ClusterKind, ObjectKey, ObjectMeta};

/// A group that an Ingress belongs to. The units of a group exist while it has a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IngressGroup {
    /// All Ingresses that this controller serves.
    Served,
    /// Ingresses with rules for a host name, in lower case; empty: for every host.
    Host(Arc<str>),
    /// Ingresses whose `server-alias` has a host name.
    Alias(Arc<str>),
    /// Ingresses with a Service as a backend.
    Service { namespace: Arc<str>, service: Arc<str> },
}

/// A member of a group. The order is that of ingress-nginx: the oldest first, and of equal age the last by
/// `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IngressMember {
    created_s: i64,
    /// `namespace/name`.
    name: Reverse<Arc<str>>,
}

impl IngressMember {
    pub(crate) fn new(meta: &ObjectMeta) -> IngressMember {
        let name = format!("{}/{}", meta.namespace, meta.name);
        IngressMember { created_s: meta.created_s, name: Reverse(name.into()) }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        let (namespace, name) = self.name.0.split_once('/').unwrap_or_default();
        ObjectKey::new(ClusterKind::Ingress, namespace, name)
    }
}
