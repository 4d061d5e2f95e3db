//! IngressClass.

use std::sync::Arc;

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressClassSpec {
    pub(crate) controller: Arc<str>,
    pub(crate) parameters: Option<IngressClassParameters>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct IngressClassParameters {
    pub(crate) api_group: Option<Arc<str>>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
}
