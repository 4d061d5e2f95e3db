//! Receiver of the successor's configuration in the predecessor, which serves draining connections by it.
//!
//! Owns transport and publication of updates; must not interpret their content.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use yumen_config::Kind;
use yumen_store::{EntryChange, ResourceKey, Revision, StoreState};

use super::handover_store::HandoverStore;
use super::message::{ConfigUpdate, ObjectText, PredecessorMessage};
use crate::control::{ConfigDelta, ControlHandle, ControlMessage};

/// Text and expiry of an object; `None` for a deleted object.
type ObjectUpdate = (ResourceKey, Option<(Arc<str>, Option<u64>)>);

/// Configuration updates from the successor, until they are published here.
pub(super) struct ConfigReceiver {
    held: Arc<HandoverStore>,
    control: ControlHandle,
    texts: Vec<ObjectUpdate>,
    is_whole: bool,
    /// Number of complete updates received.
    updates_received: u64,
    /// Receives the publication number of the last update while it is being compiled.
    compiling: Option<Receiver<u64>>,
    /// Updates published here that earlier processes have not applied yet, with their publication numbers.
    waiting_for_predecessors: VecDeque<(u64, u64)>,
}

impl ConfigReceiver {
    pub(super) fn new(held: Arc<HandoverStore>, control: ControlHandle) -> ConfigReceiver {
        ConfigReceiver {
            held,
            control,
            texts: Vec::new(),
            is_whole: false,
            updates_received: 0,
            compiling: None,
            waiting_for_predecessors: VecDeque::new(),
        }
    }

    /// Takes one part of an update. The last part publishes the update as a whole.
    pub(super) fn take(&mut self, told: ConfigUpdate) {
        self.is_whole |= told.is_whole;
        self.texts.extend(told.objects.into_iter().filter_map(read));
        if told.is_more_to_come {
            return;
        }
        let mut texts = std::mem::take(&mut self.texts);
        // A process that is ending has no state left to override.
        let before = self.held.state().unwrap_or_default();
        let revision = Revision(told.revision);
        let news =
            match std::mem::take(&mut self.is_whole) {
                true => {
                    // A complete update does not list deletions: derive them from absent objects.
                    let there: BTreeSet<&ResourceKey> = texts.iter().map(|(key, _)| key).collect();
                    let gone = before.entries().map(|(key, _)| key).filter(|key| !there.contains(key));
                    let gone: Vec<_> = gone.map(|key| (key.clone(), None)).collect();
                    texts.extend(gone);
                    ConfigDelta::Whole(self.hold(before.with(revision, texts)))
                }
                false => {
                    let now = self.hold(before.clone().with(revision, texts));
                    let changed = |(key, before, after): (&ResourceKey, Option<&_>, Option<&_>)| {
                        EntryChange { key: key.clone(), before: before.cloned(), after: after.cloned() }
                    };
                    ConfigDelta::Changes(before.differences(&now).map(changed).collect(), revision)
                }
            };
        let (answer, answered) = channel();
        // Fails only if the process is ending and the control thread with it.
        let _ = self.control.messages.send(ControlMessage::SuccessorConfig(news, answer));
        self.updates_received += 1;
        self.compiling = Some(answered);
    }

    /// Overrides the state before its publication: the sender to earlier processes reads it then.
    fn hold(&self, state: StoreState) -> StoreState {
        self.held.override_state(state.clone());
        state
    }

    /// Whether an update is not applied everywhere yet.
    pub(super) fn is_under_way(&self) -> bool {
        self.compiling.is_some() || !self.waiting_for_predecessors.is_empty()
    }

    /// Waits at most `within` for a status message about updates in flight.
    pub(super) fn comes_within(&mut self, within: Duration) -> Option<PredecessorMessage> {
        if let Some(answered) = &self.compiling {
            match answered.recv_timeout(within) {
                Ok(number) => {
                    self.compiling = None;
                    self.waiting_for_predecessors.push_back((self.updates_received, number));
                    return Some(PredecessorMessage::InForce(self.control.shown.broken()));
                }
                Err(RecvTimeoutError::Timeout) => return self.has_spread_within(Duration::ZERO),
                Err(RecvTimeoutError::Disconnected) => self.compiling = None,
            }
        }
        self.has_spread_within(within)
    }

    fn has_spread_within(&mut self, within: Duration) -> Option<PredecessorMessage> {
        let (_, oldest) = *self.waiting_for_predecessors.front()?;
        if !self.control.reach.is_everywhere_within(oldest, within) {
            return None;
        }
        let newest_applied = self.control.reach.newest_applied();
        let mut followed = 0;
        while let Some((telling, _)) =
            self.waiting_for_predecessors.pop_front_if(|(_, number)| *number <= newest_applied)
        {
            followed = telling;
        }
        Some(PredecessorMessage::Followed(followed))
    }
}

/// `None` for a kind that this version does not know; this process serves no such objects anyway.
fn read(ObjectText { kind, id, json, expires_ms }: ObjectText) -> Option<ObjectUpdate> {
    Some((ResourceKey::new(Kind::from_name(&kind)?, id), json.map(|json| (json.into(), expires_ms))))
}
