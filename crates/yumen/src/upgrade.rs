//! Upgrade without downtime: protocol between two processes, upgrade socket, and the `upgrade` command.
//!
//! The predecessor starts the successor and sends it the listening sockets. The successor compiles the
//! configuration and reports that it is ready. On the predecessor's command it serves; only then the
//! predecessor drains. On any earlier failure the predecessor continues to serve. A process has one
//! predecessor at most: the next upgrade waits for the end of its drain.

mod channel;
mod comparison;
mod config_receiver;
mod config_sender;
mod draining_predecessor;
mod error;
mod message;
mod predecessor;
mod predecessor_lag;
mod successor;
mod upgrade_socket;

pub(crate) use draining_predecessor::PredecessorSync;
pub(crate) use predecessor::{HandoverState, Predecessor, UpgradeOptions};
pub(crate) use successor::{HandoverReceived, Successor};
pub(crate) use upgrade_socket::{UpgradeProgress, UpgradeRequest, open_upgrade_socket};

use std::path::{Path, PathBuf};

use yumen_config::NodeConfig;

/// Environment variable that marks a successor; its value names the channel to the predecessor.
const VARIABLE: &str = "YUMEN_TAKES_OVER_FROM";
/// File name of the upgrade socket in the data directory.
const SOCKET: &str = "upgrade.sock";

/// Path of the upgrade socket.
pub(crate) fn socket(node: &NodeConfig) -> PathBuf {
    match node.upgrade.socket.as_str() {
        "" => Path::new(&node.store.data_dir).join(SOCKET),
        path => PathBuf::from(path),
    }
}
