//! GRPCRoute.

use std::sync::Arc;

use serde::Deserialize;

use super::http_filters::{HeaderModifier, MirrorFilter};
use super::http_route::{SessionPersistence, TypedNameValue};
use super::references::{BackendReference, ExtensionReference, ParentReference};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GrpcRouteSpec {
    pub(crate) parent_refs: Box<[ParentReference]>,
    /// `All` or `None`; experimental.
    pub(crate) use_default_gateways: Option<Arc<str>>,
    pub(crate) hostnames: Box<[Arc<str>]>,
    pub(crate) rules: Box<[GrpcRouteRule]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GrpcRouteRule {
    pub(crate) name: Option<Arc<str>>,
    /// Empty: every call.
    pub(crate) matches: Box<[GrpcRouteMatch]>,
    pub(crate) filters: Box<[GrpcRouteFilter]>,
    pub(crate) backend_refs: Box<[GrpcBackendReference]>,
    /// Experimental.
    pub(crate) session_persistence: Option<SessionPersistence>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GrpcRouteMatch {
    pub(crate) method: Option<GrpcMethodMatch>,
    pub(crate) headers: Box<[TypedNameValue]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GrpcMethodMatch {
    /// `Exact`, the default, or `RegularExpression`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) service: Option<String>,
    pub(crate) method: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GrpcRouteFilter {
    /// `RequestHeaderModifier`, `ResponseHeaderModifier`, `RequestMirror`, `ExtensionRef`.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) request_header_modifier: Option<HeaderModifier>,
    pub(crate) response_header_modifier: Option<HeaderModifier>,
    pub(crate) request_mirror: Option<MirrorFilter>,
    pub(crate) extension_ref: Option<ExtensionReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GrpcBackendReference {
    #[serde(flatten)]
    pub(crate) backend: BackendReference,
    pub(crate) filters: Box<[GrpcRouteFilter]>,
}
