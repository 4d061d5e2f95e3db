//! Events of a running process: signals, and the completion of a handover.
//!
//! Maps signals to events; does not act on them.

use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

/// Event of the process.
pub(crate) enum ProcessEvent {
    End,
    Upgrade,
    /// SIGHUP, which other servers use for a reload; changes apply without it.
    Reload,
    /// SIGUSR1, which other servers use to reopen logs; log files are reopened without it.
    ReopenLogs,
    /// The process with this pid serves now.
    HandedOver(u32),
}

/// Signal handlers of the process, installed before it reports readiness.
pub(crate) struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    upgrade: Signal,
    hangup: Signal,
    reopen_logs: Signal,
    /// Whether standard input is a terminal. SIGHUP then means that the terminal was closed.
    has_terminal: bool,
}

impl ProcessSignals {
    pub(crate) fn listen() -> std::io::Result<ProcessSignals> {
        Ok(ProcessSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            upgrade: signal(SignalKind::user_defined2())?,
            hangup: signal(SignalKind::hangup())?,
            reopen_logs: signal(SignalKind::user_defined1())?,
            has_terminal: std::io::stdin().is_terminal(),
        })
    }

    /// Waits for the next event. Events that occurred between two calls are delivered.
    pub(crate) async fn next(&mut self, handed_over: &mut UnboundedReceiver<u32>) -> ProcessEvent {
        tokio::select! {
            _ = self.terminate.recv() => ProcessEvent::End,
            _ = self.interrupt.recv() => ProcessEvent::End,
            _ = self.upgrade.recv() => ProcessEvent::Upgrade,
            _ = self.hangup.recv() => match self.has_terminal {
                true => ProcessEvent::End,
                false => ProcessEvent::Reload,
            },
            _ = self.reopen_logs.recv() => ProcessEvent::ReopenLogs,
            Some(pid) = handed_over.recv() => ProcessEvent::HandedOver(pid),
        }
    }
}
