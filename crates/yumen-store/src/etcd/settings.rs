//! How a cluster of etcd is reached, and how it is read. Plain data.

use std::path::PathBuf;
use std::time::Duration;

use crate::recent::HistoryRetention;

/// How to reach a cluster, and how long to wait for it.
#[derive(Clone)]
pub struct EtcdClientSettings {
    /// Its members: `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// Name and password, where the cluster wants them.
    pub user: Option<(String, String)>,
    /// How members prove who they are, and this node to them; used with `https`.
    pub tls: EtcdTlsFiles,
    /// How long connecting to one member may take, all that belongs to it included.
    pub connect_timeout: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// A key the user may read: asking for it proves that a member is one of a majority.
    pub probe_key: String,
}

/// Leaves the password out.
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

/// Files in PEM.
#[derive(Debug, Clone, Default)]
pub struct EtcdTlsFiles {
    /// Who vouches for the members; without it the authorities the system trusts.
    pub authorities: Option<PathBuf>,
    /// This node's certificate and key, where members ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name the members' certificates must bear; without it the endpoint's host.
    pub server_name: Option<String>,
}

/// How a store lives in a cluster.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// How to reach it.
    pub client: EtcdClientSettings,
    /// What all keys begin with, such as `/apisix`; without a slash at its end.
    pub prefix: String,
    /// How long a start waits for the cluster before it goes on with the last good state.
    pub start_timeout: Duration,
    /// How often the members are asked whether they are still there.
    pub probe_every: Duration,
    /// How long they may keep quiet before another is asked.
    pub probe_timeout: Duration,
    /// The pause between attempts to connect: at first, and at most.
    pub retry: (Duration, Duration),
    /// How long a write may take, all attempts included.
    pub write_timeout: Duration,
    /// How many steps the cluster takes in one transaction (its `--max-txn-ops`).
    pub txn_steps_max: usize,
    /// What is kept in memory to look back to.
    pub retention: HistoryRetention,
    /// Deletions of more than this share of all objects at once, in percent, wait for somebody's word; 0 lets all pass.
    pub hold_percent: u32,
    /// What the nodes call the board on which they pin up what is no configuration.
    pub board: String,
}

impl EtcdSettings {
    /// The settings of a store under `prefix` at these members, with the usual patience.
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
            retry: (Duration::from_millis(50), Duration::from_secs(1)),
            write_timeout: Duration::from_secs(10),
            txn_steps_max: 128,
            retention: HistoryRetention::default(),
            hold_percent: 50,
            board: "board".to_owned(),
        }
    }
}
