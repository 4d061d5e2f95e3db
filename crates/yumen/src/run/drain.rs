//! The end of a process: after a signal, or after a handover.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use yumen_proxy::WorkerDuty;
use yumen_store::etcd::AnnouncedNode;

use super::GatewayProcess;
use crate::process;
use crate::process::service;
use crate::process::signals::{ProcessEvent, ProcessSignals};
use crate::upgrade::{Predecessor, UpgradeOptions};

/// Time for tasks of the control runtime after the last connection has ended.
const TASKS_END_WITHIN: Duration = Duration::from_millis(200);

impl GatewayProcess {
    /// Runs until a signal or a handover, then drains.
    pub(super) fn run(mut self) {
        let successor = loop {
            match self.runtime.block_on(self.signals.next(&mut self.handed_over)) {
                ProcessEvent::End => break None,
                ProcessEvent::HandedOver(pid) => break Some(pid),
                ProcessEvent::Upgrade => start_upgrade(&self.predecessor),
                ProcessEvent::Reload => {
                    tracing::info!("SIGHUP ignored: configuration changes apply without a reload")
                }
                ProcessEvent::ReopenLogs => {
                    tracing::info!("SIGUSR1 ignored: log files are reopened after rotation without it");
                }
            }
        };
        let limits = self.predecessor.drain_limits();
        let early = WorkerDuty::End { within_ms: limits.early_ms };
        let duty = match successor {
            None => {
                service::notify("STOPPING=1");
                // Before the workers drain: no upgrade may begin any more.
                self.predecessor.end_gateway();
                self.linger();
                early
            }
            Some(pid) => {
                tracing::info!(pid, "draining, successor serves");
                if let Some(kubernetes) = &self.config_source.kubernetes {
                    kubernetes.hand_over();
                }
                // The successor runs these tasks from now on.
                self.exclusive.iter().for_each(AbortHandle::abort);
                // New operator requests must reach the successor.
                self.operators.stop();
                WorkerDuty::HandOver { within_ms: limits.after_handover_ms }
            }
        };
        // Fails only if all workers have ended.
        let _ = self.duty.send(duty);
        let drain = EarlyDrainEnd { duty: self.duty, early: successor.map(|_| early) };
        self.runtime.spawn(drain.run(self.signals, self.handed_over, self.predecessor.clone()));
        let leave = if successor.is_some() { AnnouncedNode::hand_over } else { AnnouncedNode::leave };
        // Before the workers are joined: the drain may take hours.
        self.announced.take().into_iter().for_each(leave);
        // The process ends with its last connection or at the limit.
        self.workers.join();
        // The workers have handed over their entries.
        self.senders.finish(&self.runtime);
        self.predecessor.finish();
        match successor {
            Some(_) => self.runtime.block_on(self.operators.join()),
            None => {
                process::remove_pid_file(&self.node.upgrade.pid_file);
                // If another gateway had this path, this process could not have opened the socket.
                self.upgrade_socket.into_iter().for_each(|path| drop(std::fs::remove_file(path)));
            }
        }
        self.runtime.shutdown_timeout(TASKS_END_WITHIN);
        tracing::info!("stopped");
    }
}

impl GatewayProcess {
    /// In a cluster of Kubernetes, load balancers learn with a delay that this process ends: it goes on accepting for
    /// `kubernetes.linger_s`, or until a further signal.
    fn linger(&mut self) {
        let seconds = self.node.kubernetes.linger_s;
        if let Some(kubernetes) = &self.config_source.kubernetes {
            tracing::info!(seconds, "not ready, accepting until load balancers have left this node");
            kubernetes.end();
            let (signals, handed_over) = (&mut self.signals, &mut self.handed_over);
            self.runtime.block_on(async {
                let ended = async { while !matches!(signals.next(handed_over).await, ProcessEvent::End) {} };
                // An error is the end of the time.
                let _ = tokio::time::timeout(Duration::from_secs(seconds), ended).await;
            });
        }
        tracing::info!("draining");
    }
}

/// Starts an upgrade requested by SIGUSR2. Steps and failures go to the node log.
fn start_upgrade(predecessor: &Arc<Predecessor>) {
    let (predecessor, requester) = (predecessor.clone(), predecessor.register_requester());
    let run = move || {
        let mut report = |step: &str| tracing::info!(step, "upgrade");
        if let Err(reason) = predecessor.hand_over(&UpgradeOptions::default(), &mut report) {
            tracing::error!(%reason, "not upgraded");
        }
        drop(requester);
    };
    if let Err(error) = std::thread::Builder::new().name("yumen-upgrade".into()).spawn(run) {
        tracing::error!(%error, "not upgraded");
    }
}

/// Ends the drain of a process early.
struct EarlyDrainEnd {
    duty: watch::Sender<WorkerDuty>,
    /// Duty of the shortened drain; `None` once that duty is in effect.
    early: Option<WorkerDuty>,
}

impl EarlyDrainEnd {
    /// A signal, or the successor, ends the drain after a handover early. A further signal exits at once.
    async fn run(
        mut self,
        mut signals: ProcessSignals,
        mut handed_over: UnboundedReceiver<u32>,
        predecessor: Arc<Predecessor>,
    ) {
        handed_over.close();
        loop {
            let event = tokio::select! {
                event = signals.next(&mut handed_over) => event,
                () = predecessor.drain_ended() => {
                    self.shorten_drain();
                    continue;
                }
            };
            match event {
                ProcessEvent::End if !self.shorten_drain() => {
                    tracing::warn!("second signal, exiting immediately");
                    std::process::exit(1);
                }
                ProcessEvent::End | ProcessEvent::Reload | ProcessEvent::ReopenLogs => {}
                _ => tracing::error!("upgrade refused: this process is shutting down"),
            }
        }
    }

    /// Switches to the shortened drain; `false` if it is already in effect.
    fn shorten_drain(&mut self) -> bool {
        let Some(early) = self.early.take() else { return false };
        tracing::info!("drain shortened");
        let _ = self.duty.send(early);
        true
    }
}
