//! The kinds of `apisix.apache.org/v2`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::apisix_shared::{ListedPlugin, SecretName, TimeoutSettings, UpstreamSettings};
use super::core::PortNumberOrName;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixRouteSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    pub(crate) http: Vec<ApisixHttpRule>,
    pub(crate) stream: Vec<ApisixStreamRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixHttpRule {
    pub(crate) name: String,
    pub(crate) priority: i64,
    pub(crate) timeout: Option<TimeoutSettings>,
    #[serde(rename = "match")]
    pub(crate) matching: ApisixHttpMatch,
    pub(crate) backends: Vec<ApisixBackend>,
    pub(crate) upstreams: Vec<ApisixUpstreamReference>,
    pub(crate) websocket: Option<bool>,
    pub(crate) plugin_config_name: Option<Arc<str>>,
    pub(crate) plugin_config_namespace: Option<Arc<str>>,
    pub(crate) plugins: Vec<ListedPlugin>,
    pub(crate) authentication: ApisixAuthentication,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixHttpMatch {
    pub(crate) paths: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) remote_addrs: Vec<String>,
    pub(crate) exprs: Vec<ApisixExpression>,
    #[serde(rename = "filter_func")]
    pub(crate) filter_func: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixExpression {
    pub(crate) subject: ApisixSubject,
    pub(crate) op: String,
    pub(crate) set: Option<Vec<String>>,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixSubject {
    /// `Query`, `Header`, `Path`, `Cookie`, `Variable` or `Body`.
    pub(crate) scope: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixBackend {
    pub(crate) service_name: Arc<str>,
    pub(crate) service_port: Option<PortNumberOrName>,
    /// `endpoint`, the default, or `service`.
    pub(crate) resolve_granularity: Option<Arc<str>>,
    pub(crate) weight: Option<i64>,
    pub(crate) subset: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixUpstreamReference {
    pub(crate) name: Arc<str>,
    pub(crate) weight: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixAuthentication {
    pub(crate) enable: bool,
    /// `basicAuth`, the default, `keyAuth`, `jwtAuth`, `hmacAuth`, `ldapAuth` or `wolfRBAC`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Settings of the plugin, as the plugin has them.
    pub(crate) key_auth: Option<Value>,
    pub(crate) jwt_auth: Option<Value>,
    pub(crate) ldap_auth: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixStreamRule {
    pub(crate) name: String,
    /// `TCP` or `UDP`.
    pub(crate) protocol: String,
    #[serde(rename = "match")]
    pub(crate) matching: ApisixStreamMatch,
    pub(crate) backend: ApisixBackend,
    pub(crate) plugins: Vec<ListedPlugin>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixStreamMatch {
    pub(crate) ingress_port: u16,
    pub(crate) host: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixUpstreamSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    pub(crate) external_nodes: Vec<ApisixExternalNode>,
    #[serde(flatten)]
    pub(crate) config: ApisixUpstreamConfig,
    pub(crate) port_level_settings: Vec<ApisixPortSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixUpstreamConfig {
    #[serde(flatten)]
    pub(crate) settings: UpstreamSettings,
    pub(crate) tls_secret: Option<SecretName>,
    pub(crate) discovery: Option<ApisixDiscovery>,
    pub(crate) subsets: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixPortSettings {
    #[serde(flatten)]
    pub(crate) config: ApisixUpstreamConfig,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixDiscovery {
    pub(crate) service_name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) args: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixExternalNode {
    pub(crate) name: Arc<str>,
    /// `Domain` or `Service`, the default: a Service of type ExternalName.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) weight: Option<i64>,
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixTlsSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    pub(crate) hosts: Vec<String>,
    pub(crate) secret: SecretName,
    pub(crate) client: Option<ApisixTlsClient>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ApisixTlsClient {
    #[serde(rename = "caSecret")]
    pub(crate) ca_secret: SecretName,
    pub(crate) depth: Option<u8>,
    pub(crate) skip_mtls_uri_regex: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixConsumerSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    /// By method of authentication, such as `keyAuth`.
    pub(crate) auth_parameter: BTreeMap<Arc<str>, ApisixAuthParameter>,
    pub(crate) plugins: Vec<ListedPlugin>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixAuthParameter {
    pub(crate) value: Option<Value>,
    pub(crate) secret_ref: Option<SecretName>,
}

/// ApisixPluginConfig and ApisixGlobalRule.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApisixPluginListSpec {
    pub(crate) ingress_class_name: Option<Arc<str>>,
    pub(crate) plugins: Vec<ListedPlugin>,
}
