//! The kinds of Kubernetes objects that the translation reads, and the way each is watched.

use std::fmt;

/// A kind of Kubernetes objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// Custom resource definitions: versions of the installed API.
    CustomResourceDefinition,
    /// Namespaces, whose labels selectors match.
    Namespace,
    /// Classes of Gateways.
    GatewayClass,
    /// Gateways.
    Gateway,
    /// Further listeners of a Gateway.
    ListenerSet,
    /// HTTP routes.
    HttpRoute,
    /// gRPC routes.
    GrpcRoute,
    /// TLS routes.
    TlsRoute,
    /// TCP routes.
    TcpRoute,
    /// UDP routes.
    UdpRoute,
    /// Permissions for references across namespaces.
    ReferenceGrant,
    /// TLS settings of backends.
    BackendTlsPolicy,
    /// Services.
    Service,
    /// Endpoints of services.
    EndpointSlice,
    /// Secrets.
    Secret,
    /// ConfigMaps.
    ConfigMap,
    /// Pods of the gateway itself.
    Pod,
    /// Classes of Ingresses and of the kinds of `apisix.apache.org/v2`.
    IngressClass,
    /// Ingresses.
    Ingress,
    /// Plugins for rules of routes.
    PluginConfig,
    /// Priority and conditions of HTTP routes.
    HttpRoutePolicy,
    /// Settings of backends.
    BackendTrafficPolicy,
    /// Consumers of a Gateway.
    GatewayConsumer,
    /// Plugins and addresses of Gateways and classes.
    GatewayProxy,
    /// HTTP and stream routes of APISIX.
    ApisixRoute,
    /// Settings of Services, and upstreams outside the cluster.
    ApisixUpstream,
    /// Certificates.
    ApisixTls,
    /// Consumers.
    ApisixConsumer,
    /// Plugins for APISIX routes.
    ApisixPluginConfig,
    /// Plugins for all requests.
    ApisixGlobalRule,
}

/// The content of the objects that a watch of a kind returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedContent {
    /// Whole objects.
    Full,
    /// Metadata only (`PartialObjectMetadata`).
    Metadata,
    /// Metadata of all objects; the whole object, by GET, of those that other objects refer to.
    Referenced,
    /// Whole objects of the gateway's own namespace that match its pod selector.
    OwnPods,
}

/// The API of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct WatchedKind {
    /// The kind.
    pub kind: ClusterKind,
    /// Name of the kind in manifests.
    pub name: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Name in paths of the API.
    pub plural: &'static str,
    /// Versions that [`decode`](super::decode) reads, in order of preference.
    pub versions: &'static [&'static str],
    /// The content that the watch asks for.
    pub content: WatchedContent,
    /// Whether objects of the kind belong to a namespace.
    pub is_namespaced: bool,
}

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
const NETWORKING_GROUP: &str = "networking.k8s.io";

const fn row(
    kind: ClusterKind,
    name: &'static str,
    group: &'static str,
    plural: &'static str,
    versions: &'static [&'static str],
) -> WatchedKind {
    WatchedKind { kind, name, group, plural, versions, content: WatchedContent::Full, is_namespaced: true }
}

const APISIX_GROUP: &str = "apisix.apache.org";
const V1: &[&str] = &["v1"];
const V1_ALPHA1: &[&str] = &["v1alpha1"];
const V2: &[&str] = &["v2"];

/// One row per kind, in the order of [`ClusterKind`].
static WATCHED: [WatchedKind; 30] = [
    WatchedKind {
        content: WatchedContent::Metadata,
        is_namespaced: false,
        ..row(
            ClusterKind::CustomResourceDefinition,
            "CustomResourceDefinition",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            V1,
        )
    },
    WatchedKind {
        content: WatchedContent::Metadata,
        is_namespaced: false,
        ..row(ClusterKind::Namespace, "Namespace", "", "namespaces", V1)
    },
    WatchedKind {
        is_namespaced: false,
        ..row(ClusterKind::GatewayClass, "GatewayClass", GATEWAY_GROUP, "gatewayclasses", &["v1", "v1beta1"])
    },
    row(ClusterKind::Gateway, "Gateway", GATEWAY_GROUP, "gateways", &["v1", "v1beta1"]),
    row(ClusterKind::ListenerSet, "ListenerSet", GATEWAY_GROUP, "listenersets", V1),
    row(ClusterKind::HttpRoute, "HTTPRoute", GATEWAY_GROUP, "httproutes", &["v1", "v1beta1"]),
    row(ClusterKind::GrpcRoute, "GRPCRoute", GATEWAY_GROUP, "grpcroutes", V1),
    row(ClusterKind::TlsRoute, "TLSRoute", GATEWAY_GROUP, "tlsroutes", &["v1", "v1alpha3", "v1alpha2"]),
    row(ClusterKind::TcpRoute, "TCPRoute", GATEWAY_GROUP, "tcproutes", &["v1", "v1alpha2"]),
    row(ClusterKind::UdpRoute, "UDPRoute", GATEWAY_GROUP, "udproutes", &["v1", "v1alpha2"]),
    row(ClusterKind::ReferenceGrant, "ReferenceGrant", GATEWAY_GROUP, "referencegrants", &["v1", "v1beta1"]),
    row(
        ClusterKind::BackendTlsPolicy,
        "BackendTLSPolicy",
        GATEWAY_GROUP,
        "backendtlspolicies",
        &["v1", "v1alpha3"],
    ),
    row(ClusterKind::Service, "Service", "", "services", V1),
    row(ClusterKind::EndpointSlice, "EndpointSlice", "discovery.k8s.io", "endpointslices", V1),
    WatchedKind {
        content: WatchedContent::Referenced,
        ..row(ClusterKind::Secret, "Secret", "", "secrets", V1)
    },
    WatchedKind {
        content: WatchedContent::Referenced,
        ..row(ClusterKind::ConfigMap, "ConfigMap", "", "configmaps", V1)
    },
    WatchedKind { content: WatchedContent::OwnPods, ..row(ClusterKind::Pod, "Pod", "", "pods", V1) },
    WatchedKind {
        is_namespaced: false,
        ..row(ClusterKind::IngressClass, "IngressClass", NETWORKING_GROUP, "ingressclasses", V1)
    },
    row(ClusterKind::Ingress, "Ingress", NETWORKING_GROUP, "ingresses", V1),
    row(ClusterKind::PluginConfig, "PluginConfig", APISIX_GROUP, "pluginconfigs", V1_ALPHA1),
    row(ClusterKind::HttpRoutePolicy, "HTTPRoutePolicy", APISIX_GROUP, "httproutepolicies", V1_ALPHA1),
    row(
        ClusterKind::BackendTrafficPolicy,
        "BackendTrafficPolicy",
        APISIX_GROUP,
        "backendtrafficpolicies",
        V1_ALPHA1,
    ),
    row(ClusterKind::GatewayConsumer, "Consumer", APISIX_GROUP, "consumers", V1_ALPHA1),
    row(ClusterKind::GatewayProxy, "GatewayProxy", APISIX_GROUP, "gatewayproxies", V1_ALPHA1),
    row(ClusterKind::ApisixRoute, "ApisixRoute", APISIX_GROUP, "apisixroutes", V2),
    row(ClusterKind::ApisixUpstream, "ApisixUpstream", APISIX_GROUP, "apisixupstreams", V2),
    row(ClusterKind::ApisixTls, "ApisixTls", APISIX_GROUP, "apisixtlses", V2),
    row(ClusterKind::ApisixConsumer, "ApisixConsumer", APISIX_GROUP, "apisixconsumers", V2),
    row(ClusterKind::ApisixPluginConfig, "ApisixPluginConfig", APISIX_GROUP, "apisixpluginconfigs", V2),
    row(ClusterKind::ApisixGlobalRule, "ApisixGlobalRule", APISIX_GROUP, "apisixglobalrules", V2),
];

impl ClusterKind {
    /// All kinds, in the order in which their watches start.
    pub fn all() -> impl Iterator<Item = ClusterKind> {
        WATCHED.iter().map(|row| row.kind)
    }

    /// The API of the kind.
    pub fn api(self) -> &'static WatchedKind {
        &WATCHED[self as usize]
    }

    /// Name of the kind in manifests.
    pub fn name(self) -> &'static str {
        self.api().name
    }

    /// The kind of the name `name` in the API group `group`.
    pub fn find(group: &str, name: &str) -> Option<ClusterKind> {
        WATCHED.iter().find(|row| row.group == group && row.name == name).map(|row| row.kind)
    }

    /// Whether the controller may write the statuses of the kind's objects.
    pub fn has_conditions(self) -> bool {
        !matches!(
            self,
            ClusterKind::CustomResourceDefinition
                | ClusterKind::Namespace
                | ClusterKind::ReferenceGrant
                | ClusterKind::Service
                | ClusterKind::EndpointSlice
                | ClusterKind::Secret
                | ClusterKind::ConfigMap
                | ClusterKind::Pod
                | ClusterKind::IngressClass
        )
    }

    /// Whether objects of the kind are routes, which attach to listeners.
    pub fn is_route(self) -> bool {
        matches!(
            self,
            ClusterKind::HttpRoute
                | ClusterKind::GrpcRoute
                | ClusterKind::TlsRoute
                | ClusterKind::TcpRoute
                | ClusterKind::UdpRoute
        )
    }
}

impl fmt::Display for ClusterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
