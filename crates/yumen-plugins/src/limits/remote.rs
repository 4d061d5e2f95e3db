//! Limits with counters in Redis: settings, names of keys, and behaviour on failure.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_config::url;
use yumen_plugin::background::{
    RedisAddress, RedisFault, RedisLogin, RedisReply, RedisTarget, RedisTls, RedisTopology,
};
use yumen_plugin::{Carry, SharedOutbound};

use super::CounterPolicy;

/// Longest expiry in Redis in seconds. Redis refuses times that overflow its clock.
pub(crate) const EXPIRY_S_MAX: u64 = 100 * 365 * 86_400;

/// Settings of the Redis policies. Their schema depends on the policy, see [`super::schema`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct RedisPolicySettings {
    #[serde(flatten)]
    account: RedisAccountSettings,
    #[serde(flatten)]
    server: RedisServerSettings,
    #[serde(flatten)]
    cluster: RedisClusterSettings,
    #[serde(flatten)]
    sentinel: RedisSentinelSettings,
    #[serde(flatten)]
    timeouts: RedisTimeoutSettings,
}

/// User and database, for all policies.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct RedisAccountSettings {
    redis_username: Option<String>,
    redis_password: Option<RedisPassword>,
    redis_database: Option<u64>,
}

/// The server of the policy `redis`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct RedisServerSettings {
    redis_host: Option<String>,
    redis_port: Option<u64>,
    redis_ssl: Option<bool>,
    redis_ssl_verify: Option<bool>,
}

/// The nodes of the policy `redis-cluster`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct RedisClusterSettings {
    redis_cluster_nodes: Option<Vec<String>>,
    redis_cluster_ssl: Option<bool>,
    redis_cluster_ssl_verify: Option<bool>,
}

/// The sentinels of the policy `redis-sentinel`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct RedisSentinelSettings {
    redis_sentinels: Option<Vec<SentinelAddress>>,
    redis_master_name: Option<String>,
    redis_role: Option<String>,
    sentinel_username: Option<String>,
    sentinel_password: Option<RedisPassword>,
}

/// Timeouts, in milliseconds. The policy `redis-sentinel` has its own pair.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct RedisTimeoutSettings {
    redis_timeout: Option<u64>,
    redis_keepalive_timeout: Option<u64>,
    redis_connect_timeout: Option<u64>,
    redis_read_timeout: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct SentinelAddress {
    host: String,
    port: u64,
}

/// A secret that does not appear in logs.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(transparent)]
struct RedisPassword(String);

impl std::fmt::Debug for RedisPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Settings with different secrets must be distinguishable.
        write!(f, "{:016x}", digest(&self.0))
    }
}

impl RedisPolicySettings {
    /// The Redis deployment of the policy, shared by all limits with the same settings; `None` with the
    /// policy `local`.
    pub(crate) fn target(
        &self,
        policy: CounterPolicy,
        carry: &Carry,
    ) -> Result<Option<Arc<RedisTarget>>, InvalidSettings> {
        let topology = match policy {
            CounterPolicy::Local => return Ok(None),
            CounterPolicy::Redis => self.server()?,
            CounterPolicy::RedisCluster => self.cluster()?,
            CounterPolicy::RedisSentinel => self.sentinels()?,
        };
        let (tls, verify) = match policy {
            CounterPolicy::RedisCluster => {
                (self.cluster.redis_cluster_ssl, self.cluster.redis_cluster_ssl_verify)
            }
            // The policy `redis-sentinel` of APISIX has no settings for TLS.
            CounterPolicy::RedisSentinel => (None, None),
            _ => (self.server.redis_ssl, self.server.redis_ssl_verify),
        };
        let timeout_ms = match policy {
            // One timeout covers connecting and reading, so the longer setting applies.
            CounterPolicy::RedisSentinel => {
                self.timeouts.redis_connect_timeout.max(self.timeouts.redis_read_timeout)
            }
            _ => self.timeouts.redis_timeout,
        };
        let target = RedisTarget {
            topology,
            login: login(self.account.redis_username.as_ref(), self.account.redis_password.as_ref()),
            database: if policy == CounterPolicy::RedisCluster {
                // A cluster has only the database 0.
                0
            } else {
                self.account.redis_database.unwrap_or(0)
            },
            tls: (tls == Some(true)).then_some(RedisTls { verify: verify == Some(true) }),
            timeout_ms: timeout_ms.unwrap_or(1000),
            idle_ms: self.timeouts.redis_keepalive_timeout.unwrap_or(10_000),
        };
        // The debug output of a target contains no passwords, so they are added here.
        let secrets = (&self.account.redis_password, &self.sentinel.sentinel_password);
        Ok(Some(carry.keep(&format!("redis/{target:?}/{secrets:?}"), || target)))
    }

    fn server(&self) -> Result<RedisTopology, InvalidSettings> {
        let written = self.server.redis_host.as_ref().ok_or_else(|| missing("redis_host"))?;
        let host = host(written).ok_or_else(|| InvalidSettings::at("redis_host", no_host(written)))?;
        let port = port("redis_port", self.server.redis_port.unwrap_or(6379))?;
        Ok(RedisTopology::Server(RedisAddress { host, port }))
    }

    fn cluster(&self) -> Result<RedisTopology, InvalidSettings> {
        let nodes = self.cluster.redis_cluster_nodes.as_deref().unwrap_or_default();
        let node = |(at, node): (usize, &String)| {
            address(node).ok_or_else(|| {
                let message = format!("\"{node}\" is not an address; write host:port");
                InvalidSettings::at(format!("redis_cluster_nodes[{at}]"), message)
            })
        };
        let nodes: Vec<RedisAddress> = nodes.iter().enumerate().map(node).collect::<Result<_, _>>()?;
        if nodes.is_empty() {
            return Err(missing("redis_cluster_nodes"));
        }
        Ok(RedisTopology::Cluster(nodes))
    }

    fn sentinels(&self) -> Result<RedisTopology, InvalidSettings> {
        if self.sentinel.redis_role.as_deref() == Some("slave") {
            let message = "\"slave\" cannot count, since replicas are read-only; allowed: \"master\"";
            return Err(InvalidSettings::at("redis_role", message));
        }
        let sentinels = self.sentinel.redis_sentinels.as_deref().unwrap_or_default();
        let sentinel = |(at, one): (usize, &SentinelAddress)| {
            let port = port(&format!("redis_sentinels[{at}].port"), one.port)?;
            let path = || format!("redis_sentinels[{at}].host");
            let host = host(&one.host).ok_or_else(|| InvalidSettings::at(path(), no_host(&one.host)))?;
            Ok(RedisAddress { host, port })
        };
        let sentinels: Vec<_> = sentinels.iter().enumerate().map(sentinel).collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(missing("redis_sentinels"));
        }
        let master_name =
            self.sentinel.redis_master_name.clone().ok_or_else(|| missing("redis_master_name"))?;
        let login = login(self.sentinel.sentinel_username.as_ref(), self.sentinel.sentinel_password.as_ref());
        Ok(RedisTopology::Sentinel { sentinels, master_name, login })
    }
}

fn missing(name: &str) -> InvalidSettings {
    InvalidSettings::new(format!("property \"{name}\" is required"))
}

fn port(path: &str, number: u64) -> Result<u16, InvalidSettings> {
    let message = || format!("{number} is not a port; allowed: 1 to 65535");
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or_else(|| InvalidSettings::at(path, message()))
}

fn address(text: &str) -> Option<RedisAddress> {
    let (written, port) = text.rsplit_once(':')?;
    Some(RedisAddress { host: host(written)?, port: url::port(port)? })
}

/// A host name or an IP address; an IPv6 address may be in brackets.
fn host(text: &str) -> Option<String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = inside.filter(|inside| inside.contains(':')).unwrap_or(text);
    (!host.is_empty() && !host.contains(['[', ']'])).then(|| host.to_owned())
}

fn no_host(text: &str) -> String {
    format!("\"{text}\" is not a host; write a name or an address")
}

fn login(username: Option<&String>, password: Option<&RedisPassword>) -> RedisLogin {
    RedisLogin {
        username: username.cloned().unwrap_or_default(),
        password: password.map(|secret| secret.0.clone()).unwrap_or_default(),
    }
}

/// A digest that is equal on all nodes and in all versions, because equal settings must lead to equal
/// counters. It need not be collision-resistant: its input comes from the configuration only.
pub(crate) fn digest(text: &str) -> u64 {
    // FNV-1a
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Appends the key that [`super::LimitKey::write`] wrote in its form for Redis: the value, or the address as
/// text.
pub(crate) fn write_key(written: &[u8], out: &mut Vec<u8>) {
    let octets = match written.split_first() {
        Some((b'@', octets)) => octets,
        Some((_, value)) => return out.extend_from_slice(value),
        None => return,
    };
    let address = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return,
    };
    out.extend_from_slice(address.to_string().as_bytes());
}

/// The integers of a reply, `per_key` of them for each key.
pub(crate) fn numbers(reply: &RedisReply, per_key: usize) -> Result<Vec<i64>, RedisFault> {
    let numbers = reply.integers().filter(|numbers| !numbers.is_empty() && numbers.len() % per_key == 0);
    numbers.ok_or_else(|| RedisFault::Refused("the Redis value is not a counter".to_owned()))
}

/// Counts a request that passes because its limit cannot be determined; returns false if it must not pass.
pub(crate) fn degrades(outbound: &SharedOutbound, allow_degradation: bool) -> bool {
    if allow_degradation {
        outbound.count_degraded();
    }
    allow_degradation
}

#[cfg(test)]
mod tests;
