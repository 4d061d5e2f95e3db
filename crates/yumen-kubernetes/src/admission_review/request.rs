//! The request of an `AdmissionReview`.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{API_VERSION, KIND};
use crate::model::{ClusterKind, ClusterObject, decode};

/// The creation time of an object that is being created: later than that of all others, so that it takes no place of
/// an object of the same second.
const LAST: &str = "9999-12-31T23:59:59Z";

/// A body that is no review.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ReviewDefect {
    message: String,
}

impl ReviewDefect {
    fn new(message: impl Into<String>) -> ReviewDefect {
        ReviewDefect { message: message.into() }
    }
}

/// A question of the API server.
#[derive(Debug)]
pub struct AdmissionQuestion {
    /// The id that the answer repeats.
    pub uid: Box<str>,
    /// The object.
    pub subject: ReviewSubject,
}

/// The subject of a review.
#[derive(Debug)]
pub enum ReviewSubject {
    /// Nothing that changes the configuration: a deletion, a status, a finalizer, an object of another kind.
    Exempt,
    /// An object that does not decode, with the reason.
    Undecodable(String),
    /// A new or changed object.
    Object(Box<ReviewedObject>),
}

/// A new or changed object.
#[derive(Debug)]
pub struct ReviewedObject {
    /// The object as it would be stored.
    pub object: ClusterObject,
    /// Whether the object is being created.
    pub is_new: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenReview {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<WrittenRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRequest {
    uid: Box<str>,
    kind: WrittenKind,
    #[serde(default)]
    sub_resource: String,
    operation: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Deserialize)]
struct WrittenKind {
    #[serde(default)]
    group: String,
    kind: String,
}

/// Reads the body of a request.
///
/// # Errors
///
/// The body is no `AdmissionReview` of `admission.k8s.io/v1` with a request.
pub fn read_review(body: &[u8]) -> Result<AdmissionQuestion, ReviewDefect> {
    let review: WrittenReview = serde_json::from_slice(body)
        .map_err(|error| ReviewDefect::new(format!("the body is no AdmissionReview: {error}")))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        let found = format!("{:?} of {:?}", review.kind, review.api_version);
        let hint = "write v1 in admissionReviewVersions of the webhook";
        return Err(ReviewDefect::new(format!(
            "expected kind {KIND:?} of {API_VERSION:?}, found kind {found}; {hint}"
        )));
    }
    let mut request =
        review.request.ok_or_else(|| ReviewDefect::new("the AdmissionReview has no request"))?;
    let is_change = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let kind = reviewed_kind(&request.kind);
    let kind = kind.filter(|_| is_change && request.sub_resource.is_empty() && !is_equal(&request));
    let object = std::mem::take(&mut request.object);
    let subject = kind.map_or(Ok(ReviewSubject::Exempt), |kind| subject(kind, object, &request))?;
    Ok(AdmissionQuestion { uid: request.uid, subject })
}

/// The kind of an object that the translation turns into configuration.
fn reviewed_kind(written: &WrittenKind) -> Option<ClusterKind> {
    let kind = ClusterKind::all().find(|kind| {
        let api = kind.api();
        api.name == written.kind && api.group == written.group
    })?;
    let is_reviewed = match kind {
        ClusterKind::Gateway
        | ClusterKind::ListenerSet
        | ClusterKind::HttpRoute
        | ClusterKind::GrpcRoute
        | ClusterKind::TlsRoute
        | ClusterKind::TcpRoute
        | ClusterKind::UdpRoute
        | ClusterKind::BackendTlsPolicy
        | ClusterKind::Ingress
        | ClusterKind::PluginConfig
        | ClusterKind::HttpRoutePolicy
        | ClusterKind::BackendTrafficPolicy
        | ClusterKind::GatewayConsumer
        | ClusterKind::ApisixRoute
        | ClusterKind::ApisixUpstream
        | ClusterKind::ApisixTls
        | ClusterKind::ApisixConsumer
        | ClusterKind::ApisixPluginConfig
        | ClusterKind::ApisixGlobalRule => true,
        ClusterKind::CustomResourceDefinition
        | ClusterKind::Namespace
        | ClusterKind::GatewayClass
        | ClusterKind::ReferenceGrant
        | ClusterKind::Service
        | ClusterKind::EndpointSlice
        | ClusterKind::Secret
        | ClusterKind::ConfigMap
        | ClusterKind::Pod
        | ClusterKind::IngressClass
        | ClusterKind::GatewayProxy => false,
    };
    is_reviewed.then_some(kind)
}

/// Whether an update leaves specification and annotations as they are, or belongs to a deletion. Such updates must
/// pass: an object that was stored before the webhook existed could lose no finalizer otherwise.
fn is_equal(request: &WrittenRequest) -> bool {
    let (new, old) = (&request.object, &request.old_object);
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return true;
    }
    request.operation == "UPDATE"
        && new["spec"] == old["spec"]
        && new["metadata"]["annotations"] == old["metadata"]["annotations"]
}

fn subject(
    kind: ClusterKind,
    mut object: Value,
    request: &WrittenRequest,
) -> Result<ReviewSubject, ReviewDefect> {
    let is_new = request.operation == "CREATE";
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err(ReviewDefect::new("request.object has no metadata"));
    };
    let is_nameless = metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    if let Some(prefix) = metadata.get("generateName").cloned().filter(|_| is_nameless) {
        metadata.insert("name".to_owned(), prefix);
    }
    if !metadata.contains_key("namespace") && !request.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), request.namespace.as_str().into());
    }
    if is_new {
        metadata.insert("creationTimestamp".to_owned(), LAST.into());
    }
    Ok(match decode(kind, object.to_string().as_bytes()) {
        Ok(object) => ReviewSubject::Object(Box::new(ReviewedObject { object, is_new })),
        Err(error) => ReviewSubject::Undecodable(format!("the {kind} does not decode: {}", error.message)),
    })
}
