//! Filters of HTTPRoute and GRPCRoute rules and backends.

use std::sync::Arc;

use serde::Deserialize;

use super::references::{BackendReference, ExtensionReference};
use super::saturating;

/// A filter of an HTTPRoute; `kind` names the one member that is set.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRouteFilter {
    /// `RequestHeaderModifier`, `ResponseHeaderModifier`, `RequestMirror`, `RequestRedirect`, `URLRewrite`, `CORS`,
    /// `ExternalAuth`, `ExtensionRef`, or one of a newer version.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) request_header_modifier: Option<HeaderModifier>,
    pub(crate) response_header_modifier: Option<HeaderModifier>,
    pub(crate) request_mirror: Option<MirrorFilter>,
    pub(crate) request_redirect: Option<HttpRedirectFilter>,
    pub(crate) url_rewrite: Option<HttpRewriteFilter>,
    pub(crate) cors: Option<HttpCorsFilter>,
    pub(crate) external_auth: Option<HttpExternalAuthFilter>,
    pub(crate) extension_ref: Option<ExtensionReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NamedValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct HeaderModifier {
    pub(crate) set: Box<[NamedValue]>,
    pub(crate) add: Box<[NamedValue]>,
    pub(crate) remove: Box<[String]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpPathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) replace_full_path: Option<String>,
    pub(crate) replace_prefix_match: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRedirectFilter {
    pub(crate) scheme: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<HttpPathModifier>,
    pub(crate) port: Option<u16>,
    pub(crate) status_code: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRewriteFilter {
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<HttpPathModifier>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MirrorFilter {
    pub(crate) backend_ref: BackendReference,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) percent: Option<u32>,
    pub(crate) fraction: Option<MirrorFraction>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MirrorFraction {
    #[serde(deserialize_with = "saturating::count")]
    pub(crate) numerator: u32,
    /// 100 if absent.
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) denominator: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpCorsFilter {
    pub(crate) allow_origins: Box<[String]>,
    pub(crate) allow_credentials: Option<bool>,
    pub(crate) allow_methods: Box<[String]>,
    pub(crate) allow_headers: Box<[String]>,
    pub(crate) expose_headers: Box<[String]>,
    /// Seconds; 5 if absent.
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) max_age: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpExternalAuthFilter {
    /// `HTTP` or `GRPC`.
    pub(crate) protocol: Arc<str>,
    pub(crate) backend_ref: BackendReference,
    pub(crate) http: Option<HttpAuthService>,
    pub(crate) grpc: Option<GrpcAuthService>,
    pub(crate) forward_body: Option<ForwardedBodyBound>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpAuthService {
    pub(crate) path: String,
    pub(crate) allowed_headers: Box<[String]>,
    pub(crate) allowed_response_headers: Box<[String]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GrpcAuthService {
    pub(crate) allowed_headers: Box<[String]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ForwardedBodyBound {
    /// Bytes.
    #[serde(deserialize_with = "saturating::count")]
    pub(crate) max_size: u32,
}
