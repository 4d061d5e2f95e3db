//! Problems of the predecessor: it does not apply configuration updates, or cannot compile an object.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use yumen_base::Problem;

use crate::control::{ControlMessage, ProblemSource};

/// Differences between the configuration of this process and that of the predecessor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PredecessorLag {
    /// Pid of the predecessor while it does not apply updates; 0 if the system does not provide it.
    pub(super) stalled_pid: Option<i32>,
    /// Objects that are valid here and broken in the predecessor.
    pub(super) broken_in_predecessor: Vec<String>,
}

/// Publishes the lag as problems of the node.
pub(super) struct LagReport {
    lag: Mutex<PredecessorLag>,
    messages: Sender<ControlMessage>,
}

impl LagReport {
    pub(super) fn new(messages: Sender<ControlMessage>) -> LagReport {
        LagReport { lag: Mutex::default(), messages }
    }

    /// Changes the lag, and publishes it if it differs.
    pub(super) fn update(&self, change: impl FnOnce(&mut PredecessorLag)) {
        let mut lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lag.clone();
        change(&mut lag);
        if *lag != before {
            // Sent under the lock, so that concurrent changes arrive in order. Fails only if the process is
            // ending and the control thread with it.
            let _ = self.messages.send(ControlMessage::Problems(ProblemSource::Upgrade, lag.problems()));
        }
    }

    /// Withdraws all problems: the predecessor has exited.
    pub(super) fn clear(&self) {
        self.update(|lag| *lag = PredecessorLag::default());
    }
}

impl PredecessorLag {
    fn problems(&self) -> Vec<Problem> {
        let stalled = self.stalled_pid.map(|pid| {
            let pid = if pid > 0 { format!(", process {pid},") } else { String::new() };
            let message = format!(
                "the predecessor{pid} does not apply configuration changes: its connections may use an older \
                 configuration"
            );
            Problem::warning("node", "", message).hint("kill the process if that lasts")
        });
        let broken = self.broken_in_predecessor.first().map(|first| {
            let count = self.broken_in_predecessor.len();
            let message = format!(
                "{count} objects cannot be compiled by the predecessor, the first is {first}: its connections use \
                 their last good versions"
            );
            Problem::warning("node", "", message).hint("kill the predecessor if its connections must not use them")
        });
        stalled.into_iter().chain(broken).collect()
    }
}
