//! Sessions in Redis. The values are sealed, so an operator of Redis reads no token.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::background::{
    RedisAddress, RedisLogin, RedisReply, RedisResult, RedisScript, RedisScriptCall, RedisTarget, RedisTls,
    RedisTopology,
};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{PluginBuildContext, PluginHost};

pub(super) const GET: RedisScript = RedisScript { text: "return redis.call('GET', KEYS[1])" };
pub(super) const SET: RedisScript =
    RedisScript { text: "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])" };
/// Writes only over a value: a session that has ended stays so.
pub(crate) const RENEW: RedisScript =
    RedisScript { text: "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'XX')" };
pub(super) const DELETE: RedisScript = RedisScript { text: "return redis.call('DEL', KEYS[1])" };
/// Writes only over the value with this digest: another request may have written newer tokens. 0 if it has.
pub(crate) const REPLACE: RedisScript = RedisScript {
    text: "local value = redis.call('GET', KEYS[1]) if not value then return false end \
           if redis.sha1hex(value) ~= ARGV[3] then return 0 end \
           return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
};
/// Adds a member to a set of at most 1000, which lasts at least as long as the member.
pub(super) const INDEX: RedisScript = RedisScript {
    text: "redis.call('SADD', KEYS[1], ARGV[1]) \
           if redis.call('SCARD', KEYS[1]) > 1000 then redis.call('SPOP', KEYS[1]) end \
           if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
           return 1",
};
pub(super) const MEMBERS: RedisScript = RedisScript { text: "return redis.call('SMEMBERS', KEYS[1])" };
pub(crate) const LOCK: RedisScript =
    RedisScript { text: "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')" };
/// Releases a lock, unless it has ended and another node holds it.
pub(super) const UNLOCK: RedisScript = RedisScript {
    text: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
};

/// The server that holds sessions.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SessionRedisSettings {
    /// Host name or IP address.
    #[serde(default = "host")]
    #[schemars(length(min = 2))]
    host: String,
    /// Port.
    #[serde(default = "port")]
    #[schemars(range(min = 1))]
    port: u16,
    /// User name.
    #[schemars(length(min = 1))]
    username: Option<String>,
    /// Password.
    password: Option<String>,
    /// Number of the database.
    #[serde(default)]
    database: u64,
    /// Prefix of the keys.
    #[serde(default = "prefix")]
    prefix: String,
    /// Timeout of connecting in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1))]
    connect_timeout: u64,
    /// Timeout of sending in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1))]
    send_timeout: u64,
    /// Timeout of reading in milliseconds. The longest of the three timeouts covers a whole call.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1))]
    read_timeout: u64,
    /// Idle timeout of connections in milliseconds.
    #[serde(default = "keepalive_ms")]
    #[schemars(range(min = 1000))]
    keepalive_timeout: u64,
    /// Whether connections use TLS.
    #[serde(default)]
    ssl: bool,
    /// Whether the certificate of the server is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
    /// Name for SNI. Accepted without effect unless it equals `host`.
    server_name: Option<String>,
}

fn host() -> String {
    "127.0.0.1".to_owned()
}

fn port() -> u16 {
    6379
}

fn prefix() -> String {
    "sessions".to_owned()
}

fn timeout_ms() -> u64 {
    1000
}

fn keepalive_ms() -> u64 {
    10_000
}

fn yes() -> bool {
    true
}

/// The storage `redis`.
pub(crate) struct SessionRedis {
    target: Arc<RedisTarget>,
    prefix: Box<str>,
}

/// Redis is out of reach or has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageUnavailable;

impl SessionRedis {
    pub(super) fn new(
        settings: &SessionRedisSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<SessionRedis, InvalidSettings> {
        if settings.port == 0 {
            return Err(InvalidSettings::at("session.redis.port", "0 is not a port; allowed: 1 to 65535"));
        }
        if settings.server_name.as_ref().is_some_and(|name| *name != settings.host) {
            let message = "has no effect: the TLS name of Redis is that of `host`";
            setup.warn("session.redis.server_name", message, "write the name as `host`");
        }
        let target = RedisTarget {
            topology: RedisTopology::Server(RedisAddress {
                host: settings.host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                port: settings.port,
            }),
            login: RedisLogin {
                username: settings.username.clone().unwrap_or_default(),
                password: settings.password.clone().unwrap_or_default(),
            },
            database: settings.database,
            tls: settings.ssl.then_some(RedisTls { verify: settings.ssl_verify }),
            timeout_ms: settings.connect_timeout.max(settings.send_timeout).max(settings.read_timeout),
            idle_ms: settings.keepalive_timeout,
        };
        // The debug output of a target has no password, so a digest of it is added.
        let password = crate::limits::remote::digest(&target.login.password);
        let target = setup.carry.keep(&format!("redis/{target:?}/{password:016x}"), || target);
        Ok(SessionRedis { target, prefix: settings.prefix.as_str().into() })
    }

    fn call(
        &self,
        host: &dyn PluginHost,
        script: RedisScript,
        key: &str,
        args: Vec<Vec<u8>>,
    ) -> Result<LocalFuture<'static, RedisResult>, StorageUnavailable> {
        let outbound = host.outbound().ok_or(StorageUnavailable)?;
        let keys = vec![format!("{}:{key}", self.prefix).into_bytes()];
        Ok(outbound.redis(&self.target, RedisScriptCall { script, keys, args }))
    }

    pub(super) async fn get(
        &self,
        host: &dyn PluginHost,
        key: &str,
    ) -> Result<Option<Vec<u8>>, StorageUnavailable> {
        match self.call(host, GET, key, Vec::new())?.await {
            Ok(RedisReply::Text(value)) => Ok(Some(value)),
            Ok(RedisReply::Nil) => Ok(None),
            _ => Err(StorageUnavailable),
        }
    }

    pub(super) async fn set(
        &self,
        host: &dyn PluginHost,
        key: &str,
        value: String,
        ends_ms: u64,
    ) -> Result<(), StorageUnavailable> {
        let args = vec![value.into_bytes(), ends_ms.max(1).to_string().into_bytes()];
        self.call(host, SET, key, args)?.await.map(drop).map_err(|_| StorageUnavailable)
    }

    /// Replaces a value; false if there is none.
    pub(super) async fn renew(
        &self,
        host: &dyn PluginHost,
        key: &str,
        value: String,
        ends_ms: u64,
    ) -> Result<bool, StorageUnavailable> {
        let args = vec![value.into_bytes(), ends_ms.max(1).to_string().into_bytes()];
        match self.call(host, RENEW, key, args)?.await {
            Ok(RedisReply::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(_) => Err(StorageUnavailable),
        }
    }

    /// Replaces the value whose SHA-1 is `digest`, and keeps another one; false if there is none.
    pub(super) async fn replace(
        &self,
        host: &dyn PluginHost,
        key: &str,
        value: String,
        ends_ms: u64,
        digest: &str,
    ) -> Result<bool, StorageUnavailable> {
        let ends_ms = ends_ms.max(1).to_string().into_bytes();
        let args = vec![value.into_bytes(), ends_ms, digest.as_bytes().to_vec()];
        match self.call(host, REPLACE, key, args)?.await {
            Ok(RedisReply::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(_) => Err(StorageUnavailable),
        }
    }

    /// Adds a member to a set for `lasts_ms`.
    pub(super) async fn index(
        &self,
        host: &dyn PluginHost,
        key: &str,
        member: &str,
        lasts_ms: u64,
    ) -> Result<(), StorageUnavailable> {
        let args = vec![member.as_bytes().to_vec(), lasts_ms.to_string().into_bytes()];
        self.call(host, INDEX, key, args)?.await.map(drop).map_err(|_| StorageUnavailable)
    }

    /// The members of a set.
    pub(super) async fn members(
        &self,
        host: &dyn PluginHost,
        key: &str,
    ) -> Result<Vec<String>, StorageUnavailable> {
        let Ok(RedisReply::Array(members)) = self.call(host, MEMBERS, key, Vec::new())?.await else {
            return Err(StorageUnavailable);
        };
        let text = |member| match member {
            RedisReply::Text(text) => String::from_utf8(text).ok(),
            _ => None,
        };
        Ok(members.into_iter().filter_map(text).collect())
    }

    /// Takes a lock for `lasts_ms`; false if another request holds it.
    pub(super) async fn lock(
        &self,
        host: &dyn PluginHost,
        key: &str,
        holder: &str,
        lasts_ms: u64,
    ) -> Result<bool, StorageUnavailable> {
        let args = vec![holder.as_bytes().to_vec(), lasts_ms.to_string().into_bytes()];
        match self.call(host, LOCK, key, args)?.await {
            Ok(RedisReply::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(_) => Err(StorageUnavailable),
        }
    }

    /// Releases a lock without waiting for the reply.
    pub(super) fn unlock(&self, host: &dyn PluginHost, key: &str, holder: &str) {
        let Some(outbound) = host.outbound() else { return };
        if let Ok(call) = self.call(host, UNLOCK, key, vec![holder.as_bytes().to_vec()]) {
            outbound.spawn(Box::pin(async move { drop(call.await) }));
        }
    }

    pub(super) async fn delete(&self, host: &dyn PluginHost, key: &str) -> Result<(), StorageUnavailable> {
        self.call(host, DELETE, key, Vec::new())?.await.map(drop).map_err(|_| StorageUnavailable)
    }
}
