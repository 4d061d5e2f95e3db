//! The process that was taken over from, as to its configuration: it goes by what the one that serves holds.
//!
//! Knows how that is told and who puts it in force, not what it says.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use yumen_config::Kind;
use yumen_store::{EntryChange, ResourceKey, Revision, StoreState};

use super::handover_store::HandoverStore;
use super::message::{ConfigUpdate, ObjectText, PredecessorMessage};
use crate::control::{ConfigDelta, ControlHandle, ControlMessage};

/// The text of an object and its end; none where it is gone.
type ObjectUpdate = (ResourceKey, Option<(Arc<str>, Option<u64>)>);

/// What the process that serves says of its configuration, on its way into force here.
pub(super) struct ConfigReceiver {
    held: Arc<HandoverStore>,
    control: ControlHandle,
    texts: Vec<ObjectUpdate>,
    is_whole: bool,
    /// How much was told, to the last part.
    updates_received: u64,
    /// The last of it, while it is not in force here.
    compiling: Option<Receiver<u64>>,
    /// Tellings in force here that the processes before this one have yet to follow, with the numbers of their
    /// publications.
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

    /// Takes a part of what is told; with the last one it goes to be put in force, all at once.
    pub(super) fn take(&mut self, told: ConfigUpdate) {
        self.is_whole |= told.is_whole;
        self.texts.extend(told.objects.into_iter().filter_map(read));
        if told.is_more_to_come {
            return;
        }
        let mut texts = std::mem::take(&mut self.texts);
        // A process that ends has nothing to be followed any more.
        let before = self.held.state().unwrap_or_default();
        let revision = Revision(told.revision);
        let news =
            match std::mem::take(&mut self.is_whole) {
                true => {
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
        // The control thread ends with the process.
        let _ = self.control.messages.send(ControlMessage::SuccessorConfig(news, answer));
        self.updates_received += 1;
        self.compiling = Some(answered);
    }

    /// Before it is in force: the processes before this one are told what is held when they hear that something is.
    fn hold(&self, state: StoreState) -> StoreState {
        self.held.override_state(state.clone());
        state
    }

    /// Whether something that was told is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        self.compiling.is_some() || !self.waiting_for_predecessors.is_empty()
    }

    /// Waits for so long until there is something to say of what is under way.
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

/// Nothing for a kind of object of a later version: here it would be in force no more than before.
fn read(ObjectText { kind, id, json, expires_ms }: ObjectText) -> Option<ObjectUpdate> {
    Some((ResourceKey::new(Kind::from_name(&kind)?, id), json.map(|json| (json.into(), expires_ms))))
}
