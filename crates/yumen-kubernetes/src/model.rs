//! Lean forms of the Kubernetes objects: the members that the translation reads, and no others.
//!
//! Unknown members are ignored, absent ones have their defaults. Enumerations of the API stay text, so that a
//! value of a newer version is judged where it is used and does not make the object undecodable.

mod apisix_shared;
mod apisix_v1alpha1;
mod apisix_v2;
mod backend_tls;
mod core;
mod decode;
mod duration;
mod gateway;
mod grant;
mod grpc_route;
mod http_filters;
mod http_route;
mod ingress;
mod ingress_class;
mod kind;
mod meta;
mod object;
mod references;
mod salvage;
mod saturating;
mod stream_routes;
#[cfg(test)]
mod tests;

pub(crate) use apisix_shared::{
    ActiveProbeSettings, HealthCheckSettings, ListedPlugin, PassiveProbeSettings, ProbeThresholds,
    TimeoutSettings, UpstreamSettings,
};
pub(crate) use apisix_v1alpha1::{
    BackendTrafficPolicySpec, ConsumerCredential, GatewayConsumerSpec, GatewayProxySpec, HttpRoutePolicySpec,
    PluginConfigSpec,
};
pub(crate) use apisix_v2::{
    ApisixAuthentication, ApisixBackend, ApisixConsumerSpec, ApisixExpression, ApisixExternalNode,
    ApisixHttpMatch, ApisixHttpRule, ApisixPluginListSpec, ApisixRouteSpec, ApisixStreamRule, ApisixTlsSpec,
    ApisixUpstreamConfig, ApisixUpstreamSpec,
};
pub(crate) use backend_tls::{BackendTlsPolicySpec, PolicyTargetReference};
pub(crate) use core::{
    AppliedDefinitionObject, ConfigMapObject, EndpointSliceObject, NamespaceObject, PodObject,
    PortNumberOrName, SecretObject, ServiceObject, ServicePortSpec, SliceEndpoint,
};
pub use decode::{DecodeError, decode};
pub(crate) use duration::{parse_duration_ms, parse_go_duration_s};
pub(crate) use gateway::{
    FrontendValidationSpec, GatewayAddressSpec, GatewayClassSpec, GatewayListenerSpec, GatewaySpec,
    ListenerSetSpec, NamespaceChoice, RouteKindSpec,
};
pub(crate) use grant::ReferenceGrantSpec;
pub(crate) use grpc_route::{GrpcMethodMatch, GrpcRouteFilter, GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec};
pub(crate) use http_filters::{
    HeaderModifier, HttpCorsFilter, HttpExternalAuthFilter, HttpPathModifier, HttpRedirectFilter,
    HttpRouteFilter, MirrorFilter, NamedValue,
};
pub(crate) use http_route::{
    HttpRouteMatch, HttpRouteRule, HttpRouteSpec, RouteRetryPolicy, RouteTimeouts, SessionPersistence,
    TypedNameValue,
};
pub(crate) use ingress::{
    IngressBackend, IngressPath, IngressService, IngressServicePort, IngressSpec, IngressTls,
};
pub(crate) use ingress_class::IngressClassSpec;
pub use kind::{ClusterKind, WatchedContent, WatchedKind};
pub(crate) use meta::{LabelMap, LabelSelector};
pub use meta::{ObjectMeta, OwningGateway};
pub use object::{ClusterChange, ClusterObject, ObjectKey};
pub(crate) use object::{LeanObject, ObjectBody, SpecObject};
pub(crate) use references::{BackendReference, ExtensionReference, ObjectReference, ParentReference};
pub use salvage::{readable_metadata, salvage};
pub(crate) use stream_routes::StreamRouteSpecification;

pub(crate) type GatewayClassObject = SpecObject<GatewayClassSpec>;
pub(crate) type GatewayObject = SpecObject<GatewaySpec>;
pub(crate) type ListenerSetObject = SpecObject<ListenerSetSpec>;
pub(crate) type HttpRouteObject = SpecObject<HttpRouteSpec>;
pub(crate) type GrpcRouteObject = SpecObject<GrpcRouteSpec>;
pub(crate) type ReferenceGrantObject = SpecObject<ReferenceGrantSpec>;
pub(crate) type BackendTlsPolicyObject = SpecObject<BackendTlsPolicySpec>;
pub(crate) type StreamRouteObject = SpecObject<StreamRouteSpecification>;
pub(crate) type IngressObject = SpecObject<IngressSpec>;
pub(crate) type IngressClassObject = SpecObject<IngressClassSpec>;
pub(crate) type PluginConfigObject = SpecObject<PluginConfigSpec>;
pub(crate) type HttpRoutePolicyObject = SpecObject<HttpRoutePolicySpec>;
pub(crate) type BackendTrafficPolicyObject = SpecObject<BackendTrafficPolicySpec>;
pub(crate) type GatewayConsumerObject = SpecObject<GatewayConsumerSpec>;
pub(crate) type GatewayProxyObject = SpecObject<GatewayProxySpec>;
pub(crate) type ApisixRouteObject = SpecObject<ApisixRouteSpec>;
pub(crate) type ApisixUpstreamObject = SpecObject<ApisixUpstreamSpec>;
pub(crate) type ApisixTlsObject = SpecObject<ApisixTlsSpec>;
pub(crate) type ApisixConsumerObject = SpecObject<ApisixConsumerSpec>;
pub(crate) type ApisixPluginListObject = SpecObject<ApisixPluginListSpec>;
