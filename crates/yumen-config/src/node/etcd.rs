//! Where a cluster of etcd is, and how a node lives with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// A cluster of etcd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdConfig {
    /// The members, any of which will do: `http://host:2379` or `https://host:2379`.
    pub host: Vec<String>,
    /// What all keys begin with. Nodes of one cluster, and APISIX beside them, have the same.
    pub prefix: String,
    /// The user, where the cluster asks for one.
    pub user: String,
    /// The user's password.
    pub password: SecretText,
    /// TLS towards members of `https`.
    pub tls: EtcdTlsConfig,
    /// How long one member may take to be connected to, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect_ms: u64,
    /// How long one call may take, in milliseconds.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
    /// How long a start waits for the cluster before it goes on with the last good state, in milliseconds.
    pub start_wait_ms: u64,
    /// How long a write may take before it is given up, in milliseconds.
    #[schemars(range(min = 1))]
    pub write_ms: u64,
    /// A member that says nothing for so long is left for another one, in milliseconds; it is asked every
    /// third of it.
    #[schemars(range(min = 100))]
    pub silence_ms: u64,
    /// The longest pause between attempts to connect, in milliseconds.
    #[schemars(range(min = 50))]
    pub retry_ms_max: u64,
    /// How many steps the members take in one transaction, as their `--max-txn-ops` says.
    #[schemars(range(min = 2))]
    pub txn_steps_max: u32,
    /// Deletions of more than this share of all objects at once or within a minute, in percent, and of ten at least,
    /// are not followed until somebody confirms them; 0 follows all.
    #[schemars(range(min = 0, max = 100))]
    pub hold_deletions_percent: u32,
    /// What this node is called among the nodes of the cluster; empty means the host's name.
    pub node_name: String,
    /// How long a node that says nothing counts as there, in seconds; it says something every third of it.
    #[schemars(range(min = 2, max = 3600))]
    pub lease_s: u32,
    /// A node that is behind the others for longer is a problem, in seconds.
    #[schemars(range(min = 1))]
    pub drift_s: u32,
}

impl Default for EtcdConfig {
    fn default() -> Self {
        EtcdConfig {
            host: vec!["http://127.0.0.1:2379".into()],
            prefix: "/apisix".into(),
            user: String::new(),
            password: SecretText(String::new()),
            tls: EtcdTlsConfig::default(),
            connect_ms: 2000,
            timeout_ms: 5000,
            start_wait_ms: 5000,
            write_ms: 10_000,
            silence_ms: 3000,
            retry_ms_max: 1000,
            txn_steps_max: 128,
            hold_deletions_percent: 50,
            node_name: String::new(),
            lease_s: 15,
            drift_s: 10,
        }
    }
}

/// How members prove who they are, and the node to them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdTlsConfig {
    /// The file of the authorities the members' certificates must lead to, PEM; empty means the system's.
    pub ca: String,
    /// The file of this node's certificate, PEM, where members ask for one.
    pub cert: String,
    /// The file of its key, PEM.
    pub key: String,
    /// The name the members' certificates must bear; empty means the host asked.
    pub sni: String,
}

impl EtcdConfig {
    /// What a schema cannot say.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        if self.host.is_empty() {
            let found = "no member is named";
            problems.push(problem("store.etcd.host", found).hint("such as http://127.0.0.1:2379"));
        }
        for (i, host) in self.host.iter().enumerate() {
            let is_http = host.starts_with("http://") || host.starts_with("https://");
            if !is_http || host.contains('@') {
                // What stands there may hold a password.
                let found = "not a URL of an etcd member";
                let hint =
                    "such as http://127.0.0.1:2379, with store.etcd.user and store.etcd.password beside";
                problems.push(problem(&format!("store.etcd.host[{i}]"), found).hint(hint));
            }
        }
        let is_prefix = self.prefix.starts_with('/') && self.prefix.trim_end_matches('/').len() > 1;
        if !is_prefix {
            let found = format!("\"{}\" is not a key prefix", self.prefix);
            problems.push(problem("store.etcd.prefix", found).hint("such as /apisix"));
        }
        if self.tls.cert.is_empty() != self.tls.key.is_empty() {
            let found = "a certificate and a key belong together: only one of them is set";
            problems.push(problem("store.etcd.tls", found));
        }
        if self.user.is_empty() != self.password.0.is_empty() {
            let found = "a user and a password belong together: only one of them is set";
            problems.push(problem("store.etcd.user", found));
        }
    }
}
