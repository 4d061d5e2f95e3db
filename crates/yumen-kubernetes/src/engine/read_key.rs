//! Keys of the facts that units read, and the indexes over objects.

use std::sync::Arc;

use super::unit::TranslationUnit;
use crate::derived::{IngressGroup, SectionKey};
use crate::model::{ClusterKind, ClusterObject, ObjectBody, ObjectKey, ParentReference};

/// A fact that a unit read. A change of the fact runs the unit again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReadKey {
    /// An object, or its absence.
    Object(ObjectKey),
    /// The objects of a kind in a namespace.
    In(ClusterKind, Arc<str>),
    /// All objects of a kind.
    All(ClusterKind),
    /// The members of an index; their content is read by `Object`.
    Index(IndexKey),
    /// The listeners of a Gateway or ListenerSet.
    Parent(ObjectKey),
    /// The derived output of a unit.
    Derived(TranslationUnit),
    /// The routes that are attached to a section.
    Attached(SectionKey),
    /// The Gateways whose routes use a policy.
    PolicyUsers(ObjectKey),
    /// The Ingresses of a group.
    Ingresses(IngressGroup),
    /// The first Ingress of a group.
    FirstIngress(IngressGroup),
}

/// A set of objects that share a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IndexKey {
    /// EndpointSlices of a Service.
    SlicesOf { namespace: Arc<str>, service: Arc<str> },
    /// BackendTLSPolicies that target a Service.
    PoliciesOf { namespace: Arc<str>, service: Arc<str> },
    /// BackendTrafficPolicies that target a Service.
    TrafficPoliciesOf { namespace: Arc<str>, service: Arc<str> },
    /// HTTPRoutePolicies that target a route.
    RoutePoliciesOf { namespace: Arc<str>, route: Arc<str> },
    /// ListenerSets that extend a Gateway.
    ListenerSetsOf(ObjectKey),
    /// HTTPRoutes or GRPCRoutes that name a Gateway or ListenerSet.
    RoutesOf { parent: ObjectKey, kind: ClusterKind },
    /// Gateways of a class.
    GatewaysOf(Arc<str>),
    /// Services of Gateways with a target port.
    TargetPort { is_udp: bool, port: u16 },
}

/// The indexes that contain `object`.
pub(super) fn index_keys(object: &ClusterObject) -> Vec<IndexKey> {
    let namespace = || object.meta().namespace.clone();
    match &object.body {
        ObjectBody::EndpointSlice(slice) => {
            let service = slice.meta.labels.get("kubernetes.io/service-name");
            let key =
                |service: &Arc<str>| IndexKey::SlicesOf { namespace: namespace(), service: service.clone() };
            service.map(key).into_iter().collect()
        }
        ObjectBody::BackendTlsPolicy(policy) => {
            let targets = policy.spec.target_refs.iter();
            let services = targets.filter(|target| target.group.is_empty() && &*target.kind == "Service");
            let key =
                |name: &Arc<str>| IndexKey::PoliciesOf { namespace: namespace(), service: name.clone() };
            services.map(|target| key(&target.name)).collect()
        }
        ObjectBody::BackendTrafficPolicy(policy) => {
            let targets = policy.spec.target_refs.iter().filter(|target| target.is_service());
            let key = |name: &Arc<str>| IndexKey::TrafficPoliciesOf {
                namespace: namespace(),
                service: name.clone(),
            };
            targets.map(|target| key(&target.name)).collect()
        }
        ObjectBody::HttpRoutePolicy(policy) => {
            let targets = policy.spec.target_refs.iter().filter(|target| target.is_http_route());
            let key =
                |name: &Arc<str>| IndexKey::RoutePoliciesOf { namespace: namespace(), route: name.clone() };
            targets.map(|target| key(&target.name)).collect()
        }
        ObjectBody::ListenerSet(set) => {
            let parent = set.spec.parent_ref.key(&namespace());
            let gateway = parent.filter(|parent| parent.kind == ClusterKind::Gateway);
            gateway.map(IndexKey::ListenerSetsOf).into_iter().collect()
        }
        ObjectBody::HttpRoute(route) => {
            parents(ClusterKind::HttpRoute, &namespace(), &route.spec.parent_refs)
        }
        ObjectBody::GrpcRoute(route) => {
            parents(ClusterKind::GrpcRoute, &namespace(), &route.spec.parent_refs)
        }
        ObjectBody::Gateway(gateway) => vec![IndexKey::GatewaysOf(gateway.spec.gateway_class_name.clone())],
        ObjectBody::Service(service) => crate::ports::observed_ports(service)
            .map(|observed| IndexKey::TargetPort { is_udp: observed.is_udp, port: observed.target })
            .collect(),
        _ => Vec::new(),
    }
}

fn parents(kind: ClusterKind, namespace: &Arc<str>, references: &[ParentReference]) -> Vec<IndexKey> {
    let parents = references.iter().filter_map(|reference| reference.key(namespace));
    parents.map(|parent| IndexKey::RoutesOf { parent, kind }).collect()
}
