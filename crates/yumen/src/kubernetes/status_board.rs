//! The statuses of objects: drafts of the translation, completed by facts of this process, in the order of writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use yumen_base::time::Now;
use yumen_base::{Problem, ProblemLevel};
use yumen_kubernetes::status::{ConditionValue, ListenerFact, RuntimeFacts, StatusDraft, finish};
use yumen_kubernetes::{ClusterKind, ObjectKey, ResourceName};
use yumen_kubernetes_client::{ObjectAddress, RawObject, StatusDecider, StatusReport, StatusWrite};
use yumen_store::{Revision, StoreState};

use super::api_paths;
use crate::serving::listener_supervisor::{ListenerState, ListenerStates};

/// Facts about translated resources, as of one moment.
#[derive(Clone, Default)]
pub(super) struct ProcessFacts {
    /// The translated resources with the revisions that changed them.
    pub(super) state: StoreState,
    /// The newest revision that every worker serves.
    pub(super) applied: Revision,
    pub(super) listeners: ListenerStates,
    /// The messages of the compiler, by the object's name.
    pub(super) defects: Arc<BTreeMap<String, String>>,
}

impl ProcessFacts {
    /// The compiler's errors by object.
    pub(super) fn defects_of(problems: &[Problem]) -> Arc<BTreeMap<String, String>> {
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        let text = |problem: &Problem| match problem.path.as_str() {
            "" => problem.message.clone(),
            path => format!("{path}: {}", problem.message),
        };
        Arc::new(errors.map(|problem| (problem.object.clone(), text(problem))).collect())
    }
}

impl RuntimeFacts for ProcessFacts {
    fn is_applied(&self, name: &ResourceName) -> bool {
        let entry = name.kind.kind().and_then(|kind| self.state.get(kind, &name.id));
        entry.is_some_and(|entry| entry.modified <= self.applied)
    }

    fn listener(&self, id: &str) -> ListenerFact {
        match self.listeners.get(id) {
            Some(ListenerState::Open { .. }) => ListenerFact::Open,
            Some(ListenerState::Failed { reason, .. }) => ListenerFact::Failed(reason.clone()),
            Some(ListenerState::Opening) | None => ListenerFact::Opening,
        }
    }

    fn defect(&self, name: &ResourceName) -> Option<String> {
        self.defects.get(&name.to_string()).cloned()
    }
}

/// The newest known status of an object.
#[derive(Debug, Clone, Default, PartialEq)]
struct KnownStatus {
    version: Arc<str>,
    /// The status that the API server holds at `version`. Patches are computed from it, because the version is their
    /// precondition: a patch from a status that was never written would lack members. As JSON, shared with the decoded
    /// object: a tree takes five times as much memory.
    status: Option<Arc<str>>,
    /// The status that was submitted since, and whose write is not confirmed.
    submitted: Option<Arc<str>>,
}

#[derive(Default)]
struct BoardState {
    facts: ProcessFacts,
    drafts: BTreeMap<ObjectKey, Option<StatusDraft>>,
    known: BTreeMap<ObjectKey, KnownStatus>,
    /// Objects whose draft depends on facts that are not final.
    waiting: BTreeSet<ObjectKey>,
}

/// Drafts and facts, shared with the task that writes statuses.
pub(super) struct StatusBoard {
    controller: Arc<str>,
    state: Mutex<BoardState>,
}

impl StatusBoard {
    pub(super) fn new(controller: Arc<str>) -> StatusBoard {
        StatusBoard { controller, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_facts(&self, facts: ProcessFacts) {
        self.state().facts = facts;
    }

    /// Takes new drafts.
    pub(super) fn set_drafts(&self, drafts: Vec<(ObjectKey, Option<StatusDraft>)>) {
        let mut state = self.state();
        for (key, draft) in drafts {
            // An object that is gone, or never had a status, has none to withdraw.
            if draft.is_none() && !state.known.contains_key(&key) {
                state.drafts.remove(&key);
                state.waiting.remove(&key);
                continue;
            }
            state.drafts.insert(key, draft);
        }
    }

    /// Records the status that the API server holds, as a watch reported it. Whether it is news, and the object has a
    /// draft: others may have changed our part of it, or the object is new under the name of a deleted one.
    pub(super) fn observe(&self, key: &ObjectKey, version: &Arc<str>, status: Option<&Arc<str>>) -> bool {
        if !key.kind.has_conditions() {
            return false;
        }
        let mut state = self.state();
        let known = state.known.entry(key.clone()).or_default();
        if !known.version.is_empty() && !is_newer(version, &known.version) {
            return false;
        }
        // A write that is on its way conflicts with this version, and is decided again.
        let submitted = known.submitted.take();
        *known = KnownStatus { version: version.clone(), status: status.cloned(), submitted };
        state.drafts.contains_key(key)
    }

    /// Forgets the status of a deleted object. Its draft is the translation's to withdraw: if the object is deleted and
    /// created again within a batch, the translation reports no difference.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let mut state = self.state();
        state.known.remove(key);
        state.waiting.remove(key);
    }

    /// Forgets the objects of a kind that a complete list lacks, and every version: after a restore of the cluster
    /// versions may be lower than before.
    pub(super) fn retain_listed(&self, kind: ClusterKind, listed: &[RawObject]) {
        let listed: BTreeSet<ObjectKey> =
            listed.iter().map(|object| ObjectKey::new(kind, &object.namespace, &object.name)).collect();
        let mut state = self.state();
        state.known.retain(|key, _| key.kind != kind || listed.contains(key));
        state.waiting.retain(|key| key.kind != kind || listed.contains(key));
        let of_kind = state.known.iter_mut().filter(|(key, _)| key.kind == kind);
        of_kind.for_each(|(_, known)| known.version = Arc::default());
    }

    /// Forgets writes that were on their way when a lease was lost: they may never have arrived.
    pub(super) fn forget_submitted(&self) {
        self.state().known.values_mut().for_each(|known| known.submitted = None);
    }

    pub(super) fn all(&self) -> Vec<ObjectKey> {
        self.state().drafts.keys().cloned().collect()
    }

    pub(super) fn waiting(&self) -> Vec<ObjectKey> {
        self.state().waiting.iter().cloned().collect()
    }

    /// Objects whose draft depends on the process.
    pub(super) fn depending(&self) -> Vec<ObjectKey> {
        let state = self.state();
        let drafts = state.drafts.iter().filter(|(_, draft)| draft.as_ref().is_some_and(depends));
        drafts.map(|(key, _)| key.clone()).collect()
    }

    /// The write that an object requires; `None` if it holds the wanted status.
    pub(super) fn write_of(&self, key: &ObjectKey, now: Now) -> Option<StatusWrite> {
        let mut state = self.state();
        let BoardState { facts, drafts, known, waiting } = &mut *state;
        let draft = drafts.get(key)?.as_ref();
        match draft.is_some_and(|draft| is_open(draft, facts)) {
            true => waiting.insert(key.clone()),
            false => waiting.remove(key),
        };
        let known = known.entry(key.clone()).or_default();
        // Until the write is confirmed, the object counts as having it, so that it is not submitted again.
        let latest = parsed(known.submitted.as_ref().or(known.status.as_ref()));
        let wanted = self.finished(facts, draft, &latest, now)?;
        let patch = merge_patch(&parsed(known.status.as_ref()), &wanted).to_string();
        let version = (!known.version.is_empty()).then(|| (&*known.version).into());
        known.submitted = Some(wanted.to_string().into());
        Some(StatusWrite { priority: priority_of(key.kind), resource_version: version, status: patch.into() })
    }

    fn finished(
        &self,
        facts: &ProcessFacts,
        draft: Option<&StatusDraft>,
        previous: &Value,
        now: Now,
    ) -> Option<Value> {
        let empty = StatusDraft::default();
        let wanted = finish(draft.unwrap_or(&empty), &self.controller, facts, previous, now);
        let is_same =
            wanted == *previous || previous.is_null() && wanted.as_object().is_some_and(Map::is_empty);
        (!is_same).then_some(wanted)
    }
}

impl StatusDecider for StatusBoard {
    fn decide(&self, at: &ObjectAddress, current: &RawObject) -> Option<Box<str>> {
        let key = api_paths::key_of(at)?;
        let mut state = self.state();
        let draft = state.drafts.get(&key)?.clone();
        let status = status_of(current);
        let wanted = self.finished(&state.facts, draft.as_ref(), &status, yumen_proxy::clock::exact());
        let patch = wanted.as_ref().map(|wanted| merge_patch(&status, wanted).to_string().into());
        let text = |status: &Value| Arc::from(status.to_string());
        let (version, submitted) = ((&*current.resource_version).into(), wanted.as_ref().map(text));
        state.known.insert(key, KnownStatus { version, status: Some(text(&status)), submitted });
        patch
    }

    fn report(&self, at: &ObjectAddress, report: StatusReport) {
        let Some(key) = api_paths::key_of(at) else { return };
        match report {
            StatusReport::Written(object) => {
                let mut state = self.state();
                // A watch may have reported the deletion already.
                let Some(known) = state.known.get_mut(&key) else { return };
                // A newer draft that was submitted meanwhile counts as lost, which costs at most an equal submission.
                known.submitted = None;
                // A watch may have reported a later version already.
                if known.version.is_empty() || !is_newer(&known.version, &object.resource_version) {
                    known.version = (&*object.resource_version).into();
                    known.status = Some(status_of(&object).to_string().into());
                }
            }
            StatusReport::Unchanged => {}
            StatusReport::Missing => self.forget(&key),
            StatusReport::Failed(error) => tracing::debug!(object = %key, %error, "status not written"),
        }
    }
}

fn parsed(status: Option<&Arc<str>>) -> Value {
    status.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn status_of(object: &RawObject) -> Value {
    #[derive(serde::Deserialize)]
    struct StatusOnly {
        #[serde(default)]
        status: Value,
    }
    serde_json::from_slice::<StatusOnly>(&object.json).map(|object| object.status).unwrap_or_default()
}

/// Whether a version is newer than another. Versions of one API server are counted; others are compared by equality.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

/// Gateways first: routes are useless before them.
fn priority_of(kind: ClusterKind) -> u8 {
    match kind {
        ClusterKind::GatewayClass => 0,
        ClusterKind::Gateway => 1,
        ClusterKind::ListenerSet => 2,
        _ => 3,
    }
}

fn depends(draft: &StatusDraft) -> bool {
    let mut conditions = draft.entries.iter().flat_map(|entry| &entry.conditions);
    conditions.any(|condition| !matches!(condition.value, ConditionValue::Fixed(_)))
}

/// Whether a needed resource is not applied, or its socket not decided yet.
fn is_open(draft: &StatusDraft, facts: &ProcessFacts) -> bool {
    let conditions = draft.entries.iter().flat_map(|entry| &entry.conditions);
    let needed = conditions.flat_map(|condition| &condition.needs);
    needed.into_iter().any(|name| {
        !facts.is_applied(name)
            || name.kind == yumen_kubernetes::TranslatedKind::Listeners
                && facts.listener(&name.id) == ListenerFact::Opening
    })
}

/// The merge patch (RFC 7396) that turns the members of `before` into those of `after`; lists are replaced whole.
fn merge_patch(before: &Value, after: &Value) -> Value {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(value)) {
        // Whole members: a patch of a nested object could keep members that are gone.
        patch.insert(name.clone(), value.clone());
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests;
