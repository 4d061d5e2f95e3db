//! GatewayClass, Gateway and ListenerSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::meta::{LabelMap, LabelSelector};
use super::references::{ExtensionReference, ObjectReference, ParentReference};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayClassSpec {
    pub(crate) controller_name: Arc<str>,
    pub(crate) parameters_ref: Option<ObjectReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewaySpec {
    pub(crate) gateway_class_name: Arc<str>,
    pub(crate) listeners: Vec<GatewayListenerSpec>,
    pub(crate) addresses: Vec<GatewayAddressSpec>,
    pub(crate) infrastructure: GatewayInfrastructure,
    pub(crate) allowed_listeners: AllowedListeners,
    pub(crate) tls: GatewayTlsSpec,
    /// `All` or `None`; experimental.
    pub(crate) default_scope: Option<Arc<str>>,
}

/// A listener of a Gateway, or an entry of a ListenerSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayListenerSpec {
    pub(crate) name: Arc<str>,
    pub(crate) hostname: Option<Arc<str>>,
    pub(crate) port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, or one of another implementation.
    pub(crate) protocol: Arc<str>,
    pub(crate) tls: Option<ListenerTlsSpec>,
    pub(crate) allowed_routes: AllowedRoutes,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListenerTlsSpec {
    /// `Terminate`, the default, or `Passthrough`.
    pub(crate) mode: Option<Arc<str>>,
    pub(crate) certificate_refs: Vec<ObjectReference>,
    pub(crate) options: BTreeMap<Arc<str>, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AllowedRoutes {
    pub(crate) namespaces: NamespaceChoice,
    pub(crate) kinds: Vec<RouteKindSpec>,
}

/// Namespaces from which routes or ListenerSets may attach.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NamespaceChoice {
    /// `None`, `Same`, `All` or `Selector`; the default depends on the member.
    pub(crate) from: Option<Arc<str>>,
    pub(crate) selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RouteKindSpec {
    pub(crate) group: Option<Arc<str>>,
    pub(crate) kind: Arc<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayAddressSpec {
    /// `IPAddress`, the default, `Hostname`, `NamedAddress`, or a domain-prefixed name.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    /// Empty: any address of the type.
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayInfrastructure {
    pub(crate) labels: LabelMap,
    pub(crate) annotations: LabelMap,
    pub(crate) parameters_ref: Option<ExtensionReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AllowedListeners {
    pub(crate) namespaces: NamespaceChoice,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayTlsSpec {
    pub(crate) backend: GatewayBackendTls,
    pub(crate) frontend: GatewayFrontendTls,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayBackendTls {
    pub(crate) client_certificate_ref: Option<ObjectReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayFrontendTls {
    pub(crate) default: FrontendTlsSpec,
    pub(crate) per_port: Vec<PortTlsSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FrontendTlsSpec {
    pub(crate) validation: Option<FrontendValidationSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PortTlsSpec {
    pub(crate) port: u16,
    pub(crate) tls: FrontendTlsSpec,
}

/// Validation of client certificates.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FrontendValidationSpec {
    #[serde(rename = "caCertificateRefs")]
    pub(crate) ca_certificate_refs: Vec<ObjectReference>,
    /// `AllowValidOnly`, the default, or `AllowInsecureFallback`.
    pub(crate) mode: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListenerSetSpec {
    pub(crate) parent_ref: ParentReference,
    pub(crate) listeners: Vec<GatewayListenerSpec>,
}
