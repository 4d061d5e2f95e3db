//! Sender of the configuration to the predecessor, for as long as that has connections.
//!
//! Owns differences and acknowledgements; must not interpret their content.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yumen_base::Problem;
use yumen_store::{ResourceKey, Revision, StoreEntry, StoreState};

use super::channel::HandoverChannel;
use super::handover_store::HandoverStore;
use super::message::{ConfigUpdate, ObjectText, SuccessorMessage};
use crate::applied_tracker::{AppliedLag, AppliedTracker};
use crate::control::{ControlMessage, ProblemSource};

/// Maximum size of one part of an update in bytes, so that a large configuration does not delay counters.
const TOGETHER_BYTES: usize = 1 << 20;
/// Time after which a predecessor that has not applied an update is reported as a problem.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

/// Status reports of the predecessor, with notification.
#[derive(Default)]
pub(super) struct PredecessorStatus {
    heard: Mutex<PredecessorReports>,
    news: Condvar,
}

#[derive(Default)]
struct PredecessorReports {
    /// Number of updates published in the predecessor.
    in_force: u64,
    /// Number of updates applied in the predecessor and all processes before it.
    followed: u64,
    /// Publications that are applied everywhere once the given number of updates has been followed.
    expected: VecDeque<(u64, (u64, Revision))>,
    has_ended: bool,
}

impl PredecessorStatus {
    pub(super) fn is_in_force(&self) {
        self.heard().in_force += 1;
        self.news.notify_all();
    }

    pub(super) fn has_followed(&self, updates_received: u64, reach: &AppliedTracker) {
        let mut heard = self.heard();
        heard.followed = heard.followed.max(updates_received);
        let mut last = None;
        while let Some((_, news)) = heard.expected.pop_front_if(|(needed, _)| *needed <= updates_received) {
            last = Some(news);
        }
        last.into_iter().for_each(|news| reach.applied_everywhere(news));
    }

    pub(super) fn has_ended(&self) {
        self.heard().has_ended = true;
        self.news.notify_all();
    }

    /// Waits at most `within` for the end of the predecessor; returns whether it has ended.
    pub(super) fn wait_for_end(&self, within: Duration) -> bool {
        let waited = self.news.wait_timeout_while(self.heard(), within, |heard| !heard.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    /// Registers a publication as applied everywhere once the given number of updates has been followed.
    fn expect(&self, updates_received: u64, news: (u64, Revision), reach: &AppliedTracker) {
        let mut heard = self.heard();
        if heard.followed >= updates_received {
            return reach.applied_everywhere(news);
        }
        // Publications without changes, such as resolved addresses, wait for the same update; the newest is
        // enough.
        heard.expected.pop_back_if(|(needed, _)| *needed == updates_received);
        heard.expected.push_back((updates_received, news));
    }

    /// Waits until the predecessor has published the given number of updates, or has ended (`false`); `None`
    /// on timeout.
    fn serves_within(&self, updates_received: u64, within: Duration) -> Option<bool> {
        let is_open = |heard: &mut PredecessorReports| !heard.has_ended && heard.in_force < updates_received;
        let waited = self.news.wait_timeout_while(self.heard(), within, is_open);
        let (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match heard.in_force >= updates_received {
            true => Some(true),
            false => heard.has_ended.then_some(false),
        }
    }

    fn heard(&self) -> MutexGuard<'_, PredecessorReports> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes problems about predecessors that lag behind or cannot compile an object.
pub(super) fn show(messages: &Sender<ControlMessage>, lag: &AppliedLag) {
    let hangs = lag.waits_for().map(|pid| {
        // The pid is 0 where the system does not provide it.
        let pid = if pid > 0 { format!(" {pid}") } else { String::new() };
        let message = format!(
            "the process before{pid}, which finishes what it has begun, does not take over what changes: its \
             connections may be served by what was in force before"
        );
        Problem::warning("node", "", message).hint("end it if that lasts")
    });
    let broken = lag.broken_in_predecessor.first().map(|first| {
        let count = lag.broken_in_predecessor.len();
        let message = format!(
            "{count} objects cannot be used by the process before, the first is {first}: its connections are served \
             by what it had of them"
        );
        Problem::warning("node", "", message).hint("end it if that must not be")
    });
    // Fails only if the process is ending and the control thread with it.
    let _ = messages
        .send(ControlMessage::Problems(ProblemSource::Upgrade, hangs.into_iter().chain(broken).collect()));
}

/// Sender of configuration updates to the predecessor.
pub(super) struct ConfigSender<'t> {
    pub(super) channel: &'t HandoverChannel,
    pub(super) before: &'t PredecessorStatus,
    pub(super) held: Arc<HandoverStore>,
    pub(super) reach: Arc<AppliedTracker>,
    pub(super) messages: Sender<ControlMessage>,
}

impl ConfigSender<'_> {
    /// Sends every publication until the predecessor has ended.
    ///
    /// A predecessor that stops reading may still serve: no revision counts as applied until it has ended. A
    /// predecessor that waits for earlier processes still receives updates.
    pub(super) fn run(&self) {
        let (mut told, mut known, mut updates_received) = (None, 0, 0);
        while let Some(news) = self.reach.next_after(known) {
            // `None`: this process is ending, and its state is no longer authoritative.
            let Some(state) = self.held.state() else { return };
            // Resolved addresses, for example, change no object: the predecessor resolves by itself.
            if has_news(told.as_ref(), &state) {
                if self.tell(told.as_ref(), &state).is_err() {
                    // A predecessor that reads again finds the end of the stream, and ends.
                    self.channel.shut_down_write();
                    self.wait(u64::MAX);
                    return;
                }
                updates_received += 1;
            }
            self.before.expect(updates_received, news, &self.reach);
            if !self.wait(updates_received) {
                return;
            }
            (told, known) = (Some(state), news.0);
        }
    }

    /// Waits until the predecessor has published the given number of updates; `false` if it has ended.
    /// Reports it as stalled after `FOLLOWED_WITHIN`.
    fn wait(&self, updates_received: u64) -> bool {
        if let Some(serves) = self.before.serves_within(updates_received, FOLLOWED_WITHIN) {
            return serves;
        }
        let pid = self.channel.peer().unwrap_or(0);
        self.set_lag(|lag| lag.stalled_pid = Some(pid));
        let serves = loop {
            if let Some(serves) = self.before.serves_within(updates_received, Duration::from_secs(60)) {
                break serves;
            }
        };
        self.set_lag(|lag| lag.stalled_pid = None);
        serves
    }

    fn set_lag(&self, note: impl FnOnce(&mut AppliedLag)) {
        self.reach.set_lag(note, |lag| show(&self.messages, lag));
    }

    fn tell(&self, told: Option<&StoreState>, state: &StoreState) -> std::io::Result<()> {
        let nothing = StoreState::default();
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let say = |objects, is_more_to_come| {
            let (revision, is_whole) = (state.revision.0, told.is_none());
            self.channel.send(&SuccessorMessage::Configured(ConfigUpdate {
                revision,
                is_whole,
                is_more_to_come,
                objects,
            }))
        };
        for (key, after) in news(told.unwrap_or(&nothing), state) {
            let (json, expires_ms) = after.map(StoreEntry::text_and_end).unzip();
            let json = json.map(|json| json.to_string());
            bytes += json.as_ref().map_or(0, String::len) + key.id.len();
            let (kind, id) = (key.kind.name().to_owned(), key.id.to_string());
            objects.push(ObjectText { kind, id, json, expires_ms: expires_ms.flatten() });
            if bytes >= TOGETHER_BYTES {
                bytes = 0;
                say(std::mem::take(&mut objects), true)?;
            }
        }
        say(objects, false)
    }
}

/// Whether the state differs from the one sent last.
fn has_news(told: Option<&StoreState>, state: &StoreState) -> bool {
    told.is_none_or(|told| news(told, state).next().is_some())
}

/// Objects that differ in text or expiry; `None` for a deleted object.
fn news<'s>(
    told: &'s StoreState,
    state: &'s StoreState,
) -> impl Iterator<Item = (&'s ResourceKey, Option<&'s StoreEntry>)> {
    told.differences(state).filter_map(|(key, before, after)| {
        (before.map(StoreEntry::text_and_end) != after.map(StoreEntry::text_and_end)).then_some((key, after))
    })
}

#[cfg(test)]
mod tests;
