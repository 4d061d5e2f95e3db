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
    redis_host: Option<String>,
    redis_port: Option<u64>,
    redis_username: Option<String>,
    redis_password: Option<RedisPassword>,
    redis_database: Option<u64>,
    redis_timeout: Option<u64>,
    redis_ssl: Option<bool>,
    redis_ssl_verify: Option<bool>,
    redis_keepalive_timeout: Option<u64>,
    redis_cluster_nodes: Option<Vec<String>>,
    redis_cluster_ssl: Option<bool>,
    redis_cluster_ssl_verify: Option<bool>,
    redis_sentinels: Option<Vec<SentinelAddress>>,
    redis_master_name: Option<String>,
    redis_role: Option<String>,
    redis_connect_timeout: Option<u64>,
    redis_read_timeout: Option<u64>,
    sentinel_username: Option<String>,
    sentinel_password: Option<RedisPassword>,
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
        let place = match policy {
            CounterPolicy::Local => return Ok(None),
            CounterPolicy::Redis => self.server()?,
            CounterPolicy::RedisCluster => self.cluster()?,
            CounterPolicy::RedisSentinel => self.sentinels()?,
        };
        let (tls, verify) = match policy {
            CounterPolicy::RedisCluster => (self.redis_cluster_ssl, self.redis_cluster_ssl_verify),
            CounterPolicy::RedisSentinel => (None, None),
            _ => (self.redis_ssl, self.redis_ssl_verify),
        };
        let timeout_ms = match policy {
            CounterPolicy::RedisSentinel => self.redis_connect_timeout.max(self.redis_read_timeout),
            _ => self.redis_timeout,
        };
        let target = RedisTarget {
            place,
            login: login(self.redis_username.as_ref(), self.redis_password.as_ref()),
            // A cluster only has database 0.
            database: if policy == CounterPolicy::RedisCluster {
                0
            } else {
                self.redis_database.unwrap_or(0)
            },
            tls: (tls == Some(true)).then_some(RedisTls { verify: verify == Some(true) }),
            timeout_ms: timeout_ms.unwrap_or(1000),
            idle_ms: self.redis_keepalive_timeout.unwrap_or(10_000),
        };
        // The debug output of a target contains no passwords, so they are added here.
        let secrets = (&self.redis_password, &self.sentinel_password);
        Ok(Some(carry.keep(&format!("redis/{target:?}/{secrets:?}"), || target)))
    }

    fn server(&self) -> Result<RedisTopology, InvalidSettings> {
        let written = self.redis_host.as_ref().ok_or_else(|| missing("redis_host"))?;
        let host = host(written).ok_or_else(|| InvalidSettings::at("redis_host", no_host(written)))?;
        let port = port("redis_port", self.redis_port.unwrap_or(6379))?;
        Ok(RedisTopology::Server(RedisAddress { host, port }))
    }

    fn cluster(&self) -> Result<RedisTopology, InvalidSettings> {
        let nodes = self.redis_cluster_nodes.as_deref().unwrap_or_default();
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
        if self.redis_role.as_deref() == Some("slave") {
            let message = "\"slave\" cannot count, since replicas are read-only; allowed: \"master\"";
            return Err(InvalidSettings::at("redis_role", message));
        }
        let sentinels = self.redis_sentinels.as_deref().unwrap_or_default();
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
        let master_name = self.redis_master_name.clone().ok_or_else(|| missing("redis_master_name"))?;
        let login = login(self.sentinel_username.as_ref(), self.sentinel_password.as_ref());
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
