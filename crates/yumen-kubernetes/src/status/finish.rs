//! Completion of drafts: facts of the process, entries of other controllers, transition times.

use serde_json::{Map, Value, json};
use yumen_base::time::{Now, utc_text};

use super::draft::{ConditionDraft, ConditionState, ConditionValue, StatusDraft, StatusEntry, StatusPlace};
use crate::resources::{ResourceName, TranslatedKind};

/// Types of conditions that this controller writes. Other types of `status.conditions` belong to other writers.
const OWN_CONDITIONS: [&str; 9] = [
    "Available",
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "SupportedVersion",
    "Conflicted",
    "OverlappingTLSConfig",
    "InsecureFrontendValidationMode",
    "PartiallyInvalid",
];
/// Bounds of the API on lists that controllers share.
const PARENTS_MAX: usize = 32;
const ANCESTORS_MAX: usize = 16;
/// Bytes of a message; the API allows 32 768 characters.
const MESSAGE_MAX: usize = 4_096;

/// State of the socket of a `listeners` resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerFact {
    /// Not bound yet.
    Opening,
    /// Every worker accepts.
    Open,
    /// The address cannot be bound, with the reason.
    Failed(String),
}

/// Facts of this process about translated resources.
pub trait RuntimeFacts {
    /// Whether the newest version of the resource is applied by all workers; false if there is no such resource.
    fn is_applied(&self, name: &ResourceName) -> bool;

    /// The socket of the `listeners` resource with this id.
    fn listener(&self, id: &str) -> ListenerFact;

    /// The compiler's message, if the resource is quarantined.
    fn defect(&self, name: &ResourceName) -> Option<String>;
}

/// The status to write, from the draft, facts, and the status that the API server holds.
///
/// An empty draft removes the entries of `controller` from the lists of parents and ancestors. The result equals
/// `previous` if there is nothing to write, or if another writer observed a newer generation.
pub fn finish(
    draft: &StatusDraft,
    controller: &str,
    facts: &dyn RuntimeFacts,
    previous: &Value,
    now: Now,
) -> Value {
    let mut status = previous.as_object().cloned().unwrap_or_default();
    let writer = StatusWriterContext { draft, facts, time: utc_text(now.unix_s()) };
    if writer.is_outdated(&status, controller) {
        return Value::Object(status);
    }
    for (name, value) in &draft.fields {
        set_member(&mut status, name, value);
    }
    let mut listeners = Vec::new();
    for entry in &draft.entries {
        match &entry.place {
            StatusPlace::Root => {
                let before = status.get("conditions").cloned().unwrap_or_default();
                status.insert("conditions".to_owned(), writer.root_conditions(entry, &before));
            }
            StatusPlace::Listener(name) => listeners.push(writer.listener(entry, name, &status)),
            StatusPlace::Parent(_) | StatusPlace::Ancestor(_) => {}
        }
    }
    if draft.entries.iter().any(|entry| entry.place == StatusPlace::Root) {
        set_member(
            &mut status,
            "listeners",
            &if listeners.is_empty() { Value::Null } else { listeners.into() },
        );
    }
    writer.merge(&mut status, controller, SharedList::Parents);
    writer.merge(&mut status, controller, SharedList::Ancestors);
    Value::Object(status)
}

/// A list of entries that controllers share.
#[derive(Clone, Copy)]
enum SharedList {
    Parents,
    Ancestors,
}

impl SharedList {
    fn member(self) -> &'static str {
        match self {
            SharedList::Parents => "parents",
            SharedList::Ancestors => "ancestors",
        }
    }

    fn reference_member(self) -> &'static str {
        match self {
            SharedList::Parents => "parentRef",
            SharedList::Ancestors => "ancestorRef",
        }
    }

    fn bound(self) -> usize {
        match self {
            SharedList::Parents => PARENTS_MAX,
            SharedList::Ancestors => ANCESTORS_MAX,
        }
    }

    fn reference(self, place: &StatusPlace) -> Option<&Value> {
        match (self, place) {
            (SharedList::Parents, StatusPlace::Parent(reference))
            | (SharedList::Ancestors, StatusPlace::Ancestor(reference)) => Some(reference),
            _ => None,
        }
    }
}

struct StatusWriterContext<'s> {
    draft: &'s StatusDraft,
    facts: &'s dyn RuntimeFacts,
    time: String,
}

impl StatusWriterContext<'_> {
    /// Whether a condition of this controller has a newer generation than the draft.
    fn is_outdated(&self, status: &Map<String, Value>, controller: &str) -> bool {
        let own = |entry: &&Value| entry["controllerName"] == controller;
        let lists = [status.get("parents"), status.get("ancestors")].into_iter().flatten();
        let shared =
            lists.filter_map(Value::as_array).flatten().filter(own).map(|entry| &entry["conditions"]);
        let root = status.get("conditions").filter(|_| self.has_root());
        let conditions = shared.chain(root).filter_map(Value::as_array).flatten();
        conditions
            .filter(|condition| is_own_condition(condition))
            .any(|condition| condition["observedGeneration"].as_i64() > Some(self.draft.generation))
            && !self.draft.entries.is_empty()
    }

    fn has_root(&self) -> bool {
        self.draft.entries.iter().any(|entry| entry.place == StatusPlace::Root)
    }

    /// Our conditions, then those of other writers.
    fn root_conditions(&self, entry: &StatusEntry, before: &Value) -> Value {
        let mut conditions = self.conditions(entry, before);
        let others = before.as_array().into_iter().flatten();
        conditions.extend(others.filter(|condition| !is_own_condition(condition)).cloned());
        conditions.into()
    }

    fn listener(&self, entry: &StatusEntry, name: &str, status: &Map<String, Value>) -> Value {
        let listeners = status.get("listeners").and_then(Value::as_array);
        let before = listeners.into_iter().flatten().find(|listener| listener["name"] == name);
        let mut members = Map::new();
        members.insert("name".to_owned(), name.into());
        members.extend(entry.fields.clone());
        let conditions = before.map_or(&Value::Null, |listener| &listener["conditions"]);
        members.insert("conditions".to_owned(), self.conditions(entry, conditions).into());
        members.into()
    }

    /// Writes our entries of a shared list in place, keeps foreign ones where they are, and drops ours that the draft
    /// does not have.
    fn merge(&self, status: &mut Map<String, Value>, controller: &str, list: SharedList) {
        let before = status.get(list.member()).and_then(Value::as_array).cloned();
        let entries: Vec<(&Value, &StatusEntry)> = (self.draft.entries.iter())
            .filter_map(|entry| Some((list.reference(&entry.place)?, entry)))
            .collect();
        if before.is_none() && entries.is_empty() {
            return;
        }
        let (mut merged, mut done) = (Vec::new(), vec![false; entries.len()]);
        for previous in before.unwrap_or_default() {
            if previous["controllerName"] != controller {
                merged.push(previous);
                continue;
            }
            let reference = &previous[list.reference_member()];
            let position = entries.iter().position(|(wanted, _)| *wanted == reference);
            // A second entry of the same reference is left out.
            if let Some(position) = position.filter(|position| !done[*position]) {
                done[position] = true;
                let (reference, entry) = entries[position];
                merged.push(self.shared(list, controller, reference, entry, &previous["conditions"]));
            }
        }
        for ((reference, entry), _) in entries.iter().zip(&done).filter(|(_, done)| !**done) {
            merged.push(self.shared(list, controller, reference, entry, &Value::Null));
        }
        merged.truncate(list.bound());
        status.insert(list.member().to_owned(), merged.into());
    }

    fn shared(
        &self,
        list: SharedList,
        controller: &str,
        reference: &Value,
        entry: &StatusEntry,
        before: &Value,
    ) -> Value {
        let mut members = Map::new();
        members.insert(list.reference_member().to_owned(), reference.clone());
        members.insert("controllerName".to_owned(), controller.into());
        members.insert("conditions".to_owned(), self.conditions(entry, before).into());
        members.extend(entry.fields.clone());
        members.into()
    }

    fn conditions(&self, entry: &StatusEntry, before: &Value) -> Vec<Value> {
        entry.conditions.iter().map(|condition| self.condition(condition, before)).collect()
    }

    fn condition(&self, draft: &ConditionDraft, before: &Value) -> Value {
        let decided = decide(draft, self.facts);
        let previous = before.as_array().into_iter().flatten().find(|other| other["type"] == draft.kind);
        // The time is that of the last change of the state, not of reason or message.
        let kept = previous.filter(|previous| previous["status"] == decided.state);
        let time = kept.and_then(|previous| previous["lastTransitionTime"].as_str());
        json!({
            "type": draft.kind,
            "status": decided.state,
            "reason": decided.reason,
            "message": cut(&decided.message),
            "observedGeneration": self.draft.generation,
            "lastTransitionTime": time.unwrap_or(&self.time),
        })
    }
}

struct DecidedCondition {
    state: &'static str,
    reason: &'static str,
    message: String,
}

/// The state of the resources that a condition needs.
#[derive(Default)]
struct NeedSummary {
    ready: usize,
    pending: usize,
    port_failure: Option<String>,
    defect: Option<String>,
}

fn decide(draft: &ConditionDraft, facts: &dyn RuntimeFacts) -> DecidedCondition {
    let needs = summarize(&draft.needs, facts);
    let failure = needs.port_failure.clone().or_else(|| needs.defect.clone());
    let given = |state| DecidedCondition { state, reason: draft.reason, message: draft.message.clone() };
    let no = |reason, message| DecidedCondition { state: "False", reason, message };
    let pending = || no("Pending", "The workers have not applied the configuration yet.".to_owned());
    match draft.value {
        ConditionValue::Fixed(ConditionState::True) => given("True"),
        ConditionValue::Fixed(ConditionState::False) => given("False"),
        ConditionValue::Fixed(ConditionState::Unknown) => given("Unknown"),
        ConditionValue::WhenApplied => match failure {
            Some(message) => no("Invalid", message),
            None if needs.pending > 0 => pending(),
            None => given("True"),
        },
        ConditionValue::WhenAnyApplied => match failure {
            _ if needs.pending > 0 => pending(),
            Some(message) if needs.ready == 0 => no("Invalid", message),
            _ => given("True"),
        },
        ConditionValue::UnlessRefused => match failure {
            Some(message) => no("SyncFailed", message),
            None => given("True"),
        },
        ConditionValue::UnlessFailed => match (needs.port_failure, needs.defect) {
            (Some(message), _) => no("PortUnavailable", message),
            (None, Some(message)) => no("UnsupportedValue", message),
            (None, None) => given("True"),
        },
    }
}

fn summarize(needs: &[ResourceName], facts: &dyn RuntimeFacts) -> NeedSummary {
    let mut summary = NeedSummary::default();
    for name in needs {
        let listener = (name.kind == TranslatedKind::Listeners).then(|| facts.listener(&name.id));
        if let Some(defect) = facts.defect(name) {
            summary.defect.get_or_insert(defect);
        } else if let Some(ListenerFact::Failed(reason)) = listener {
            summary.port_failure.get_or_insert(reason);
        } else if facts.is_applied(name) && listener != Some(ListenerFact::Opening) {
            summary.ready += 1;
        } else {
            summary.pending += 1;
        }
    }
    summary
}

fn is_own_condition(condition: &Value) -> bool {
    condition["type"].as_str().is_some_and(|kind| OWN_CONDITIONS.contains(&kind))
}

/// Sets a member, or removes it if the value is null.
fn set_member(status: &mut Map<String, Value>, name: &str, value: &Value) {
    if value.is_null() {
        // Not `swap_remove`: the order of the others is kept for readers.
        status.shift_remove(name);
    } else {
        status.insert(name.to_owned(), value.clone());
    }
}

fn cut(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
