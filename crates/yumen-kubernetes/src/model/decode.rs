//! Decoding of objects as the API server writes them.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::kind::ClusterKind;
use super::object::{ClusterObject, ObjectBody, ObjectKey};

/// An object that does not decode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {message}", .key.as_ref().map_or_else(|| "object without a name".to_owned(), ToString::to_string))]
pub struct DecodeError {
    /// The object, if its metadata is readable.
    pub key: Option<ObjectKey>,
    /// The reason.
    pub message: String,
}

/// Decodes one object of `kind` from its JSON text.
///
/// # Errors
///
/// A text that is not JSON, a member of another type than the API has, or an object without a name.
pub fn decode(kind: ClusterKind, json: &[u8]) -> Result<ClusterObject, DecodeError> {
    // Lists and maps may be null instead of absent. A text without the word needs no second form.
    let body = if json.windows(4).any(|four| four == b"null") {
        without_nulls(json).and_then(|text| decode_body(kind, &text))
    } else {
        decode_body(kind, json)
    };
    let body = body.map_err(|error| DecodeError { key: key_of(kind, json), message: error.to_string() })?;
    let object = ClusterObject { kind, body };
    if object.meta().name.is_empty() {
        return Err(DecodeError { key: None, message: format!("{kind} without metadata.name") });
    }
    Ok(object)
}

fn decode_body(kind: ClusterKind, json: &[u8]) -> serde_json::Result<ObjectBody> {
    match kind {
        ClusterKind::CustomResourceDefinition => ObjectBody::decode_definition(json),
        ClusterKind::Namespace => ObjectBody::decode_namespace(json),
        ClusterKind::GatewayClass => ObjectBody::decode_gateway_class(json),
        ClusterKind::Gateway => ObjectBody::decode_gateway(json),
        ClusterKind::ListenerSet => ObjectBody::decode_listener_set(json),
        ClusterKind::HttpRoute => ObjectBody::decode_http_route(json),
        ClusterKind::GrpcRoute => ObjectBody::decode_grpc_route(json),
        ClusterKind::TlsRoute | ClusterKind::TcpRoute | ClusterKind::UdpRoute => {
            ObjectBody::decode_stream_route(json)
        }
        ClusterKind::ReferenceGrant => ObjectBody::decode_grant(json),
        ClusterKind::BackendTlsPolicy => ObjectBody::decode_backend_tls_policy(json),
        ClusterKind::Service => ObjectBody::decode_service(json),
        ClusterKind::EndpointSlice => ObjectBody::decode_endpoint_slice(json),
        ClusterKind::Secret => ObjectBody::decode_secret(json),
        ClusterKind::ConfigMap => ObjectBody::decode_config_map(json),
        ClusterKind::Pod => ObjectBody::decode_pod(json),
        ClusterKind::IngressClass => ObjectBody::decode_ingress_class(json),
        ClusterKind::Ingress => ObjectBody::decode_ingress(json),
        ClusterKind::PluginConfig => ObjectBody::decode_plugin_config(json),
        ClusterKind::HttpRoutePolicy => ObjectBody::decode_http_route_policy(json),
        ClusterKind::BackendTrafficPolicy => ObjectBody::decode_traffic_policy(json),
        ClusterKind::GatewayConsumer => ObjectBody::decode_gateway_consumer(json),
        ClusterKind::GatewayProxy => ObjectBody::decode_gateway_proxy(json),
        ClusterKind::ApisixRoute => ObjectBody::decode_apisix_route(json),
        ClusterKind::ApisixUpstream => ObjectBody::decode_apisix_upstream(json),
        ClusterKind::ApisixTls => ObjectBody::decode_apisix_tls(json),
        ClusterKind::ApisixConsumer => ObjectBody::decode_apisix_consumer(json),
        ClusterKind::ApisixPluginConfig | ClusterKind::ApisixGlobalRule => {
            ObjectBody::decode_apisix_plugin_list(json)
        }
    }
}

fn without_nulls(json: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(json)?;
    remove_nulls(&mut value);
    serde_json::to_vec(&value)
}

/// `serde_json` bounds the depth of a text at 128, so the recursion is bounded too.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn key_of(kind: ClusterKind, json: &[u8]) -> Option<ObjectKey> {
    #[derive(Deserialize)]
    struct NamedObject {
        metadata: ObjectName,
    }
    #[derive(Deserialize)]
    struct ObjectName {
        name: String,
        #[serde(default)]
        namespace: String,
    }
    let NamedObject { metadata } = serde_json::from_slice(json).ok()?;
    Some(ObjectKey::new(kind, &metadata.namespace, &metadata.name))
}
