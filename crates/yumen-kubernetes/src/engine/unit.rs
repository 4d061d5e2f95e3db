//! Units of translation.

use std::sync::Arc;

use crate::derived::{SectionKey, UpstreamKey};
use crate::model::{ClusterKind, ObjectKey};

/// One unit of translation. The order of the variants is the order in which units run: a unit reads results of units
/// before it only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TranslationUnit {
    /// A GatewayClass: whether it is ours, its status.
    Class(Arc<str>),
    /// The ports that all Gateways share in mode `Merged`.
    SharedPorts,
    /// A Gateway with its ListenerSets: listeners, scopes, certificates, the Service, [`ParentOutput`]s.
    ///
    /// [`ParentOutput`]: crate::derived::ParentOutput
    Gateway(ObjectKey),
    /// The HTTPRoutes and GRPCRoutes that compete for host names of a Gateway or ListenerSet.
    RouteKinds(ObjectKey),
    /// EndpointSlices of the Service of a Gateway.
    GatewaySlices(ObjectKey),
    /// The verdict on a BackendTLSPolicy.
    Policy(ObjectKey),
    /// A route of any kind: resources, status, attachments, upstream keys.
    Route(ObjectKey),
    /// A consumer, certificate, global rule, route or status of `apisix.apache.org`.
    Apisix(ObjectKey),
    /// Settings of all Ingresses: the ConfigMap of the controller.
    IngressDefaults,
    /// An Ingress: whether it is served, its parsed annotations, its status.
    Ingress(ObjectKey),
    /// The listeners of all Ingresses. The unit exists while an Ingress is served.
    IngressListeners,
    /// A host name of Ingresses: scope, certificates, routes. The unit exists while an Ingress names the host.
    IngressHost(Arc<str>),
    /// Ports of the ConfigMaps for TCP and UDP.
    IngressStreams,
    /// The stream route of a section to which TCPRoutes or UDPRoutes are attached: that of the oldest.
    StreamSection(SectionKey),
    /// The upstream of a port of a Service. The unit exists while a route names the key.
    ServicePort(UpstreamKey),
    /// The plugins of a PluginConfig or ApisixPluginConfig. The unit exists while a route names the object.
    PluginSet(ObjectKey),
    /// Plugins and metadata of all GatewayProxies.
    SharedPlugins,
    /// Status of a policy: its ancestors are known after the routes.
    PolicyStatus(ObjectKey),
    /// Status of a Gateway: attached routes are known after the routes.
    GatewayStatus(ObjectKey),
    /// Status of a ListenerSet.
    ListenerSetStatus(ObjectKey),
}

impl TranslationUnit {
    /// The units that exist without any object.
    pub(super) const PERMANENT: [TranslationUnit; 4] = [
        TranslationUnit::SharedPorts,
        TranslationUnit::IngressDefaults,
        TranslationUnit::IngressStreams,
        TranslationUnit::SharedPlugins,
    ];

    /// The units that exist because the object exists.
    pub(super) fn of_object(key: &ObjectKey) -> Vec<TranslationUnit> {
        match key.kind {
            ClusterKind::GatewayClass => vec![TranslationUnit::Class(key.name.clone())],
            ClusterKind::Gateway => {
                vec![
                    TranslationUnit::Gateway(key.clone()),
                    TranslationUnit::RouteKinds(key.clone()),
                    TranslationUnit::GatewaySlices(key.clone()),
                    TranslationUnit::GatewayStatus(key.clone()),
                ]
            }
            ClusterKind::ListenerSet => {
                vec![
                    TranslationUnit::RouteKinds(key.clone()),
                    TranslationUnit::ListenerSetStatus(key.clone()),
                ]
            }
            ClusterKind::BackendTlsPolicy => {
                vec![TranslationUnit::Policy(key.clone()), TranslationUnit::PolicyStatus(key.clone())]
            }
            ClusterKind::HttpRoutePolicy | ClusterKind::BackendTrafficPolicy => {
                vec![TranslationUnit::PolicyStatus(key.clone())]
            }
            ClusterKind::GatewayConsumer
            | ClusterKind::ApisixRoute
            | ClusterKind::ApisixUpstream
            | ClusterKind::ApisixTls
            | ClusterKind::ApisixConsumer
            | ClusterKind::ApisixPluginConfig
            | ClusterKind::ApisixGlobalRule => vec![TranslationUnit::Apisix(key.clone())],
            ClusterKind::Ingress => vec![TranslationUnit::Ingress(key.clone())],
            kind if kind.is_route() => vec![TranslationUnit::Route(key.clone())],
            _ => Vec::new(),
        }
    }

    /// Position of the kind of unit in the order of runs.
    pub(super) fn rank(&self) -> u8 {
        match self {
            TranslationUnit::Class(_) => 0,
            TranslationUnit::SharedPorts => 1,
            TranslationUnit::Gateway(_) => 2,
            TranslationUnit::RouteKinds(_) => 3,
            TranslationUnit::GatewaySlices(_) => 4,
            TranslationUnit::Policy(_) => 5,
            TranslationUnit::Route(_) => 6,
            TranslationUnit::Apisix(_) => 7,
            TranslationUnit::IngressDefaults => 8,
            TranslationUnit::Ingress(_) => 9,
            TranslationUnit::IngressListeners => 10,
            TranslationUnit::IngressHost(_) => 11,
            TranslationUnit::IngressStreams => 12,
            TranslationUnit::StreamSection(_) => 13,
            TranslationUnit::ServicePort(_) => 14,
            TranslationUnit::PluginSet(_) => 15,
            TranslationUnit::SharedPlugins => 16,
            TranslationUnit::PolicyStatus(_) => 17,
            TranslationUnit::GatewayStatus(_) => 18,
            TranslationUnit::ListenerSetStatus(_) => 19,
        }
    }

    /// Whether the unit exists without any object.
    pub(super) fn is_permanent(&self) -> bool {
        TranslationUnit::PERMANENT.contains(self)
    }

    /// The object without which the unit has no output.
    pub(super) fn root(&self) -> Option<ObjectKey> {
        match self {
            TranslationUnit::Class(name) => {
                Some(ObjectKey { kind: ClusterKind::GatewayClass, namespace: "".into(), name: name.clone() })
            }
            TranslationUnit::Gateway(key)
            | TranslationUnit::RouteKinds(key)
            | TranslationUnit::GatewaySlices(key)
            | TranslationUnit::Policy(key)
            | TranslationUnit::Route(key)
            | TranslationUnit::Apisix(key)
            | TranslationUnit::Ingress(key)
            | TranslationUnit::PluginSet(key)
            | TranslationUnit::PolicyStatus(key)
            | TranslationUnit::GatewayStatus(key)
            | TranslationUnit::ListenerSetStatus(key) => Some(key.clone()),
            TranslationUnit::SharedPorts
            | TranslationUnit::SharedPlugins
            | TranslationUnit::IngressDefaults
            | TranslationUnit::IngressListeners
            | TranslationUnit::IngressHost(_)
            | TranslationUnit::IngressStreams
            | TranslationUnit::StreamSection(_)
            | TranslationUnit::ServicePort(_) => None,
        }
    }
}
