//! Directories (LDAP servers) that plugins ask about users.
//!
//! Plugins own no sockets: the control runtime binds and searches for them, through [`PluginHost::ask_directory`].
//!
//! [`PluginHost::ask_directory`]: crate::PluginHost::ask_directory

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A directory and the way to it. Equal targets share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryTarget {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Protection of connections.
    pub security: DirectorySecurity,
    /// Whether the certificate of the server is verified.
    pub verify: bool,
    /// Time limit of a whole query in milliseconds, with connecting.
    pub timeout_ms: u64,
    /// Maximum number of idle connections; 0 closes after each query.
    pub idle_max: usize,
    /// Time in milliseconds after which an idle connection is closed.
    pub idle_ms: u64,
    /// Name that separates connections of otherwise equal targets.
    pub pool: Option<String>,
}

impl std::fmt::Display for DirectoryTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.security == DirectorySecurity::Tls { "ldaps" } else { "ldap" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// Protection of connections to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirectorySecurity {
    /// None: passwords are readable on the way.
    Plain,
    /// TLS from the first byte.
    Tls,
    /// TLS after the StartTLS operation (RFC 4511 §4.14).
    StartTls,
}

/// A name and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectoryLogin {
    /// Distinguished name (RFC 4514).
    pub dn: String,
    /// The password. An empty one would bind anonymously (RFC 4513 §5.1.2), so callers refuse it before.
    pub password: String,
}

impl std::fmt::Debug for DirectoryLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password must not appear in logs.
        f.debug_struct("DirectoryLogin").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// A question about one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryQuery {
    /// Binds with this name and password.
    Bind(DirectoryLogin),
    /// Searches the entry of the user, then binds as this entry.
    Search(Box<DirectorySearch>),
}

/// A search for the entry of a user.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectorySearch {
    /// The account that searches; `None` searches anonymously.
    pub searcher: Option<DirectoryLogin>,
    /// The entry below which users are searched.
    pub base_dn: String,
    /// The attribute that has the name of the user.
    pub attribute: String,
    /// The name of the user. It is compared as it is: characters of filters have no meaning in it.
    pub name: String,
    /// The password of the user, which is not empty.
    pub password: String,
    /// Maximum number of entries that the server returns.
    pub size_limit: u32,
    /// Time limit for the search on the server in seconds; 0 is no limit.
    pub time_limit_s: u32,
}

impl std::fmt::Debug for DirectorySearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectorySearch")
            .field("base_dn", &self.base_dn)
            .field("attribute", &self.attribute)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The answer of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryReply {
    /// The password is that of the entry with this name.
    Accepted {
        /// The distinguished name.
        dn: String,
    },
    /// The directory refuses name or password.
    Refused,
    /// No entry, or more than one, has the name.
    NotUnique,
}

/// The reason of a missing answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryFault {
    /// Nothing was sent: too many queries are in flight.
    Busy,
    /// The time limit passed.
    Timeout,
    /// The directory is out of reach, or closed the connection.
    Unreachable(String),
    /// The directory answered with an error or violated the protocol.
    Failed(String),
}

impl std::fmt::Display for DirectoryFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DirectoryFault::Busy => f.write_str("too many queries in flight"),
            DirectoryFault::Timeout => f.write_str("timeout"),
            DirectoryFault::Unreachable(why) | DirectoryFault::Failed(why) => f.write_str(why),
        }
    }
}

/// The result of a query.
pub type DirectoryResult = Result<DirectoryReply, DirectoryFault>;

/// A query in flight.
pub type DirectoryFuture = Pin<Box<dyn Future<Output = DirectoryResult> + Send>>;

/// Asks directories beside the workers.
pub trait DirectoryService: Send + Sync {
    /// Starts a query. The future resolves within the time limit of the target.
    fn ask(&self, target: Arc<DirectoryTarget>, query: DirectoryQuery) -> DirectoryFuture;
}

/// The directory service of a process, if it has one.
#[derive(Clone, Default)]
pub struct DirectoryAccess(Option<Arc<dyn DirectoryService>>);

impl DirectoryAccess {
    /// Access to `service`.
    pub fn new(service: Arc<dyn DirectoryService>) -> DirectoryAccess {
        DirectoryAccess(Some(service))
    }

    /// The service.
    pub fn service(&self) -> Option<&Arc<dyn DirectoryService>> {
        self.0.as_ref()
    }
}

impl std::fmt::Debug for DirectoryAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirectoryAccess").field(&self.0.is_some()).finish()
    }
}
