//! Where service discovery asks; in the form APISIX writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// Where upstreams with a `service_name` get their endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryConfig {
    /// How long endpoints stay in use after their source said that there are none, in milliseconds; an
    /// empty answer is more often a mistake than the truth.
    pub empty_hold_ms: u64,
    /// `discovery_type: dns`.
    pub dns: DnsDiscovery,
    /// `discovery_type: consul`: services whose checks pass.
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

/// Endpoints from name servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsDiscovery {
    /// The name servers to ask, such as `127.0.0.1:8600`; none means those of `dns`. Times and bounds are
    /// those of `dns` too.
    pub servers: Vec<String>,
    /// Kinds of records, in the order they are looked for; the first that is there counts.
    #[schemars(length(min = 1))]
    pub order: Vec<DnsRecord>,
}

impl Default for DnsDiscovery {
    fn default() -> Self {
        DnsDiscovery { servers: Vec::new(), order: vec![DnsRecord::Srv, DnsRecord::A, DnsRecord::Aaaa] }
    }
}

/// A kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DnsRecord {
    /// Host, port, weight and priority.
    Srv,
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
    /// Followed by every lookup; accepted for the sake of APISIX's settings.
    Cname,
    /// Accepted for the sake of APISIX's settings.
    #[serde(rename = "last")]
    Last,
}

/// Endpoints from the catalog of Consul.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulDiscovery {
    /// Agents, such as `http://127.0.0.1:8500`: one is asked, the next where it fails. None switches it off.
    pub servers: Vec<String>,
    /// The ACL token.
    pub token: SecretText,
    /// The datacenter to ask for; empty means the agent's own. `discovery_args.datacenter` goes before it.
    pub datacenter: String,
    /// How long to wait.
    pub timeout: ConsulTimeout,
    /// The weight of endpoints for which Consul knows none.
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

/// Endpoints from keys of Consul.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulKvDiscovery {
    /// Agents, as in `consul`. None switches it off.
    pub servers: Vec<String>,
    /// The ACL token.
    pub token: SecretText,
    /// Keys are `prefix/service/host:port`, values a weight or an object with `weight`.
    #[schemars(length(min = 1))]
    pub prefix: String,
    /// How long to wait.
    pub timeout: ConsulTimeout,
    /// The weight of endpoints whose key has none.
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

/// How long to wait for Consul.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsulTimeout {
    /// For a connection, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect: u64,
    /// For an answer beyond `wait`, in milliseconds.
    #[schemars(range(min = 1))]
    pub read: u64,
    /// How long Consul holds a question back while nothing changes, in seconds.
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
    /// Servers, such as `http://user:password@127.0.0.1:8848`: one is asked, the next where it fails. None
    /// switches it off.
    pub host: Vec<SecretText>,
    /// The path its API starts with.
    pub prefix: String,
    /// The pause between questions, in seconds.
    #[schemars(range(min = 1))]
    pub fetch_interval: u64,
    /// The weight of an endpoint that has weight 1 there.
    #[schemars(range(min = 1, max = 1000000))]
    pub weight: u32,
    /// How long to wait.
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

/// How long to wait for Nacos.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NacosTimeout {
    /// For a connection, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect: u64,
    /// For the question to be sent and an answer to come, in milliseconds.
    #[schemars(range(min = 1))]
    pub read: u64,
}

impl Default for NacosTimeout {
    fn default() -> Self {
        NacosTimeout { connect: 2000, read: 5000 }
    }
}

impl DiscoveryConfig {
    /// Servers must be addresses of HTTP.
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
                // What stands there may hold a password.
                let found = "not a URL of an HTTP server";
                problems.push(problem(&path, found).hint("such as http://127.0.0.1:8500"));
            }
        }
    }
}
