//! Access of plugins to Redis: scripts, replies and faults.
//!
//! Plugins own no sockets. The worker does, and offers them through [`BackgroundHost`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;

use crate::plugin::LocalFuture;

/// Services of a worker outside of an exchange. The host stays on its worker and may outlive the exchange
/// that provided it.
pub trait BackgroundHost {
    /// Sends a script at once; the future completes with the reply, within the timeout of the target.
    fn redis(&self, target: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult>;
    /// Runs a task beside all exchanges, until it completes or the worker ends.
    fn spawn(&self, task: LocalFuture<'static, ()>);
    /// Completes after `delay`.
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()>;
    /// Completes after `delay`, or as soon as the worker is about to end; false then. A worker that ends
    /// waits briefly for replies to what is sent at that point.
    fn rest(&self, delay: Duration) -> LocalFuture<'static, bool> {
        let sleep = self.sleep(delay);
        Box::pin(async move {
            sleep.await;
            true
        })
    }
    /// The current time.
    fn now(&self) -> Now;
    /// Counts a request that was admitted because its limit was unavailable.
    fn count_degraded(&self);
}

/// A [`BackgroundHost`] that may be retained.
pub type SharedOutbound = Rc<dyn BackgroundHost>;

/// The result of a script.
pub type RedisResult = Result<RedisReply, RedisFault>;

/// A script for Redis. Its text is a constant, so that each worker computes its digest once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisScript {
    /// Lua.
    pub text: &'static str,
}

/// A script with its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisScriptCall {
    /// The script.
    pub script: RedisScript,
    /// The keys; in a cluster all must be in one slot.
    pub keys: Vec<Vec<u8>>,
    /// The other arguments.
    pub args: Vec<Vec<u8>>,
}

/// A reply of Redis other than an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// Nil.
    Nil,
    /// An integer.
    Integer(i64),
    /// A string: a status or a value.
    Text(Vec<u8>),
    /// An array.
    Array(Vec<RedisReply>),
}

impl RedisReply {
    /// The integers of an array, sent as integers or strings; `None` for other replies.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let RedisReply::Array(items) = self else { return None };
        items.iter().map(RedisReply::integer).collect()
    }

    /// The integer of the reply, sent as an integer or a string.
    pub fn integer(&self) -> Option<i64> {
        match self {
            RedisReply::Integer(number) => Some(*number),
            RedisReply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            RedisReply::Nil | RedisReply::Array(_) => None,
        }
    }
}

/// The reason why a script has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisFault {
    /// The server is known to be unreachable, and nothing was sent.
    Down,
    /// The queue is full.
    Busy,
    /// The connection failed.
    Connect(String),
    /// The connection broke before the reply, so the script may have run.
    ConnectionLost(String),
    /// The reply timed out, so the script may have run.
    Timeout,
    /// The server replied with an error.
    Refused(String),
}

impl std::fmt::Display for RedisFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RedisFault::Down => f.write_str("out of reach"),
            RedisFault::Busy => f.write_str("too many questions wait"),
            RedisFault::Connect(why) => write!(f, "cannot connect: {why}"),
            RedisFault::ConnectionLost(why) => write!(f, "connection lost: {why}"),
            RedisFault::Timeout => f.write_str("no answer in time"),
            RedisFault::Refused(why) => write!(f, "answered: {why}"),
        }
    }
}

/// A Redis server, cluster or sentinel group. Equal settings should share one through [`crate::Carry`]:
/// connections are pooled by its address in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTarget {
    /// The servers.
    pub place: RedisTopology,
    /// The credentials.
    pub login: RedisLogin,
    /// The database; 0 in a cluster.
    pub database: u64,
    /// Settings of TLS; `None` for plaintext.
    pub tls: Option<RedisTls>,
    /// Timeout of a reply and of a connect, in milliseconds.
    pub timeout_ms: u64,
    /// Idle timeout of a connection, in milliseconds.
    pub idle_ms: u64,
}

/// The topology of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Server(RedisAddress),
    /// A cluster, by its seed nodes.
    Cluster(Vec<RedisAddress>),
    /// A server that sentinels monitor.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<RedisAddress>,
        /// The name of the master.
        master_name: String,
        /// The credentials of the sentinels.
        login: RedisLogin,
    },
}

/// Formats the topology for logs.
impl std::fmt::Display for RedisTopology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RedisTopology::Server(address) => address.fmt(f),
            RedisTopology::Cluster(nodes) => match nodes.first() {
                Some(node) => write!(f, "cluster of {node}"),
                None => f.write_str("cluster"),
            },
            RedisTopology::Sentinel { master_name, .. } => write!(f, "master {master_name}"),
        }
    }
}

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedisAddress {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// TLS settings of a connection to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisTls {
    /// Whether the certificate is verified.
    pub verify: bool,
}

/// A user and a password; both empty without authentication.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// The user; the default user if empty.
    pub username: String,
    /// The password; none is sent if empty.
    pub password: String,
}

impl std::fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A password must not appear in a log.
        f.debug_struct("RedisLogin").field("username", &self.username).finish_non_exhaustive()
    }
}
