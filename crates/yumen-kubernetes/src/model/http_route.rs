//! HTTPRoute.

use std::sync::Arc;

use serde::Deserialize;

use super::http_filters::HttpRouteFilter;
use super::references::{BackendReference, ParentReference};
use super::saturating;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRouteSpec {
    pub(crate) parent_refs: Box<[ParentReference]>,
    /// `All` or `None`; experimental.
    pub(crate) use_default_gateways: Option<Arc<str>>,
    pub(crate) hostnames: Box<[Arc<str>]>,
    pub(crate) rules: Box<[HttpRouteRule]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRouteRule {
    pub(crate) name: Option<Arc<str>>,
    /// Empty: every request.
    pub(crate) matches: Box<[HttpRouteMatch]>,
    pub(crate) filters: Box<[HttpRouteFilter]>,
    pub(crate) backend_refs: Box<[HttpBackendReference]>,
    pub(crate) timeouts: RouteTimeouts,
    /// Experimental.
    pub(crate) retry: Option<RouteRetryPolicy>,
    /// Experimental.
    pub(crate) session_persistence: Option<SessionPersistence>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRouteMatch {
    /// `Exact`, `PathPrefix` (the default) or `RegularExpression`; the value is `/` if absent.
    pub(crate) path: Option<TypedValue>,
    pub(crate) headers: Box<[TypedNameValue]>,
    pub(crate) query_params: Box<[TypedNameValue]>,
    pub(crate) method: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TypedValue {
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) value: Option<String>,
}

/// A condition on a header or a query parameter: `Exact` (the default) or `RegularExpression`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TypedNameValue {
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct HttpBackendReference {
    #[serde(flatten)]
    pub(crate) backend: BackendReference,
    pub(crate) filters: Box<[HttpRouteFilter]>,
}

/// Durations as GEP-2257 writes them; see [`parse_duration_ms`](super::parse_duration_ms).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RouteTimeouts {
    pub(crate) request: Option<String>,
    pub(crate) backend_request: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RouteRetryPolicy {
    pub(crate) codes: Box<[u16]>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) attempts: Option<u32>,
    pub(crate) backoff: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SessionPersistence {
    pub(crate) session_name: Option<String>,
    pub(crate) absolute_timeout: Option<String>,
    /// `Cookie`, the default, or `Header`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) cookie_config: Option<SessionCookieConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SessionCookieConfig {
    /// `Session`, the default, or `Permanent`.
    pub(crate) lifetime_type: Option<Arc<str>>,
}
