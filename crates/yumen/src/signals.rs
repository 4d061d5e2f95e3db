//! What a running process hears of: signals, and that another process serves.
//!
//! Knows what a signal means, not what comes of it.

use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

/// What the running process hears of.
pub(crate) enum ProcessEvent {
    End,
    Upgrade,
    /// Others read their configuration anew then; here there is nothing to do.
    Reload,
    /// Others open their logs anew then; here there is nothing to do either.
    ReopenLogs,
    /// This process serves now.
    HandedOver(u32),
}

/// The signals the process hears, from before it says it is ready.
pub(crate) struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    upgrade: Signal,
    hangup: Signal,
    reopen_logs: Signal,
    /// Somebody sees what is printed, and ends it by going away.
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

    /// Returns when another one has come, or another process serves; one that came before is not lost.
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
