//! TLSRoute, TCPRoute and UDPRoute, which have one form.

use std::sync::Arc;

use serde::Deserialize;

use super::references::{BackendReference, ParentReference};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StreamRouteSpecification {
    pub(crate) parent_refs: Box<[ParentReference]>,
    /// `All` or `None`; experimental.
    pub(crate) use_default_gateways: Option<Arc<str>>,
    /// TLSRoute only.
    pub(crate) hostnames: Box<[Arc<str>]>,
    /// The API allows one rule.
    pub(crate) rules: Box<[StreamRouteRule]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StreamRouteRule {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) backend_refs: Box<[BackendReference]>,
}
