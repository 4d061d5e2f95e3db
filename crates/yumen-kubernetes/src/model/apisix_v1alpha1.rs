//! The kinds of `apisix.apache.org/v1alpha1`, which extend the Gateway API.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::apisix_shared::{ListedPlugin, SecretName, UpstreamSettings};
use super::backend_tls::PolicyTargetReference;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PluginConfigSpec {
    pub(crate) plugins: Vec<ListedPlugin>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpRoutePolicySpec {
    /// `section_name` is the name of a rule.
    pub(crate) target_refs: Vec<PolicyTargetReference>,
    pub(crate) priority: Option<i64>,
    pub(crate) vars: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackendTrafficPolicySpec {
    /// `section_name` is the name of a port.
    pub(crate) target_refs: Vec<PolicyTargetReference>,
    #[serde(flatten)]
    pub(crate) settings: UpstreamSettings,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayConsumerSpec {
    pub(crate) gateway_ref: ConsumerGatewayReference,
    pub(crate) credentials: Vec<ConsumerCredential>,
    pub(crate) plugins: Vec<ListedPlugin>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ConsumerGatewayReference {
    pub(crate) group: Option<Arc<str>>,
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ConsumerCredential {
    /// Name of a plugin, such as `key-auth`.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) config: Option<Value>,
    pub(crate) secret_ref: Option<SecretName>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayProxySpec {
    /// `namespace/name` of the Service whose addresses Gateways show.
    pub(crate) publish_service: Option<Arc<str>>,
    pub(crate) status_address: Vec<Arc<str>>,
    pub(crate) plugins: Vec<ListedPlugin>,
    pub(crate) plugin_metadata: BTreeMap<Arc<str>, Value>,
}
