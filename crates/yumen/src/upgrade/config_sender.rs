//! Sender of the configuration to the predecessor, as long as that has connections.
//!
//! Owns differences between states; must not interpret their content.

use std::sync::Arc;
use std::time::Duration;

use yumen_store::{ResourceKey, StoreEntry, StoreState};

use super::channel::HandoverChannel;
use super::draining_predecessor::PredecessorReports;
use super::message::{ConfigUpdate, ObjectText, SuccessorMessage};
use super::predecessor_lag::LagReport;
use crate::config::handover_store::HandoverStore;
use crate::control::applied_tracker::AppliedTracker;

/// Maximum size of one part of an update in bytes, so that a large configuration does not delay counters.
const PART_BYTES_MAX: usize = 1 << 20;
/// Time after which a predecessor that has not applied an update is reported as a problem.
const APPLIED_WITHIN: Duration = Duration::from_secs(5);

/// Sender of configuration updates to the predecessor.
pub(super) struct ConfigSender<'t> {
    pub(super) channel: &'t HandoverChannel,
    pub(super) reports: &'t PredecessorReports,
    pub(super) store: Arc<HandoverStore>,
    pub(super) applied_tracker: Arc<AppliedTracker>,
    pub(super) lag: Arc<LagReport>,
}

impl ConfigSender<'_> {
    /// Sends every publication until the predecessor has exited.
    ///
    /// A predecessor that stops reading may still serve: no revision counts as applied until it has exited.
    pub(super) fn run(&self) {
        let (mut sent, mut known, mut updates) = (None, 0, 0);
        while let Some(publication) = self.applied_tracker.next_after(known) {
            // `None`: this process is ending, and its state is no longer authoritative.
            let Some(state) = self.store.state() else { return };
            // Resolved addresses, for example, change no object: the predecessor resolves by itself.
            if differs(sent.as_ref(), &state) {
                if self.send(sent.as_ref(), &state).is_err() {
                    // A predecessor that reads again finds the end of the stream, and ends.
                    self.channel.shut_down_write();
                    self.wait(u64::MAX);
                    return;
                }
                updates += 1;
            }
            if !self.wait(updates) {
                return;
            }
            self.applied_tracker.record_applied(publication);
            (sent, known) = (Some(state), publication.number);
        }
    }

    /// Waits until the predecessor has published the given number of updates; `false` if it has exited.
    /// Reports it as stalled after `APPLIED_WITHIN`.
    fn wait(&self, updates: u64) -> bool {
        if let Some(publishes) = self.reports.publishes_within(updates, APPLIED_WITHIN) {
            return publishes;
        }
        let pid = self.channel.peer().unwrap_or(0);
        self.lag.update(|lag| lag.stalled_pid = Some(pid));
        let publishes = loop {
            if let Some(publishes) = self.reports.publishes_within(updates, Duration::from_secs(60)) {
                break publishes;
            }
        };
        self.lag.update(|lag| lag.stalled_pid = None);
        publishes
    }

    /// Sends the state in parts: the whole, or the differences from the state sent before.
    fn send(&self, before: Option<&StoreState>, state: &StoreState) -> std::io::Result<()> {
        let empty = StoreState::default();
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let send_part = |objects, is_more_to_come| {
            let (revision, is_whole) = (state.revision.0, before.is_none());
            let update = ConfigUpdate { revision, is_whole, is_more_to_come, objects };
            self.channel.send(&SuccessorMessage::Configured(update))
        };
        for (key, after) in differences(before.unwrap_or(&empty), state) {
            let (json, expires_ms) = after.map(StoreEntry::text_and_end).unzip();
            let json = json.map(|json| json.to_string());
            bytes += json.as_ref().map_or(0, String::len) + key.id.len();
            let (kind, id) = (key.kind.name().to_owned(), key.id.to_string());
            objects.push(ObjectText { kind, id, json, expires_ms: expires_ms.flatten() });
            if bytes >= PART_BYTES_MAX {
                bytes = 0;
                send_part(std::mem::take(&mut objects), true)?;
            }
        }
        send_part(objects, false)
    }
}

/// Whether the state differs from the one sent before.
fn differs(before: Option<&StoreState>, state: &StoreState) -> bool {
    before.is_none_or(|before| differences(before, state).next().is_some())
}

/// Objects that differ in text or expiry; `None` for a deleted object.
fn differences<'s>(
    before: &'s StoreState,
    state: &'s StoreState,
) -> impl Iterator<Item = (&'s ResourceKey, Option<&'s StoreEntry>)> {
    before.differences(state).filter_map(|(key, before, after)| {
        (before.map(StoreEntry::text_and_end) != after.map(StoreEntry::text_and_end)).then_some((key, after))
    })
}

#[cfg(test)]
mod tests;
