//! Settings of how one process of a node takes over from another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upgrade to a new binary, by `yumen upgrade` or SIGUSR2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpgradeConfig {
    /// Unix socket for `yumen upgrade`. Empty means `upgrade.sock` in `store.data_dir`, if that directory exists. Requests
    /// are accepted from the user of the gateway and from root, since they name a binary to execute.
    pub socket: String,
    /// Time within which the new process must be ready to serve, in seconds; otherwise the old one continues.
    #[schemars(range(min = 1, max = 3600))]
    pub ready_s: u32,
    /// Time for which the old process continues WebSockets, streams and exchanges in flight, in seconds; 0 means until
    /// the last has ended. The next upgrade is refused meanwhile, unless it ends them (`--end-drain`).
    pub drain_s: u32,
    /// File with the id of the process that serves; empty writes none.
    pub pid_file: String,
}

impl Default for UpgradeConfig {
    fn default() -> Self {
        UpgradeConfig { socket: String::new(), ready_s: 60, drain_s: 3600, pid_file: String::new() }
    }
}
