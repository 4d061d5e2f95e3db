//! Settings of the handover between two processes of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handover from a running process to a new binary, by `yumen upgrade` or SIGUSR2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpgradeConfig {
    /// The Unix socket that `yumen upgrade` connects to. Empty means `upgrade.sock` in `store.data_dir`, if
    /// that directory exists. A program that may connect can start any binary as the gateway; only the
    /// gateway's own user and root may.
    pub socket: String,
    /// How long the new process may take to become ready, in seconds; after that the old one continues.
    #[schemars(range(min = 1, max = 3600))]
    pub ready_s: u32,
    /// How long the old process stays for WebSockets, streams and other exchanges in flight, in seconds; 0
    /// stays until the last has ended.
    pub drain_s: u32,
    /// A file with the process id of the serving process; empty writes none.
    pub pid_file: String,
}

impl Default for UpgradeConfig {
    fn default() -> Self {
        UpgradeConfig { socket: String::new(), ready_s: 60, drain_s: 3600, pid_file: String::new() }
    }
}
