//! One process of a node takes over from another without a connection lost: what is said between the two, who
//! may ask for it, and the command that asks.
//!
//! The process that serves starts the one that takes over and hands it the listening sockets. That one compiles
//! the configuration and says that it could serve; only then it is told to, and only when it does the first one
//! drains. Whatever fails before leaves the first one as it was.

mod channel;
mod command;
mod comparison;
mod config_receiver;
mod config_sender;
mod exclusive;
mod handover_store;
mod message;
mod predecessor;
mod successor;
mod upgrade_socket;

pub(crate) use command::upgrade;
pub(crate) use exclusive::ExclusiveStore;
pub(crate) use handover_store::HandoverStore;
pub(crate) use predecessor::{HandoverState, Predecessor, UpgradeOptions};
pub(crate) use successor::{HandoverReceived, PredecessorSync, Successor};
pub(crate) use upgrade_socket::open_door;

use std::path::{Path, PathBuf};

use yumen_config::NodeConfig;

/// Set for a process that shall take over: where it finds the one that starts it.
const VARIABLE: &str = "YUMEN_TAKES_OVER_FROM";
/// What the log says when another process serves.
const HANDED_OVER: &str = "another process serves now";
/// The socket upgrades are asked for at.
const SOCKET: &str = "upgrade.sock";

/// Where upgrades are asked for.
pub(crate) fn socket(node: &NodeConfig) -> PathBuf {
    match node.upgrade.socket.as_str() {
        "" => Path::new(&node.store.data_dir).join(SOCKET),
        place => PathBuf::from(place),
    }
}
