//! Identities of upstreams and of sections.

use std::fmt;
use std::sync::Arc;

use crate::model::ObjectKey;

/// A listener of a Gateway, or an entry of a ListenerSet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SectionKey {
    pub(crate) parent: ObjectKey,
    pub(crate) name: Arc<str>,
}

/// The use of an upstream, which decides on its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum UpstreamFlavor {
    Http,
    /// HTTP over TLS by an annotation of an Ingress.
    Https,
    Grpc,
    /// gRPC over TLS by an annotation of an Ingress.
    Grpcs,
    Tcp,
    /// TLS of the client, passed on as it is.
    Sealed,
    Udp,
}

/// The objects that decide on an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum UpstreamSource {
    /// A Service with the policies that target it.
    Policies,
    /// A Service with the ApisixUpstream of its name.
    Apisix,
    /// The cluster address of a Service with the ApisixUpstream of its name.
    ApisixAddress,
    /// The external nodes of an ApisixUpstream, whose name is in place of the Service's.
    External,
    /// A Service with the settings of the first Ingress that names it.
    Ingress,
}

/// Identity of an upstream: one port of a Service, in one use. The unit of the key exists while a route names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UpstreamKey {
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Arc<str>,
    pub(crate) port: u16,
    pub(crate) flavor: UpstreamFlavor,
    pub(crate) source: UpstreamSource,
    /// The Gateway whose client certificate the backend is shown; the Ingress with settings of TLS; the ConfigMap of a
    /// TCP port that sends PROXY headers.
    pub(crate) gateway: Option<ObjectKey>,
}

impl UpstreamKey {
    /// Id of the `upstreams` object, such as `shop/cart!svc!80.http`, with a Gateway `shop/cart!svc!80.http!infra.web`: a
    /// namespace has no dots.
    pub(crate) fn id(&self) -> Arc<str> {
        self.to_string().into()
    }
}

impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavor = match self.flavor {
            UpstreamFlavor::Http => "http",
            UpstreamFlavor::Https => "https",
            UpstreamFlavor::Grpc => "grpc",
            UpstreamFlavor::Grpcs => "grpcs",
            UpstreamFlavor::Tcp => "tcp",
            UpstreamFlavor::Sealed => "sealed",
            UpstreamFlavor::Udp => "udp",
        };
        let part = match self.source {
            UpstreamSource::Policies => "svc",
            UpstreamSource::Apisix => "apisix",
            UpstreamSource::ApisixAddress => "apisix-address",
            UpstreamSource::Ingress => "ingress",
            UpstreamSource::External => return write!(f, "{}/{}!external", self.namespace, self.service),
        };
        write!(f, "{}/{}!{part}!{}.{flavor}", self.namespace, self.service, self.port)?;
        match &self.gateway {
            Some(gateway) => write!(f, "!{}.{}", gateway.namespace, gateway.name),
            None => Ok(()),
        }
    }
}
