//! Ingress.

use std::sync::Arc;

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct IngressSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    pub(crate) default_backend: Option<IngressBackend>,
    pub(crate) tls: Vec<IngressTls>,
    pub(crate) rules: Vec<IngressRule>,
    /// Why the object does not decode as a whole; its paths are refused.
    #[serde(skip)]
    pub(crate) unreadable: Option<Arc<str>>,
}

/// Host names of a certificate. The name of the Secret may be absent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct IngressTls {
    pub(crate) hosts: Vec<Arc<str>>,
    pub(crate) secret_name: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressRule {
    pub(crate) host: Option<Arc<str>>,
    /// Without paths, the default backend has all of the host.
    pub(crate) http: Option<IngressPaths>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressPaths {
    pub(crate) paths: Vec<IngressPath>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct IngressPath {
    pub(crate) path: Option<Arc<str>>,
    pub(crate) path_type: Option<Arc<str>>,
    pub(crate) backend: IngressBackend,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressBackend {
    pub(crate) service: Option<IngressService>,
    /// A reference to another kind of backend, which no controller of ours follows.
    pub(crate) resource: Option<IngressResource>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressService {
    pub(crate) name: Arc<str>,
    pub(crate) port: IngressServicePort,
}

/// A port by number or name; the number counts if both are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct IngressServicePort {
    pub(crate) number: Option<u16>,
    pub(crate) name: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct IngressResource {
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
}
