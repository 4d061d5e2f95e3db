//! Parts that several kinds of `apisix.apache.org` have: plugins, settings of upstreams, health checks.

use std::sync::Arc;

use super::saturating;
use serde::Deserialize;
use serde_json::Value;

/// A plugin of a list.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListedPlugin {
    pub(crate) name: Arc<str>,
    /// Absent means true, but in a GatewayProxy, which writes it `enabled`, false.
    #[serde(alias = "enabled")]
    pub(crate) enable: Option<bool>,
    pub(crate) config: Option<Value>,
    /// Name of a Secret whose entries join the settings.
    pub(crate) secret_ref: Option<Arc<str>>,
}

/// A Secret by name; the namespace of the referring object if it names none.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SecretName {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
}

impl SecretName {
    /// The namespace, or `own` if the reference names none.
    pub(crate) fn namespace_or<'r>(&'r self, own: &'r Arc<str>) -> &'r Arc<str> {
        self.namespace.as_ref().filter(|namespace| !namespace.is_empty()).unwrap_or(own)
    }
}

/// Settings of an upstream in ApisixUpstreams and BackendTrafficPolicies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct UpstreamSettings {
    #[serde(rename = "loadbalancer")]
    pub(crate) load_balancer: Option<LoadBalancerSettings>,
    pub(crate) scheme: Option<String>,
    pub(crate) retries: Option<i64>,
    pub(crate) timeout: Option<TimeoutSettings>,
    pub(crate) health_check: Option<HealthCheckSettings>,
    pub(crate) pass_host: Option<String>,
    pub(crate) upstream_host: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LoadBalancerSettings {
    /// `roundrobin`, `chash`, `ewma` or `least_conn`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) hash_on: Option<String>,
    pub(crate) key: Option<String>,
}

/// Durations as Go writes them; see [`parse_go_duration_s`](super::parse_go_duration_s).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TimeoutSettings {
    pub(crate) connect: Option<String>,
    pub(crate) send: Option<String>,
    pub(crate) read: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct HealthCheckSettings {
    pub(crate) active: Option<ActiveProbeSettings>,
    pub(crate) passive: Option<PassiveProbeSettings>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ActiveProbeSettings {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// A duration; a number has nanoseconds.
    pub(crate) timeout: Option<Value>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) concurrency: Option<u32>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) http_path: Option<String>,
    #[serde(rename = "strictTLS")]
    pub(crate) strict_tls: Option<bool>,
    pub(crate) request_headers: Vec<String>,
    pub(crate) healthy: Option<ProbeThresholds>,
    pub(crate) unhealthy: Option<ProbeThresholds>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PassiveProbeSettings {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) healthy: Option<ProbeThresholds>,
    pub(crate) unhealthy: Option<ProbeThresholds>,
}

/// Counts after which an endpoint changes its state; `healthy` has `successes`, `unhealthy` the others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ProbeThresholds {
    pub(crate) http_codes: Vec<u16>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) successes: Option<u32>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) http_failures: Option<u32>,
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) tcp_failures: Option<u32>,
    /// ApisixUpstream writes it `timeout`.
    #[serde(alias = "timeout")]
    #[serde(deserialize_with = "saturating::optional_count")]
    pub(crate) timeouts: Option<u32>,
    pub(crate) interval: Option<String>,
}
