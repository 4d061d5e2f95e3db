//! Settings of the etcd client and of the etcd store. Plain data.

use std::path::PathBuf;
use std::time::Duration;

use crate::recent::HistoryRetention;

/// Members, credentials and timeouts of the etcd client.
#[derive(Clone)]
pub struct EtcdClientSettings {
    /// URLs of the members: `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// User name and password, if the cluster requires authentication.
    pub user: Option<(String, String)>,
    /// TLS files, used with `https`.
    pub tls: EtcdTlsFiles,
    /// Timeout of connecting to one member, including TLS and authentication.
    pub connect_timeout: Duration,
    /// Timeout of one call.
    pub call_timeout: Duration,
    /// A key readable by the user. Reading it proves that a member has a quorum.
    pub probe_key: String,
}

/// Omits the password.
impl std::fmt::Debug for EtcdClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("ClientSettings")
            .field("endpoints", &self.endpoints)
            .field("user", &user)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Paths of PEM files.
#[derive(Debug, Clone, Default)]
pub struct EtcdTlsFiles {
    /// Authorities for the members' certificates; without it, the system's trust store.
    pub authorities: Option<PathBuf>,
    /// Client certificate and key, if the members require them.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Server name to verify in the members' certificates; without it, the host of the endpoint.
    pub server_name: Option<String>,
}

/// Settings of the etcd store.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// Client settings.
    pub client: EtcdClientSettings,
    /// Prefix of all keys, such as `/apisix`, without a trailing slash.
    pub prefix: String,
    /// Maximum wait for the cluster at start, before serving the last good state.
    pub start_timeout: Duration,
    /// Interval of progress requests to the member.
    pub probe_every: Duration,
    /// Maximum silence of a member before the connection is closed.
    pub probe_timeout: Duration,
    /// Pauses between connection attempts.
    pub retry: RetryPauses,
    /// Timeout of one write, all attempts included.
    pub write_timeout: Duration,
    /// Maximum number of operations per transaction (etcd's `--max-txn-ops`).
    pub txn_steps_max: usize,
    /// Retention of the history in memory.
    pub retention: HistoryRetention,
    /// Share of all objects, in percent, above which deletions at once are held; 0 disables holding.
    pub hold_percent: u32,
    /// Name of the directory of the shared keys.
    pub board: String,
}

/// Bounds of the pauses between connection attempts.
#[derive(Debug, Clone, Copy)]
pub struct RetryPauses {
    /// The first pause.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl EtcdSettings {
    /// Settings of a store under `prefix` at these members, with default timeouts.
    pub fn new(endpoints: Vec<String>, prefix: &str) -> EtcdSettings {
        let prefix = prefix.trim_end_matches('/').to_owned();
        let client = EtcdClientSettings {
            endpoints,
            user: None,
            tls: EtcdTlsFiles::default(),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            probe_key: format!("{prefix}/yumen/last_write"),
        };
        EtcdSettings {
            client,
            prefix,
            start_timeout: Duration::from_secs(5),
            probe_every: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(3),
            retry: RetryPauses { min: Duration::from_millis(50), max: Duration::from_secs(1) },
            write_timeout: Duration::from_secs(10),
            txn_steps_max: 128,
            retention: HistoryRetention::default(),
            hold_percent: 50,
            board: "board".to_owned(),
        }
    }
}
