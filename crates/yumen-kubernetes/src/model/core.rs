//! Objects of Kubernetes itself: Services, their endpoints, Secrets, ConfigMaps, namespaces, pods.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

use super::meta::{LabelMap, ObjectMeta};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    pub(crate) spec: ServiceSpecification,
    /// Where the Service is reachable, for Services of Gateways.
    pub(crate) status: LoadBalancedServiceStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceSpecification {
    /// `ClusterIP`, the default, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    #[serde(rename = "clusterIPs")]
    pub(crate) cluster_ips: Box<[Arc<str>]>,
    pub(crate) ports: Box<[ServicePortSpec]>,
    #[serde(rename = "externalName")]
    pub(crate) external_name: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServicePortSpec {
    pub(crate) name: Arc<str>,
    /// `TCP`, the default, `UDP` or `SCTP`.
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) app_protocol: Option<Arc<str>>,
    pub(crate) port: u16,
    pub(crate) target_port: Option<PortNumberOrName>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum PortNumberOrName {
    Number(u16),
    Name(Arc<str>),
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LoadBalancedServiceStatus {
    pub(crate) load_balancer: LoadBalancerStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancerStatus {
    pub(crate) ingress: Box<[LoadBalancerAddress]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancerAddress {
    pub(crate) ip: Option<Arc<str>>,
    pub(crate) hostname: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointSliceObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub(crate) address_type: Arc<str>,
    pub(crate) ports: Box<[SlicePort]>,
    pub(crate) endpoints: Box<[SliceEndpoint]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SlicePort {
    /// Name of the port of the Service.
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SliceEndpoint {
    pub(crate) addresses: Box<[Arc<str>]>,
    pub(crate) conditions: EndpointConditions,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) hints: EndpointHints,
}

/// States of an endpoint. An absent `ready` counts as true, an absent `serving` as `ready`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConditions {
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointHints {
    pub(crate) for_zones: Box<[ZoneHint]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ZoneHint {
    pub(crate) name: Arc<str>,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SecretObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    /// Decoded values; an entry that is not base64 is left out.
    #[serde(deserialize_with = "decoded")]
    pub(crate) data: SecretData,
}

type SecretData = BTreeMap<Arc<str>, Arc<[u8]>>;

/// Leaves the values out: they are keys and passwords.
impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretObject")
            .field("meta", &self.meta)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl SecretObject {
    /// The entry `key` as text, if it is UTF-8.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretData, D::Error> {
    let encoded: BTreeMap<Arc<str>, String> = BTreeMap::deserialize(deserializer)?;
    let decode = |(key, text): (Arc<str>, String)| Some((key, STANDARD.decode(text).ok()?.into()));
    Ok(encoded.into_iter().filter_map(decode).collect())
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigMapObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    pub(crate) data: LabelMap,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
}

/// A custom resource definition, of which the annotations name the version of the bundle.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct AppliedDefinitionObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodObject {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    pub(crate) spec: PodPlacement,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodPlacement {
    pub(crate) node_name: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Box<[PodAddress]>,
    #[serde(deserialize_with = "ready_only")]
    pub(crate) conditions: Box<[PodCondition]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodAddress {
    pub(crate) ip: Arc<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) kind: Arc<str>,
    pub(crate) status: Arc<str>,
}

/// Keeps the condition that decides on endpoints; the others change without an effect.
fn ready_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[PodCondition]>, D::Error> {
    let all: Vec<PodCondition> = Vec::deserialize(deserializer)?;
    Ok(all.into_iter().filter(|condition| &*condition.kind == "Ready").collect())
}

impl PodObject {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| &*condition.status == "True")
    }
}
