//! Translation of proposals into etcd transactions with their comparisons. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use yumen_config::Kind;

use super::layout::{KeyLayout, KeyRole};
use super::mirror::EtcdMirror;
use super::note::WriteNote;
use super::proto::{
    CompareTarget, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, RequestOpKind, TxnCompare,
    TxnRequest,
};
use crate::state::{EntryChange, ResourceKey, Revision, StoreCommit, StoreState};
use crate::store::{Draft, FinishedDraft, Proposal, StoreError};

/// Maximum bytes of values per transaction; etcd limits a request to 1.5 MiB.
const BYTES_MAX: usize = 1 << 20;

/// A write or deletion of one key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedWrite {
    pub(super) role: KeyRole,
    pub(super) value: Option<Arc<str>>,
    /// Expiry in milliseconds since the Unix epoch.
    pub(super) expires_ms: Option<u64>,
}

/// Decision on one proposal.
#[derive(Debug, Default)]
pub(super) struct ProposalDecision {
    /// The change with a provisional revision; `None` if only settings changed.
    pub(super) committed: Option<Arc<StoreCommit>>,
    /// Whether the proposal writes any key.
    pub(super) writes: bool,
}

/// A decision, or the reason for refusing the proposal.
pub(super) type Verdict = Result<ProposalDecision, StoreError>;

/// The plan of a batch of proposals.
#[derive(Debug, Default)]
pub(super) struct WritePlan {
    /// One per decided proposal, in order; the others wait for the next plan.
    pub(super) verdicts: Vec<Verdict>,
    /// Ordered so that no object ever refers to a missing one.
    pub(super) writes: Vec<PlannedWrite>,
}

/// Decides proposals on the mirror's state: at least one, and as many as one transaction holds.
///
/// `written` holds the keys that earlier parts of the first proposal have written.
pub(super) fn decide(
    mirror: &EtcdMirror,
    proposals: &mut [Proposal],
    written: &Arc<BTreeSet<ResourceKey>>,
    now_ms: u64,
    writes_max: usize,
) -> WritePlan {
    // Later proposals of the batch are decided on the result of the earlier ones.
    let (base, mut staged) = (mirror.state(), mirror.state().clone());
    let mut touched = TouchedKeys::default();
    let mut plan = WritePlan::default();
    for proposal in proposals {
        // Only the first proposal of a batch may be written in parts, and then alone.
        let before = if plan.verdicts.is_empty() { written.clone() } else { Arc::default() };
        let mut draft = Draft::new(staged.clone(), now_ms).following(before);
        if mirror.differs() {
            let (known, written) = (mirror.clone(), touched.keys.clone());
            // A key that the batch itself has written is not held any longer.
            draft = draft.knowing(move |key| known.difference(key).filter(|_| !written.contains(key)));
        }
        // A panic in a handler must not end the task that writes for all callers.
        let verdict = match catch_unwind(AssertUnwindSafe(|| (proposal.decide)(&mut draft))) {
            Err(_) => Err(std::io::Error::other("the change handler panicked").into()),
            Ok(false) => Ok(ProposalDecision::default()),
            Ok(true) => {
                let finished = draft.finish(proposal.by.clone());
                // On a copy: the proposal may not fit and then leaves no trace.
                let mut with_it = touched.clone();
                with_it.extend(&finished);
                // The first proposal may need several transactions; any other waits for the next plan.
                if !plan.verdicts.is_empty() && !with_it.is_one_part(writes_max) {
                    break;
                }
                refuse_held_deletions(mirror, &finished).map(|()| {
                    touched = with_it;
                    let FinishedDraft { state, committed, settings, removed } = finished;
                    staged = state;
                    let writes = committed.is_some() || !settings.is_empty() || !removed.is_empty();
                    ProposalDecision { writes, committed }
                })
            }
        };
        plan.verdicts.push(verdict);
    }
    plan.writes = touched.writes(base, &staged);
    plan
}

/// A transaction that creates a key if it is absent.
pub(super) fn creation(path: String, value: String, lease: i64) -> TxnRequest {
    let put = PutRequest { key: path.clone().into(), value: value.into(), lease };
    TxnRequest {
        // Revision 0: the key must not exist.
        compare: vec![revision_compare(path.into(), 0)],
        success: vec![RequestOp { kind: Some(RequestOpKind::Put(put)) }],
        failure: Vec::new(),
    }
}

/// Refuses to delete an object that has a held deletion. etcd no longer has the key, so a delete would
/// produce no event and reach no other node.
fn refuse_held_deletions(mirror: &EtcdMirror, finished: &FinishedDraft) -> Result<(), StoreError> {
    let changes = finished.committed.iter().flat_map(|committed| &committed.changes);
    let mut deleted = changes.filter(|changed| changed.after.is_none()).map(|changed| &changed.key);
    match deleted.find(|key| mirror.holds(key)) {
        None => Ok(()),
        Some(key) => Err(StoreError::Refused(format!(
            "{key} is among many deletions in etcd that are held back: confirm them first with POST /yumen/v1/store/confirm"
        ))),
    }
}

#[derive(Debug, Default, Clone)]
struct TouchedKeys {
    keys: BTreeSet<ResourceKey>,
    /// Keys of unreadable values, which the state does not contain.
    removed: BTreeSet<ResourceKey>,
    settings: BTreeMap<Arc<str>, Option<Arc<str>>>,
    bytes: usize,
}

impl TouchedKeys {
    fn extend(&mut self, finished: &FinishedDraft) {
        let changes = finished.committed.iter().flat_map(|committed| &committed.changes);
        for changed in changes {
            self.bytes += changed.after.as_ref().map_or(0, |after| after.json.len());
            self.keys.insert(changed.key.clone());
        }
        self.settings.extend(finished.settings.clone());
        self.keys.extend(finished.removed.iter().cloned());
        self.removed.extend(finished.removed.iter().cloned());
    }

    /// Whether one transaction holds the writes.
    fn is_one_part(&self, writes_max: usize) -> bool {
        // Each setting is a step of the transaction too.
        self.keys.len() + self.settings.len() <= writes_max && self.bytes <= BYTES_MAX
    }

    fn writes(self, base: &StoreState, staged: &StoreState) -> Vec<PlannedWrite> {
        let settings = self.settings.into_iter();
        let mut writes: Vec<PlannedWrite> = settings
            .map(|(name, value)| PlannedWrite { role: KeyRole::Setting(name), value, expires_ms: None })
            .collect();
        let order = |kind: Kind| Kind::ALL.iter().position(|one| *one == kind);
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        // Puts follow the order of kinds and deletions the reverse, so no reference dangles between two
        // parts.
        keys.sort_by_key(|key| order(key.kind));
        let (puts, deletes): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|key| staged.get(key.kind, &key.id).is_some());
        for key in puts {
            let entry = staged.get(key.kind, &key.id);
            let expires_ms = entry.and_then(|entry| entry.expires_ms);
            let value = entry.map(|entry| entry.json.clone());
            writes.push(PlannedWrite { role: KeyRole::Resource(key), value, expires_ms });
        }
        // An object created and deleted within one batch was never in etcd.
        let existed = |key: &ResourceKey| base.get(key.kind, &key.id).is_some() || self.removed.contains(key);
        let deletes = deletes.into_iter().rev().filter(existed);
        writes.extend(deletes.map(|key| PlannedWrite {
            role: KeyRole::Resource(key),
            value: None,
            expires_ms: None,
        }));
        writes
    }
}

/// Splits the writes into transactions. etcd itself rejects a single value that is too large.
pub(super) fn parts(writes: &[PlannedWrite], writes_max: usize) -> impl Iterator<Item = &[PlannedWrite]> {
    let mut rest = writes;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |write: &&PlannedWrite| {
            bytes += write.value.as_ref().map_or(0, |value| value.len());
            bytes <= BYTES_MAX
        };
        // A value above the bound forms a part alone.
        let count = rest.iter().take(writes_max).take_while(fits).count().max(1).min(rest.len());
        let (part, later) = rest.split_at(count);
        rest = later;
        (!part.is_empty()).then_some(part)
    })
}

/// Builds a transaction that fails if a touched key changed or if a gateway has written since `note_revision`.
///
/// The failure steps read the compared keys, so that `catch_up` finds the cause of a conflict.
pub(super) fn transaction(
    mirror: &EtcdMirror,
    layout: &KeyLayout,
    writes: &[PlannedWrite],
    leases: &[i64],
    note: &WriteNote,
    note_revision: u64,
) -> TxnRequest {
    let mut request = TxnRequest::default();
    let mut require = |role: &KeyRole, revision: u64| {
        let key: bytes::Bytes = layout.path(role).into();
        request.compare.push(revision_compare(key.clone(), revision));
        let range = RangeRequest { key, keys_only: true, ..RangeRequest::default() };
        // The keys alone suffice: `catch_up` compares revisions.
        request.failure.push(RequestOp { kind: Some(RequestOpKind::Range(range)) });
    };
    require(&KeyRole::Note, note_revision);
    writes.iter().for_each(|write| require(&write.role, mirror.expected(&write.role)));
    let step = |(write, lease): (&PlannedWrite, &i64)| {
        let key = layout.path(&write.role).into();
        match &write.value {
            Some(value) => {
                RequestOpKind::Put(PutRequest { key, value: value.to_string().into(), lease: *lease })
            }
            None => RequestOpKind::Delete(DeleteRangeRequest { key, range_end: bytes::Bytes::new() }),
        }
    };
    let note_put =
        PutRequest { key: layout.path(&KeyRole::Note).into(), value: note.to_json().into(), lease: 0 };
    // The note comes last, as one more step.
    let steps = writes.iter().zip(leases).map(step).chain([RequestOpKind::Put(note_put)]);
    request.success = steps.map(|kind| RequestOp { kind: Some(kind) }).collect();
    request
}

/// Compares a key's revision; 0 means absent.
fn revision_compare(key: bytes::Bytes, revision: u64) -> TxnCompare {
    // `EQUAL` and `MOD` of etcd's rpc.proto.
    TxnCompare { result: 0, target: 2, key, with: Some(CompareTarget::ModRevision(revision as i64)) }
}

/// Replaces the provisional revision of a change.
pub(super) fn numbered(committed: &StoreCommit, revision: Revision) -> Arc<StoreCommit> {
    let number = |changed: &EntryChange| {
        let mut changed = changed.clone();
        if let Some(after) = &mut changed.after {
            after.modified = revision;
            // An object that existed keeps its creation, as etcd does.
            if changed.before.is_none() {
                after.created = revision;
            }
        }
        changed
    };
    let changes = committed.changes.iter().map(number).collect();
    Arc::new(StoreCommit { revision, changes, time_ms: committed.time_ms, by: committed.by.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_by_steps_and_by_bytes() {
        let write = |bytes: usize| PlannedWrite {
            role: KeyRole::Note,
            value: Some("x".repeat(bytes).into()),
            expires_ms: None,
        };
        for (bytes, writes_max, expected) in [
            (vec![], 3, vec![]),
            (vec![1; 7], 3, vec![3, 3, 1]),
            (vec![BYTES_MAX / 2; 3], 3, vec![2, 1]),
            (vec![1, BYTES_MAX + 1, 1], 3, vec![1, 1, 1]),
            (vec![BYTES_MAX + 1, 1, 1], 3, vec![1, 2]),
        ] {
            let writes: Vec<PlannedWrite> = bytes.iter().map(|bytes| write(*bytes)).collect();
            let found: Vec<usize> = parts(&writes, writes_max).map(<[PlannedWrite]>::len).collect();
            assert_eq!(found, expected, "{bytes:?}");
        }
    }
}
