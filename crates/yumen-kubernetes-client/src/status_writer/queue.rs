//! The order of status writes, without I/O: newest draft per object, priorities, pauses, bounds.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::error::ApiError;
use crate::object::ObjectAddress;
use crate::status_writer::StatusWrite;

/// The shortest time between the starts of two writes of one object, in milliseconds.
pub(super) const SPACING_MS: u64 = 500;
/// The most writes at a time.
pub(super) const IN_FLIGHT_MAX: usize = 16;
/// The pause after a denial, in milliseconds.
const DENIED_MS: u64 = 30_000;
/// The first and the longest pause after other failures, in milliseconds.
const FAILURE_MS: (u64, u64) = (800, 30_000);

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StatusStep {
    Write(Arc<ObjectAddress>, StatusWrite),
    /// Nothing to do until a moment, a new draft, or the end of a write.
    Wait {
        until_ms: Option<u64>,
    },
}

/// The end of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatusOutcome {
    /// Written, or as desired already.
    Done,
    /// The object does not exist.
    Missing,
    /// The write failed; the draft is tried again unless a newer one came.
    Failed(StatusWrite, ApiError),
}

/// The set that holds an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuePlace {
    Ready,
    InFlight,
    Paused,
}

#[derive(Debug)]
struct QueuedObject {
    draft: Option<StatusWrite>,
    place: QueuePlace,
    not_before_ms: u64,
    /// The order among objects of the same priority.
    sequence: u64,
    failures: u32,
}

/// Position in the ready set: priority, then order of arrival.
type ReadyKey = (u8, u64, Arc<ObjectAddress>);

#[derive(Debug, Default)]
pub(super) struct StatusQueue {
    objects: HashMap<Arc<ObjectAddress>, QueuedObject>,
    /// Objects with a draft whose pause is over.
    ready: BTreeSet<ReadyKey>,
    /// Objects that are paused, with or without a draft, by the end of the pause.
    paused: BTreeSet<(u64, Arc<ObjectAddress>)>,
    in_flight: usize,
    sequence: u64,
}

impl StatusQueue {
    /// Sets the desired status of an object, in place of an earlier one that was not written yet.
    pub(super) fn submit(&mut self, at: ObjectAddress, draft: StatusWrite, now_ms: u64) {
        self.sequence += 1;
        let key = match self.objects.get_key_value(&at) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::new(at),
        };
        let object = self.objects.entry(Arc::clone(&key)).or_insert_with(|| QueuedObject {
            draft: None,
            place: QueuePlace::Ready,
            not_before_ms: now_ms,
            sequence: self.sequence,
            failures: 0,
        });
        if object.draft.is_none() {
            object.sequence = self.sequence;
        }
        if object.place == QueuePlace::Ready {
            if let Some(old) = &object.draft {
                self.ready.remove(&(old.priority, object.sequence, Arc::clone(&key)));
            }
            self.ready.insert((draft.priority, object.sequence, key));
        }
        object.draft = Some(draft);
    }

    pub(super) fn next(&mut self, now_ms: u64) -> StatusStep {
        self.end_pauses(now_ms);
        if self.in_flight < IN_FLIGHT_MAX
            && let Some((_, _, key)) = self.ready.pop_first()
            && let Some(object) = self.objects.get_mut(&key)
            && let Some(draft) = object.draft.take()
        {
            object.place = QueuePlace::InFlight;
            object.not_before_ms = now_ms + SPACING_MS;
            self.in_flight += 1;
            return StatusStep::Write(key, draft);
        }
        StatusStep::Wait { until_ms: self.paused.first().map(|(until_ms, _)| *until_ms) }
    }

    /// Takes the end of a write that [`StatusQueue::next`] began.
    pub(super) fn finish(&mut self, at: &Arc<ObjectAddress>, outcome: StatusOutcome, now_ms: u64) {
        // After `clear` the writes that ran are unknown.
        let Some(object) = self.objects.get_mut(at).filter(|object| object.place == QueuePlace::InFlight)
        else {
            return;
        };
        object.place = QueuePlace::Paused;
        self.in_flight -= 1;
        match outcome {
            StatusOutcome::Done => object.failures = 0,
            StatusOutcome::Missing if object.draft.is_none() => {
                self.objects.remove(at);
                return;
            }
            StatusOutcome::Missing => {}
            StatusOutcome::Failed(draft, error) => {
                let pause_ms = match error {
                    ApiError::Throttled { after_ms, .. } => after_ms,
                    ApiError::Denied(_) => DENIED_MS,
                    _ => (FAILURE_MS.0 << object.failures.min(6)).min(FAILURE_MS.1),
                };
                object.failures += 1;
                object.not_before_ms = object.not_before_ms.max(now_ms + pause_ms);
                // A newer draft wins.
                object.draft.get_or_insert(draft);
            }
        }
        self.paused.insert((object.not_before_ms, Arc::clone(at)));
    }

    /// Forgets all drafts and writes.
    pub(super) fn clear(&mut self) {
        *self = StatusQueue { sequence: self.sequence, ..StatusQueue::default() };
    }

    /// Objects with a draft that is not written yet.
    pub(super) fn pending(&self) -> usize {
        self.objects
            .values()
            .filter(|object| object.draft.is_some() || object.place == QueuePlace::InFlight)
            .count()
    }

    /// Moves objects whose pause is over to the ready set, and forgets those without a draft.
    fn end_pauses(&mut self, now_ms: u64) {
        while self.paused.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            let Some((_, key)) = self.paused.pop_first() else { return };
            let Some(object) = self.objects.get_mut(&key) else { continue };
            match &object.draft {
                Some(draft) => {
                    object.place = QueuePlace::Ready;
                    self.ready.insert((draft.priority, object.sequence, key));
                }
                None => {
                    self.objects.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
