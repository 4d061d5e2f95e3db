//! Settings of the store in an etcd cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// An etcd cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdConfig {
    /// Members, `http://host:2379` or `https://host:2379`; the node uses any one of them.
    pub host: Vec<String>,
    /// Prefix of all keys; the same on all nodes of a cluster, and in APISIX beside them.
    pub prefix: String,
    /// User name, if the cluster requires authentication.
    pub user: String,
    /// Password of the user.
    pub password: SecretText,
    /// TLS with `https` members.
    pub tls: EtcdTlsConfig,
    /// Timeout for connecting to a member, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect_ms: u64,
    /// Timeout of one call, in milliseconds.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
    /// How long startup waits for the cluster before it continues with the last good state, in milliseconds.
    pub start_wait_ms: u64,
    /// Timeout of a write, in milliseconds.
    #[schemars(range(min = 1))]
    pub write_ms: u64,
    /// How long a member may be silent before the node switches to another one, in milliseconds; the node
    /// probes it every third of this time.
    #[schemars(range(min = 100))]
    pub silence_ms: u64,
    /// The longest pause between attempts to connect, in milliseconds.
    #[schemars(range(min = 50))]
    pub retry_ms_max: u64,
    /// Operations that members accept in one transaction, as set by their `--max-txn-ops`.
    #[schemars(range(min = 2))]
    pub txn_steps_max: u32,
    /// Deletions of more than this share of all objects, in percent, and of at least ten objects, at once or
    /// within a minute, are held back until an operator confirms them; 0 holds nothing back.
    #[schemars(range(min = 0, max = 100))]
    pub hold_deletions_percent: u32,
    /// Name of this node in the cluster; empty means the host name.
    pub node_name: String,
    /// How long a silent node counts as live, in seconds; a node renews its lease every third of this time.
    #[schemars(range(min = 2, max = 3600))]
    pub lease_s: u32,
    /// How long a node may lag behind the others before that is a problem, in seconds.
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

/// TLS with etcd members.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdTlsConfig {
    /// PEM file of the trust anchors for members' certificates; empty means those of the system.
    pub ca: String,
    /// PEM file of this node's client certificate, if members require one.
    pub cert: String,
    /// PEM file of its private key.
    pub key: String,
    /// Name that members' certificates must contain; empty means the host of the URL.
    pub sni: String,
}

impl EtcdConfig {
    /// Checks the rules that the schema cannot express.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        if self.host.is_empty() {
            let found = "no member is named";
            problems.push(problem("store.etcd.host", found).hint("such as http://127.0.0.1:2379"));
        }
        for (i, host) in self.host.iter().enumerate() {
            let is_http = host.starts_with("http://") || host.starts_with("https://");
            if !is_http || host.contains('@') {
                // The value may contain a password, so the message does not quote it.
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
