//! Settings of service discovery, in the form of APISIX.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// Sources of endpoints for upstreams with a `service_name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryConfig {
    /// How long endpoints stay in use after their source returned none, in milliseconds; an empty result is
    /// more often an error than intended.
    pub empty_hold_ms: u64,
    /// `discovery_type: dns`.
    pub dns: DnsDiscovery,
    /// `discovery_type: consul`: services with passing checks.
    pub consul: ConsulDiscovery,
    /// `discovery_type: consul_kv`: endpoints as keys below a prefix.
    pub consul_kv: ConsulKvDiscovery,
    /// `discovery_type: nacos`: its HTTP API, version 1.
    pub nacos: NacosDiscovery,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        DiscoveryConfig {
            empty_hold_ms: 30_000,
            dns: DnsDiscovery::default(),
            consul: ConsulDiscovery::default(),
            consul_kv: ConsulKvDiscovery::default(),
            nacos: NacosDiscovery::default(),
        }
    }
}

/// Endpoints from DNS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsDiscovery {
    /// Name servers, such as `127.0.0.1:8600`; empty means those of `dns`. Timeouts and limits are those of
    /// `dns` too.
    pub servers: Vec<String>,
    /// Record types in the order of lookup; the first type that exists is used.
    #[schemars(length(min = 1))]
    pub order: Vec<DnsRecord>,
}

impl Default for DnsDiscovery {
    fn default() -> Self {
        DnsDiscovery { servers: Vec::new(), order: vec![DnsRecord::Srv, DnsRecord::A, DnsRecord::Aaaa] }
    }
}

/// A DNS record type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DnsRecord {
    /// Host, port, weight and priority.
    Srv,
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
    /// Followed by every lookup; accepted for compatibility with APISIX.
    Cname,
    /// Accepted for compatibility with APISIX.
    #[serde(rename = "last")]
    Last,
}

/// Endpoints from the Consul catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulDiscovery {
    /// Agents, such as `http://127.0.0.1:8500`; the next one is queried if one fails. Empty disables this
    /// source.
    pub servers: Vec<String>,
    /// The ACL token.
    pub token: SecretText,
    /// The datacenter to query; empty means the agent's own. `discovery_args.datacenter` takes precedence.
    pub datacenter: String,
    /// Timeouts.
    pub timeout: ConsulTimeout,
    /// The weight of endpoints without a weight in Consul.
    #[schemars(range(min = 1))]
    pub weight: u32,
}

impl Default for ConsulDiscovery {
    fn default() -> Self {
        ConsulDiscovery {
            servers: Vec::new(),
            token: SecretText(String::new()),
            datacenter: String::new(),
            timeout: ConsulTimeout::default(),
            weight: 1,
        }
    }
}

/// Endpoints from Consul keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulKvDiscovery {
    /// Agents, as in `consul`; empty disables this source.
    pub servers: Vec<String>,
    /// The ACL token.
    pub token: SecretText,
    /// Keys are `prefix/service/host:port`, values a weight or an object with `weight`.
    #[schemars(length(min = 1))]
    pub prefix: String,
    /// Timeouts.
    pub timeout: ConsulTimeout,
    /// The weight of endpoints without a weight in their value.
    #[schemars(range(min = 1))]
    pub weight: u32,
}

impl Default for ConsulKvDiscovery {
    fn default() -> Self {
        ConsulKvDiscovery {
            servers: Vec::new(),
            token: SecretText(String::new()),
            prefix: "upstreams".into(),
            timeout: ConsulTimeout::default(),
            weight: 1,
        }
    }
}

/// Timeouts of Consul.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulTimeout {
    /// For connecting, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect: u64,
    /// For a response beyond `wait`, in milliseconds.
    #[schemars(range(min = 1))]
    pub read: u64,
    /// How long Consul holds a blocking query while nothing changes, in seconds.
    #[schemars(range(min = 1, max = 600))]
    pub wait: u64,
}

impl Default for ConsulTimeout {
    fn default() -> Self {
        ConsulTimeout { connect: 2000, read: 2000, wait: 60 }
    }
}

/// Endpoints from Nacos.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NacosDiscovery {
    /// Servers, such as `http://user:password@127.0.0.1:8848`; the next one is queried if one fails. Empty
    /// disables this source.
    pub host: Vec<SecretText>,
    /// Path prefix of the API.
    pub prefix: String,
    /// Interval between queries, in seconds.
    #[schemars(range(min = 1))]
    pub fetch_interval: u64,
    /// The weight of an endpoint with weight 1 in Nacos.
    #[schemars(range(min = 1, max = 1000000))]
    pub weight: u32,
    /// Timeouts.
    pub timeout: NacosTimeout,
}

impl Default for NacosDiscovery {
    fn default() -> Self {
        NacosDiscovery {
            host: Vec::new(),
            prefix: "/nacos/v1/".into(),
            fetch_interval: 5,
            weight: 100,
            timeout: NacosTimeout::default(),
        }
    }
}

/// Timeouts of Nacos.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NacosTimeout {
    /// For connecting, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect: u64,
    /// For sending the query and receiving the response, in milliseconds.
    #[schemars(range(min = 1))]
    pub read: u64,
}

impl Default for NacosTimeout {
    fn default() -> Self {
        NacosTimeout { connect: 2000, read: 5000 }
    }
}

impl DiscoveryConfig {
    /// Servers must be HTTP URLs.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        let mut all = Vec::new();
        let consuls = [("consul", &self.consul.servers), ("consul_kv", &self.consul_kv.servers)];
        for (name, servers) in consuls {
            let servers = servers.iter().enumerate();
            all.extend(servers.map(|(i, url)| (format!("discovery.{name}.servers[{i}]"), url)));
        }
        let hosts = self.nacos.host.iter().enumerate();
        all.extend(hosts.map(|(i, host)| (format!("discovery.nacos.host[{i}]"), &host.0)));
        for (path, url) in all {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if rest.is_none_or(|rest| rest.trim_end_matches('/').is_empty()) {
                // The value may contain a password, so the message does not quote it.
                let found = "not a URL of an HTTP server";
                problems.push(problem(&path, found).hint("such as http://127.0.0.1:8500"));
            }
        }
    }
}
