//! Objects of all kinds under one type, their keys, and changes of them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::core::{
    AppliedDefinitionObject, ConfigMapObject, EndpointSliceObject, NamespaceObject, PodObject, SecretObject,
    ServiceObject,
};
use super::kind::ClusterKind;
use super::meta::ObjectMeta;
use super::{
    ApisixConsumerObject, ApisixPluginListObject, ApisixRouteObject, ApisixTlsObject, ApisixUpstreamObject,
    BackendTlsPolicyObject, BackendTrafficPolicyObject, GatewayClassObject, GatewayConsumerObject,
    GatewayObject, GatewayProxyObject, GrpcRouteObject, HttpRouteObject, HttpRoutePolicyObject,
    IngressClassObject, IngressObject, ListenerSetObject, PluginConfigObject, ReferenceGrantObject,
    StreamRouteObject,
};

/// Bytes of a label's value in resources.
const LABEL_VALUE_MAX: usize = 256;

/// Identity of an object. The order is that of kind, namespace, name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: ClusterKind,
    /// The namespace; empty for objects without one.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object of `kind`.
    pub fn new(kind: ClusterKind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.into(), name: name.into() }
    }

    /// The value of the label `origin` of resources that the object leads to: its name, cut to the bound of labels.
    pub(crate) fn origin_label(&self) -> String {
        let mut name = self.to_string();
        // Names of Kubernetes are ASCII.
        if name.is_char_boundary(LABEL_VALUE_MAX) {
            name.truncate(LABEL_VALUE_MAX);
        }
        name
    }
}

/// Formats as `HTTPRoute/shop/cart`, `GatewayClass/yumen`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object whose specification is its only content.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SpecObject<S> {
    pub(crate) meta: ObjectMeta,
    pub(crate) spec: S,
}

impl<'de, S: Deserialize<'de> + Default> Deserialize<'de> for SpecObject<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct SpecMembers<S> {
            metadata: ObjectMeta,
            spec: S,
            status: Value,
        }
        let SpecMembers { metadata: mut meta, spec, status } = SpecMembers::<S>::deserialize(deserializer)?;
        let is_empty = status.is_null() || status.as_object().is_some_and(serde_json::Map::is_empty);
        meta.status = (!is_empty).then(|| status.to_string().into());
        Ok(SpecObject { meta, spec })
    }
}

/// A decoded object.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterObject {
    pub(crate) kind: ClusterKind,
    pub(crate) body: ObjectBody,
}

/// A lean type of an object.
pub(crate) trait LeanObject: Sized {
    /// The object as this type.
    fn of(body: &ObjectBody) -> Option<&Arc<Self>>;
}

macro_rules! object_bodies {
    ($($variant:ident($type:ty, $decode:ident)),+ $(,)?) => {
        /// The content of an object.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum ObjectBody {
            $($variant(Arc<$type>),)+
        }

        impl ObjectBody {
            pub(crate) fn meta(&self) -> &ObjectMeta {
                match self {
                    $(ObjectBody::$variant(object) => &object.meta,)+
                }
            }

            $(pub(super) fn $decode(json: &[u8]) -> serde_json::Result<ObjectBody> {
                serde_json::from_slice(json).map(|object: $type| ObjectBody::$variant(Arc::new(object)))
            })+
        }

        $(impl LeanObject for $type {
            fn of(body: &ObjectBody) -> Option<&Arc<Self>> {
                match body {
                    ObjectBody::$variant(object) => Some(object),
                    _ => None,
                }
            }
        })+
    };
}

object_bodies! {
    Definition(AppliedDefinitionObject, decode_definition),
    Namespace(NamespaceObject, decode_namespace),
    GatewayClass(GatewayClassObject, decode_gateway_class),
    Gateway(GatewayObject, decode_gateway),
    ListenerSet(ListenerSetObject, decode_listener_set),
    HttpRoute(HttpRouteObject, decode_http_route),
    GrpcRoute(GrpcRouteObject, decode_grpc_route),
    StreamRoute(StreamRouteObject, decode_stream_route),
    ReferenceGrant(ReferenceGrantObject, decode_grant),
    BackendTlsPolicy(BackendTlsPolicyObject, decode_backend_tls_policy),
    Service(ServiceObject, decode_service),
    EndpointSlice(EndpointSliceObject, decode_endpoint_slice),
    Secret(SecretObject, decode_secret),
    ConfigMap(ConfigMapObject, decode_config_map),
    Pod(PodObject, decode_pod),
    IngressClass(IngressClassObject, decode_ingress_class),
    Ingress(IngressObject, decode_ingress),
    PluginConfig(PluginConfigObject, decode_plugin_config),
    HttpRoutePolicy(HttpRoutePolicyObject, decode_http_route_policy),
    BackendTrafficPolicy(BackendTrafficPolicyObject, decode_traffic_policy),
    GatewayConsumer(GatewayConsumerObject, decode_gateway_consumer),
    GatewayProxy(GatewayProxyObject, decode_gateway_proxy),
    ApisixRoute(ApisixRouteObject, decode_apisix_route),
    ApisixUpstream(ApisixUpstreamObject, decode_apisix_upstream),
    ApisixTls(ApisixTlsObject, decode_apisix_tls),
    ApisixConsumer(ApisixConsumerObject, decode_apisix_consumer),
    ApisixPluginList(ApisixPluginListObject, decode_apisix_plugin_list),
}

impl ClusterObject {
    /// The metadata, with version and status as of the decoded text.
    pub fn meta(&self) -> &ObjectMeta {
        self.body.meta()
    }

    /// The identity.
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey { kind: self.kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
    }
}

/// A change of the objects of the API server.
#[derive(Debug, Clone)]
pub enum ClusterChange {
    /// An object was created or changed.
    Put(ClusterObject),
    /// An object was deleted, or a required one does not exist.
    Delete(ObjectKey),
    /// All objects of a kind, as a list has them. Those of the list that do not decode precede it in the same batch.
    Replace(ClusterKind, Vec<ClusterObject>),
    /// Whether the API server has the kind. The objects of a kind that it does not have are removed.
    Installed(ClusterKind, bool),
    /// An object whose text does not decode; its previous version stays in force.
    Undecodable(ObjectKey, String),
}
