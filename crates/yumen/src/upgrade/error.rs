//! Reasons why an upgrade did not happen.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::draining_predecessor::DrainStatus;

/// Error of an upgrade. Except for [`UpgradeError::Ending`], the running process continues to serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("the gateway is ending")]
    Ending,
    #[error("process {0} has already taken over; send the request to it")]
    HandedOver(u32),
    #[error("another upgrade is in progress")]
    InProgress,
    #[error("{0}; retry after its end, or end the drain with --end-drain")]
    PredecessorDrains(DrainStatus),
    #[error("{status}; its drain was ended {seconds} s ago: kill the process and retry")]
    PredecessorHangs { status: DrainStatus, seconds: u64 },
    #[error("{}: {error}", program.display())]
    Start { program: PathBuf, error: io::Error },
    #[error("successor exited before it was ready")]
    ExitedEarly,
    /// The successor exited by itself, after `error`.
    #[error("{error} ({status})")]
    Exited { error: Box<UpgradeError>, status: ExitStatus },
    /// The successor aborted, with its reason.
    #[error("{0}")]
    Refused(String),
    #[error("successor not ready within {seconds} s (upgrade.ready_s)")]
    NotReady { seconds: u64 },
    #[error("successor served before it was allowed to")]
    ServedEarly,
    #[error("unexpected message from the successor")]
    UnexpectedMessage,
    #[error("invalid message from the successor: {0}")]
    InvalidMessage(io::Error),
    #[error("the handover to the successor failed: {0}")]
    Channel(io::Error),
    /// Objects that serve now and would not in the successor.
    #[error("{0}")]
    Losses(String),
}

impl UpgradeError {
    /// Failure of a read or write on the channel. A closed channel means that the successor has exited.
    pub(super) fn of_channel(error: io::Error) -> UpgradeError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => UpgradeError::ExitedEarly,
            _ => UpgradeError::Channel(error),
        }
    }
}
