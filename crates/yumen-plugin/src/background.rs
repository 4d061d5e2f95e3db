//! Background work of plugins: Redis calls and tasks outside of an exchange.
//!
//! Plugins own no sockets. The worker executes their calls through [`BackgroundHost`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;

use crate::plugin::LocalFuture;

/// Services of a worker outside of an exchange. A host stays on its worker and may be retained after the
/// exchange.
pub trait BackgroundHost {
    /// Sends a script call at once; the future resolves within the timeout of the target.
    fn redis(&self, target: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult>;
    /// Runs a task independently of exchanges, until it completes or the worker ends.
    fn spawn(&self, task: LocalFuture<'static, ()>);
    /// Resolves after `delay`.
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()>;
    /// Resolves after `delay`, or as soon as the worker begins to end; false in the latter case. A worker
    /// that ends waits a moment for replies to calls made then.
    fn rest(&self, delay: Duration) -> LocalFuture<'static, bool> {
        let sleep = self.sleep(delay);
        Box::pin(async move {
            sleep.await;
            true
        })
    }
    /// The current time.
    fn now(&self) -> Now;
    /// Counts a request that passed because its limit could not be determined.
    fn count_degraded(&self);
}

/// A shared [`BackgroundHost`].
pub type SharedOutbound = Rc<dyn BackgroundHost>;

/// The result of a script call.
pub type RedisResult = Result<RedisReply, RedisFault>;

/// A Lua script for Redis. A constant, so that each worker computes its digest once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisScript {
    /// Lua source.
    pub text: &'static str,
}

/// A script with its keys and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisScriptCall {
    /// The script.
    pub script: RedisScript,
    /// Keys; in a cluster all must be in one slot.
    pub keys: Vec<Vec<u8>>,
    /// Further arguments.
    pub args: Vec<Vec<u8>>,
}

/// A reply of Redis other than an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// A null reply.
    Nil,
    /// An integer.
    Integer(i64),
    /// A status or a bulk string.
    Text(Vec<u8>),
    /// An array of replies.
    Array(Vec<RedisReply>),
}

impl RedisReply {
    /// The integers of an array, sent as integers or text; `None` for any other reply.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let RedisReply::Array(items) = self else { return None };
        items.iter().map(RedisReply::integer).collect()
    }

    /// The integer of a reply, sent as integer or text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            RedisReply::Integer(number) => Some(*number),
            // Redis truncates a number of Lua to an integer, so scripts return others as text.
            RedisReply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            RedisReply::Nil | RedisReply::Array(_) => None,
        }
    }
}

/// The reason of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisFault {
    /// The server is known to be unreachable; nothing was sent.
    Down,
    /// The queue of calls is full; nothing was sent.
    Busy,
    /// The connection could not be established.
    Connect(String),
    /// The connection closed before the reply; the script may have run.
    ConnectionLost(String),
    /// No reply within the timeout; the script may have run.
    Timeout,
    /// Redis replied with an error.
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

/// A Redis deployment with its settings. Equal settings should share one target, through [`crate::Carry`],
/// because connections are pooled by the address of the target in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTarget {
    /// Servers of the deployment.
    pub topology: RedisTopology,
    /// Credentials.
    pub login: RedisLogin,
    /// Number of the database; 0 in a cluster.
    pub database: u64,
    /// TLS settings; `None` for plain TCP.
    pub tls: Option<RedisTls>,
    /// Timeout of a call, and of establishing a connection, in milliseconds.
    pub timeout_ms: u64,
    /// Idle timeout of a connection in milliseconds.
    pub idle_ms: u64,
}

/// Servers of a Redis deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Server(RedisAddress),
    /// A cluster, with the nodes to contact first.
    Cluster(Vec<RedisAddress>),
    /// A server that sentinels monitor.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<RedisAddress>,
        /// Name of the server at the sentinels.
        master_name: String,
        /// Credentials for the sentinels.
        login: RedisLogin,
    },
}

/// The form for logs.
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
    /// A host name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An IPv6 address needs brackets before a port (RFC 3986 §3.2.2).
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// TLS settings of a Redis connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisTls {
    /// Whether the certificate of the server is verified.
    pub verify: bool,
}

/// User name and password; both empty without authentication.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// User name; empty for the default user.
    pub username: String,
    /// Password; empty for no authentication.
    pub password: String,
}

impl std::fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password must not appear in logs.
        f.debug_struct("RedisLogin").field("username", &self.username).finish_non_exhaustive()
    }
}
