//! Settings of how one process of a node takes over from another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a new binary takes over from a running one, by `yumen upgrade` or SIGUSR2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpgradeConfig {
    /// The Unix socket `yumen upgrade` asks at. Empty is `upgrade.sock` in `store.data_dir`, if that directory
    /// is there. Whoever may open it may have any binary run: the gateway lets its own user in, and root.
    pub socket: String,
    /// How long the new process may take until it could serve, in seconds; after that the old one goes on.
    #[schemars(range(min = 1, max = 3600))]
    pub ready_s: u32,
    /// How long the old process stays for WebSockets, streams and other exchanges that go on, in seconds; 0 stays
    /// until the last has ended.
    pub drain_s: u32,
    /// A file that holds the number of the process that serves; empty writes none.
    pub pid_file: String,
}

impl Default for UpgradeConfig {
    fn default() -> Self {
        UpgradeConfig { socket: String::new(), ready_s: 60, drain_s: 3600, pid_file: String::new() }
    }
}
