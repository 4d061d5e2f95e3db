//! How a plugin reaches a Redis: what it may say, and what can come of it.
//!
//! Plugins own no sockets. The worker that runs them does, and offers them through [`BackgroundHost`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;

use crate::plugin::LocalFuture;

/// What a worker does for plugins outside of an exchange. It stays on its worker, and may be kept beyond
/// the exchange it came with.
pub trait BackgroundHost {
    /// Sends a script on its way at once; the future gives what came of it, within the target's time.
    fn redis(&self, target: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult>;
    /// Runs a task beside all exchanges, until it is done or the worker ends.
    fn spawn(&self, task: LocalFuture<'static, ()>);
    /// Done after `delay`.
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()>;
    /// Done after `delay`, or as soon as the worker is about to end; whether it goes on. One that ends waits a
    /// moment for answers to what is asked then.
    fn rest(&self, delay: Duration) -> LocalFuture<'static, bool> {
        let sleep = self.sleep(delay);
        Box::pin(async move {
            sleep.await;
            true
        })
    }
    /// The time now.
    fn now(&self) -> Now;
    /// Counts a request that was let through because its limit could not be told.
    fn count_degraded(&self);
}

/// An [`BackgroundHost`] that may be kept.
pub type SharedOutbound = Rc<dyn BackgroundHost>;

/// What comes of a script.
pub type RedisResult = Result<RedisReply, RedisFault>;

/// A script for Redis. Its text is a constant, so that its digest is reckoned once per worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisScript {
    /// Lua.
    pub text: &'static str,
}

/// A script with what it is to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisScriptCall {
    /// The script.
    pub script: RedisScript,
    /// Its keys; in a cluster all must be in one slot.
    pub keys: Vec<Vec<u8>>,
    /// Its other arguments.
    pub args: Vec<Vec<u8>>,
}

/// What a Redis answered, other than an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// A text, be it a status or a value.
    Text(Vec<u8>),
    /// Several.
    Array(Vec<RedisReply>),
}

impl RedisReply {
    /// The whole numbers of an array, whether sent as numbers or as texts; `None` where it is anything else.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let RedisReply::Array(items) = self else { return None };
        items.iter().map(RedisReply::integer).collect()
    }

    /// A whole number, whether sent as one or as text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            RedisReply::Integer(number) => Some(*number),
            RedisReply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            RedisReply::Nil | RedisReply::Array(_) => None,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisFault {
    /// It is known to be out of reach, and was not asked.
    Down,
    /// Too many questions wait already.
    Busy,
    /// It could not be connected to.
    Connect(String),
    /// The connection broke before the answer came: whether the script ran is not known.
    ConnectionLost(String),
    /// The answer did not come in time: whether the script ran is not known.
    Timeout,
    /// It answered an error.
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

/// A Redis, however it is reached. Equal settings should share one, through [`crate::Carry`]: connections
/// are kept by its address in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTarget {
    /// Where it is.
    pub place: RedisTopology,
    /// Who asks.
    pub login: RedisLogin,
    /// The database; 0 in a cluster.
    pub database: u64,
    /// Whether TLS is spoken, and whether the certificate is verified.
    pub tls: Option<RedisTls>,
    /// From a question to its answer, and for making a connection, in milliseconds.
    pub timeout_ms: u64,
    /// After which an idle connection is closed, in milliseconds.
    pub idle_ms: u64,
}

/// Where a Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisTopology {
    /// One server.
    Server(RedisAddress),
    /// A cluster, and the nodes to ask first.
    Cluster(Vec<RedisAddress>),
    /// A server that others keep watch over.
    Sentinel {
        /// Who to ask.
        sentinels: Vec<RedisAddress>,
        /// The name they know it by.
        master_name: String,
        /// How they want to be asked.
        login: RedisLogin,
    },
}

/// As the log calls it.
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

/// TLS towards a Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisTls {
    /// Whether its certificate is verified.
    pub verify: bool,
}

/// A user and a password; both empty where none is asked for.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// The user; the default one where empty.
    pub username: String,
    /// The password; nothing is said where empty.
    pub password: String,
}

impl std::fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A password must not find its way into a log.
        f.debug_struct("RedisLogin").field("username", &self.username).finish_non_exhaustive()
    }
}
