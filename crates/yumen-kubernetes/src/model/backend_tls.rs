//! BackendTLSPolicy.

use std::sync::Arc;

use serde::Deserialize;

use super::kind::ClusterKind;
use super::references::ExtensionReference;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackendTlsPolicySpec {
    pub(crate) target_refs: Vec<PolicyTargetReference>,
    pub(crate) validation: BackendTlsValidation,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PolicyTargetReference {
    pub(crate) group: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Name of a port of the Service.
    pub(crate) section_name: Option<Arc<str>>,
}

impl PolicyTargetReference {
    /// Whether the target is a Service; a policy of APISIX may leave the kind out.
    pub(crate) fn is_service(&self) -> bool {
        self.group.is_empty() && matches!(&*self.kind, "Service" | "")
    }

    pub(crate) fn is_http_route(&self) -> bool {
        ClusterKind::find(&self.group, &self.kind) == Some(ClusterKind::HttpRoute)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackendTlsValidation {
    #[serde(rename = "caCertificateRefs")]
    pub(crate) ca_certificate_refs: Vec<ExtensionReference>,
    /// `System`.
    #[serde(rename = "wellKnownCACertificates")]
    pub(crate) well_known_ca_certificates: Option<Arc<str>>,
    pub(crate) hostname: Arc<str>,
    pub(crate) subject_alt_names: Vec<SubjectAltName>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) hostname: Option<String>,
    pub(crate) uri: Option<String>,
}
