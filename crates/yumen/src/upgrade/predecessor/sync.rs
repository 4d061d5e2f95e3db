//! After the handover: counters and open connections for the successor, configuration updates from it, until
//! the last connection of this process has ended.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use yumen_plugin::ExportedState;

use super::super::channel::HandoverChannel;
use super::super::config_receiver::ConfigReceiver;
use super::super::message::{PredecessorMessage, SuccessorMessage};
use super::{HandoverState, MESSAGE_WITHIN, Predecessor, RESPONSES_WITHIN};

/// Interval of counter reports after the handover.
const COUNT_EVERY: Duration = Duration::from_millis(100);

impl Predecessor {
    /// Starts the exchange with the successor; `exported` is the state that it has.
    pub(super) fn start_sync(self: &Arc<Self>, channel: HandoverChannel, exported: ExportedState) {
        let predecessor = self.clone();
        let run = move || {
            if predecessor.sync_until_drained(&channel, exported).is_err() {
                // Without a successor nothing updates the configuration: drain soon instead of serving a
                // stale one.
                predecessor.drain_ended.notify_one();
            }
            // The successor takes the end of the channel for the exit of this process.
            while !predecessor.has_drained.load(Ordering::Acquire) {
                std::thread::sleep(COUNT_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("yumen-handover".into()).spawn(run);
        *self.sync.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
    }

    /// Returns once this process has drained. An error means that the successor has exited, has stopped
    /// reading, or sends invalid data.
    fn sync_until_drained(&self, channel: &HandoverChannel, mut exported: ExportedState) -> io::Result<()> {
        let HandoverState { store, control, carry, workers, .. } = &self.handover;
        let mut updates = ConfigReceiver::new(store.clone(), control.clone());
        let mut reported_connections = None;
        loop {
            let has_drained = self.has_drained.load(Ordering::Acquire);
            let (since, newest) = carry.export_since(&exported);
            exported = newest;
            if !since.is_empty() {
                channel.send(&PredecessorMessage::Counted(since))?;
            }
            if has_drained {
                return Ok(());
            }
            let connections = workers.open_connections();
            if reported_connections.replace(connections) != Some(connections) {
                channel.send(&PredecessorMessage::Connections(connections))?;
            }
            let wait = match updates.is_compiling() {
                true => {
                    if let Some(report) = updates.published_within(COUNT_EVERY) {
                        channel.send(&report)?;
                    }
                    Duration::ZERO
                }
                false => COUNT_EVERY,
            };
            if channel.is_readable_within(wait) {
                match channel.receive(Some(Instant::now() + MESSAGE_WITHIN))? {
                    SuccessorMessage::EndDrain => self.drain_ended.notify_one(),
                    SuccessorMessage::Configured(update) => updates.take(update),
                    _ => {}
                }
            }
        }
    }

    /// Sends the final counters and waits for the responses to requesters: the process is ending.
    pub(crate) fn finish(&self) {
        self.has_drained.store(true, Ordering::Release);
        let until = Instant::now() + RESPONSES_WITHIN;
        while self.requesters.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sync = self.sync.lock().unwrap_or_else(PoisonError::into_inner).take();
        sync.map(JoinHandle::join);
    }
}
