//! The predecessor after the handover, as its successor sees it: connections that drain, counters, and the
//! configuration updates that it has published.
//!
//! Owns the exchange with the predecessor until that exits. A process has at most one predecessor.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use yumen_plugin::Carry;
use yumen_proxy::clock;

use super::channel::HandoverChannel;
use super::config_sender::ConfigSender;
use super::message::{DrainLimits, PredecessorMessage, SuccessorMessage};
use super::predecessor_lag::LagReport;
use crate::config::handover_store::HandoverStore;
use crate::control::ControlHandle;

/// Grace beyond a drain limit within which a process exits.
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Handle of the predecessor, which drains its connections.
pub(crate) struct DrainingPredecessor {
    channel: Arc<HandoverChannel>,
    reports: PredecessorReports,
    limits: DrainLimits,
    handed_over: Instant,
}

/// State shared with the predecessor until it exits.
pub(crate) struct PredecessorSync {
    pub(crate) carry: Arc<Carry>,
    pub(crate) store: Arc<HandoverStore>,
    pub(crate) control: ControlHandle,
}

/// Progress of a drain, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrainStatus {
    /// Process id; `None` if the system does not provide it.
    pub(crate) pid: Option<i32>,
    /// Client connections open.
    pub(crate) connections: u64,
    /// Time until the remaining connections are cut; `None` without a limit.
    pub(crate) left: Option<Duration>,
}

impl fmt::Display for DrainStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the predecessor")?;
        if let Some(pid) = self.pid {
            write!(f, ", process {pid},")?;
        }
        match self.connections {
            0 => f.write_str(" still drains: no client connections but UDP sessions open, ")?,
            count => write!(f, " still drains: {count} client connections open, ")?,
        }
        match self.left {
            Some(left) => write!(f, "at most {} s left (upgrade.drain_s)", left.as_secs()),
            None => f.write_str("no time limit (upgrade.drain_s is 0)"),
        }
    }
}

impl DrainingPredecessor {
    /// Handle of a predecessor that has just handed over.
    pub(super) fn new(channel: Arc<HandoverChannel>, limits: DrainLimits) -> DrainingPredecessor {
        DrainingPredecessor {
            channel,
            reports: PredecessorReports::default(),
            limits,
            handed_over: Instant::now(),
        }
    }

    /// Reports that this process accepts upgrade requests. Starts the exchange of counters and configuration
    /// updates.
    pub(crate) fn start_sync(self: &Arc<Self>, sync: PredecessorSync) -> anyhow::Result<()> {
        let _ = self.channel.send(&SuccessorMessage::Settled);
        let PredecessorSync { carry, store, control } = sync;
        let ControlHandle { messages, applied_tracker, .. } = control.clone();
        let lag = Arc::new(LagReport::new(messages));
        let (receiver, receiver_lag) = (self.clone(), lag.clone());
        let receive = move || receiver.receive_until_exit(&carry, &control, &receiver_lag);
        std::thread::Builder::new().name("yumen-successor".into()).spawn(receive)?;
        let sender = self.clone();
        let send = move || {
            let DrainingPredecessor { channel, reports, .. } = &*sender;
            ConfigSender { channel, reports, store, applied_tracker, lag }.run();
        };
        std::thread::Builder::new().name("yumen-config".into()).spawn(send)?;
        Ok(())
    }

    fn receive_until_exit(&self, carry: &Carry, control: &ControlHandle, lag: &LagReport) {
        while let Ok(message) = self.channel.receive(None) {
            match message {
                PredecessorMessage::Counted(state) => carry.take_over(&state, clock::exact()),
                PredecessorMessage::Connections(count) => self.reports.update(|all| all.connections = count),
                PredecessorMessage::InForce(mut broken) => {
                    let broken_here = control.status.broken();
                    broken.retain(|object| !broken_here.contains(object));
                    lag.update(|all| all.broken_in_predecessor = broken);
                    self.reports.update(|all| all.updates_published += 1);
                }
                _ => {}
            }
        }
        carry.go_on_alone();
        self.reports.update(|all| all.has_exited = true);
        lag.clear();
        control.applied_tracker.predecessor_ended();
        tracing::info!("predecessor exited");
    }

    /// Waits for the exit of a predecessor without connections, which is imminent, at most `EXIT_GRACE`.
    pub(super) fn wait_for_imminent_exit(&self) {
        self.reports.wait_while(EXIT_GRACE, |all| !all.has_exited && all.connections == 0);
    }

    /// Progress of the drain; `None` once the predecessor has exited.
    pub(super) fn drain_status(&self) -> Option<DrainStatus> {
        let reports = self.reports.lock();
        let limit = Some(self.limits.after_handover_ms).filter(|limit_ms| *limit_ms > 0);
        (!reports.has_exited).then(|| DrainStatus {
            pid: self.channel.peer(),
            connections: reports.connections,
            left: limit
                .map(|limit_ms| Duration::from_millis(limit_ms).saturating_sub(self.handed_over.elapsed())),
        })
    }

    /// Shortens the drain to `timeouts.drain_ms` of the predecessor.
    pub(crate) fn end_drain(&self) {
        self.channel.send_last(&SuccessorMessage::EndDrain);
    }

    /// Limit within which the predecessor exits after [`Self::end_drain`].
    pub(super) fn early_exit_within(&self) -> Duration {
        Duration::from_millis(self.limits.early_ms) + EXIT_GRACE
    }

    /// Waits at most `within` for the exit of the predecessor; returns whether it has exited.
    pub(super) fn has_exited_within(&self, within: Duration) -> bool {
        self.reports.wait_while(within, |all| !all.has_exited).has_exited
    }
}

/// Reports of the predecessor, with notification.
#[derive(Default)]
pub(super) struct PredecessorReports {
    newest: Mutex<PredecessorProgress>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PredecessorProgress {
    /// Number of updates published in the predecessor.
    pub(super) updates_published: u64,
    /// Client connections open in the predecessor.
    pub(super) connections: u64,
    pub(super) has_exited: bool,
}

impl PredecessorReports {
    pub(super) fn update(&self, change: impl FnOnce(&mut PredecessorProgress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until the predecessor has published the given number of updates, or has exited (`false`); `None`
    /// on timeout.
    pub(super) fn publishes_within(&self, updates: u64, within: Duration) -> Option<bool> {
        let newest = self.wait_while(within, |all| !all.has_exited && all.updates_published < updates);
        match newest.updates_published >= updates {
            true => Some(true),
            false => newest.has_exited.then_some(false),
        }
    }

    fn wait_while(
        &self,
        within: Duration,
        is_open: impl Fn(&PredecessorProgress) -> bool,
    ) -> PredecessorProgress {
        let waited = self.changed.wait_timeout_while(self.lock(), within, |newest| is_open(newest));
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, PredecessorProgress> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_pid_connections_and_time() {
        let status = DrainStatus { pid: Some(7), connections: 3, left: Some(Duration::from_millis(59_900)) };
        let expected = "the predecessor, process 7, still drains: 3 client connections open, at most 59 s left \
                        (upgrade.drain_s)";
        assert_eq!(status.to_string(), expected);
        let unbounded = DrainStatus { left: None, ..status };
        assert!(unbounded.to_string().ends_with("no time limit (upgrade.drain_s is 0)"), "{unbounded}");
    }
}
