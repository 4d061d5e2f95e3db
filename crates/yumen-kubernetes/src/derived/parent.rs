//! Parents of routes: the listeners of a Gateway, or of one ListenerSet.

use std::sync::Arc;

use crate::model::{ClusterKind, LabelMap, LabelSelector, ObjectKey};

/// The listeners to which the routes of one parent can attach.
///
/// A Gateway of a foreign class has no `ParentOutput`, so that its routes get no status entry from this controller.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParentOutput {
    /// The Gateway; of a ListenerSet, the one that it extends.
    pub(crate) gateway: ObjectKey,
    /// Whether the Gateway is accepted, and admits the ListenerSet. Routes attach only to an accepted parent.
    pub(crate) is_accepted: bool,
    /// Id of the client certificate (`ssls`) that backends with TLS are shown.
    pub(crate) client_certificate: Option<Arc<str>>,
    /// The sections, in the order of the object.
    pub(crate) sections: Vec<SectionOutput>,
}

/// One listener of a Gateway or entry of a ListenerSet, as routes see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SectionOutput {
    pub(crate) name: Arc<str>,
    pub(crate) port: u16,
    pub(crate) protocol: SectionProtocol,
    /// In lower case; `None`: every host.
    pub(crate) hostname: Option<Arc<str>>,
    /// Kinds of routes that may attach; empty if the listener allows none that fits its protocol.
    pub(crate) kinds: Vec<ClusterKind>,
    pub(crate) namespaces: AllowedNamespaces,
    /// Id of the `scopes` object. It is absent if the listener is not served: routes attach and count all the same
    /// (GatewayWithAttachedRoutes), and their resources leave the section out.
    pub(crate) scope: Option<Arc<str>>,
}

/// Protocol of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SectionProtocol {
    Http,
    Https,
    TlsTerminate,
    TlsPassthrough,
    Tcp,
    Udp,
    /// A protocol of another implementation: no route attaches.
    Unsupported,
}

/// Namespaces from which routes attach to a section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AllowedNamespaces {
    /// One namespace: that of the Gateway or ListenerSet.
    One(Arc<str>),
    All,
    /// Namespaces with matching labels.
    Selected(LabelSelector),
    /// No namespace, for a value of a newer version of the API.
    Nowhere,
}

impl SectionProtocol {
    pub(crate) fn is_udp(self) -> bool {
        self == SectionProtocol::Udp
    }

    /// Protocol of the `listeners` resource; sections of one port have the same.
    pub(crate) fn listener_protocol(self) -> Option<&'static str> {
        match self {
            SectionProtocol::Http => Some("http"),
            SectionProtocol::Https => Some("https"),
            SectionProtocol::TlsTerminate | SectionProtocol::TlsPassthrough => Some("tls"),
            SectionProtocol::Tcp => Some("tcp"),
            SectionProtocol::Udp => Some("udp"),
            SectionProtocol::Unsupported => None,
        }
    }
}

impl AllowedNamespaces {
    /// Whether routes of `namespace` may attach. Reads the labels of the namespace only where they count.
    pub(crate) fn admits(&self, namespace: &str, labels: impl FnOnce() -> Option<LabelMap>) -> bool {
        match self {
            AllowedNamespaces::One(own) => &**own == namespace,
            AllowedNamespaces::All => true,
            AllowedNamespaces::Selected(selector) => labels().is_some_and(|labels| selector.matches(&labels)),
            AllowedNamespaces::Nowhere => false,
        }
    }
}
