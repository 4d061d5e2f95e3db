//! Groups of Ingresses that share a host name or a Service.

use std::sync::Arc;

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
