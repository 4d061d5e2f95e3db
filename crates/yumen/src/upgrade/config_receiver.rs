//! Receiver of the successor's configuration in the predecessor, for its draining connections.
//!
//! Owns transport and publication of updates; must not interpret their content.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use yumen_config::Kind;
use yumen_store::{EntryChange, ResourceKey, Revision, StoreState};

use super::message::{ConfigUpdate, ObjectText, PredecessorMessage};
use crate::config::handover_store::HandoverStore;
use crate::control::{ConfigDelta, ControlHandle, ControlMessage};

/// Text and expiry of an object; `None` for a deleted object.
type ObjectUpdate = (ResourceKey, Option<(Arc<str>, Option<u64>)>);

/// Configuration updates from the successor, until they are published here.
pub(super) struct ConfigReceiver {
    store: Arc<HandoverStore>,
    control: ControlHandle,
    objects: Vec<ObjectUpdate>,
    is_whole: bool,
    /// Signalled when the last update is published; `None` if no update is being compiled.
    compiling: Option<Receiver<()>>,
}

impl ConfigReceiver {
    pub(super) fn new(store: Arc<HandoverStore>, control: ControlHandle) -> ConfigReceiver {
        ConfigReceiver { store, control, objects: Vec::new(), is_whole: false, compiling: None }
    }

    /// Takes one part of an update. The last part publishes the update as a whole.
    pub(super) fn take(&mut self, update: ConfigUpdate) {
        self.is_whole |= update.is_whole;
        self.objects.extend(update.objects.into_iter().filter_map(parse));
        if update.is_more_to_come {
            return;
        }
        let objects = std::mem::take(&mut self.objects);
        // A process that is ending has no state left to override.
        let before = self.store.state().unwrap_or_default();
        let revision = Revision(update.revision);
        let delta = match std::mem::take(&mut self.is_whole) {
            true => whole(&before, objects, revision),
            false => changes(before, objects, revision),
        };
        self.store.override_state(delta.1);
        let (done, compiling) = channel();
        // Fails only if the process is ending and the control thread with it.
        let _ = self.control.messages.send(ControlMessage::SuccessorConfig(delta.0, done));
        self.compiling = Some(compiling);
    }

    /// Whether an update is being compiled.
    pub(super) fn is_compiling(&self) -> bool {
        self.compiling.is_some()
    }

    /// Waits at most `within` for the publication of the last update; returns the report about it.
    pub(super) fn published_within(&mut self, within: Duration) -> Option<PredecessorMessage> {
        match self.compiling.as_ref()?.recv_timeout(within) {
            Ok(()) => {
                self.compiling = None;
                Some(PredecessorMessage::InForce(self.control.status.broken()))
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.compiling = None;
                None
            }
        }
    }
}

/// A complete update, with the state after it. It does not list deletions: they follow from absent objects.
fn whole(
    before: &StoreState,
    mut objects: Vec<ObjectUpdate>,
    revision: Revision,
) -> (ConfigDelta, StoreState) {
    let present: BTreeSet<&ResourceKey> = objects.iter().map(|(key, _)| key).collect();
    let deleted = before.entries().map(|(key, _)| key).filter(|key| !present.contains(key));
    let deleted: Vec<_> = deleted.map(|key| (key.clone(), None)).collect();
    objects.extend(deleted);
    let state = before.clone().with(revision, objects);
    (ConfigDelta::Whole(state.clone()), state)
}

/// An update of some objects, with the state after it.
fn changes(before: StoreState, objects: Vec<ObjectUpdate>, revision: Revision) -> (ConfigDelta, StoreState) {
    let state = before.clone().with(revision, objects);
    let changed = |(key, before, after): (&ResourceKey, Option<&_>, Option<&_>)| EntryChange {
        key: key.clone(),
        before: before.cloned(),
        after: after.cloned(),
    };
    (ConfigDelta::Changes(before.differences(&state).map(changed).collect(), revision), state)
}

/// `None` for a kind that this version does not know; this process serves no such objects anyway.
fn parse(object: ObjectText) -> Option<ObjectUpdate> {
    let ObjectText { kind, id, json, expires_ms } = object;
    Some((ResourceKey::new(Kind::from_name(&kind)?, id), json.map(|json| (json.into(), expires_ms))))
}
