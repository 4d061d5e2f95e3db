//! Writes proposals to the cluster and waits until the watch delivers them.
//!
//! One batch at a time. Each transaction compares the revisions that its decision was based on; after a
//! conflict the batch is decided again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout_at};

use super::layout::KeyRole;
use super::mirror::{DeletionConfirmation, EtcdMirror};
use super::note::WriteNote;
use super::plan::{self, PlannedWrite, ProposalDecision, WritePlan};
use super::proto::{
    CompareTarget, PutRequest, RequestOp, RequestOpKind, ResponseOpKind, TxnRequest, TxnResponse,
};
use super::shared::EtcdShared;
use super::wire::RpcError;
use crate::engine::now_ms;
use crate::state::{Authorship, ResourceKey, Revision};
use crate::store::{ConfirmFn, Proposal, StoreError};

/// Maximum number of proposals per decision.
const BATCH_MAX: usize = 256;
/// Maximum number of objects per confirmation; etcd limits a request to 1.5 MiB.
const NAMED_MAX: usize = 65_536;
/// Pause between two attempts of the same transaction.
const PAUSE: Duration = Duration::from_millis(50);

/// Requests of the store's API.
pub(super) enum WriteRequest {
    /// A transaction.
    Propose(Proposal),
    /// Confirmation of held deletions.
    Confirm(Authorship, ConfirmFn),
}

/// Processes requests in order until all senders are dropped.
pub(super) async fn run(shared: Arc<EtcdShared>, mut requests: UnboundedReceiver<WriteRequest>) {
    let mut waiting: VecDeque<WriteRequest> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            // Waits only while no request is pending.
            match requests.recv().await {
                Some(request) => waiting.push_back(request),
                None => return,
            }
        }
        // Proposals that arrived during the previous write share a transaction.
        while waiting.len() < BATCH_MAX
            && let Ok(request) = requests.try_recv()
        {
            waiting.push_back(request);
        }
        match waiting.pop_front() {
            None => {}
            // Never in a batch: a confirmation is no proposal and compares nothing.
            Some(WriteRequest::Confirm(by, done)) => done(confirm(&shared, &by).await),
            Some(WriteRequest::Propose(first)) => {
                let mut batch = vec![first];
                // A transaction writes one note, so its proposals must have one author.
                while let Some(WriteRequest::Propose(next)) = waiting.front()
                    && next.by == batch[0].by
                    && let Some(WriteRequest::Propose(next)) = waiting.pop_front()
                {
                    batch.push(next);
                }
                let left = write(&shared, batch).await;
                // Reversed, so that proposals keep their order.
                left.into_iter()
                    .rev()
                    .for_each(|proposal| waiting.push_front(WriteRequest::Propose(proposal)));
            }
        }
    }
}

/// Decides and writes as many proposals as one transaction holds; returns the rest.
async fn write(shared: &EtcdShared, mut batch: Vec<Proposal>) -> Vec<Proposal> {
    // One budget for all rounds of conflicts.
    let give_up = Instant::now() + shared.settings.write_timeout;
    // One step of every transaction writes the note.
    let writes_max = shared.settings.txn_steps_max.saturating_sub(1).max(1);
    // All proposals of the batch have the same author.
    let by = batch[0].by.clone();
    let mut written = Arc::<BTreeSet<ResourceKey>>::default();
    let (verdicts, outcome) = loop {
        let (mirror, time_ms) = (shared.mirror(), now_ms());
        // A decision may compile the whole table. `block_in_place` lets the watch run meanwhile.
        let decide = || plan::decide(&mirror, &mut batch, &written, time_ms, writes_max);
        let WritePlan { verdicts, writes } = tokio::task::block_in_place(decide);
        let outcome = write_all(shared, &mirror, &writes, writes_max, &by, time_ms).await;
        let part = match &outcome {
            WriteOutcome::Conflict(part) | WriteOutcome::Failed(_, part) => *part,
            WriteOutcome::Done(_) => 0,
        };
        // The next decision must know the parts that are committed already.
        let keys = writes[..part].iter().filter_map(|write| match &write.role {
            KeyRole::Resource(key) => Some(key.clone()),
            _ => None,
        });
        Arc::make_mut(&mut written).extend(keys);
        match outcome {
            // Decided again on the state that `catch_up` waited for.
            WriteOutcome::Conflict(_) if Instant::now() < give_up => {}
            WriteOutcome::Conflict(_) => {
                let error =
                    "repeated conflicts with other writers of etcd until the write timeout".to_owned();
                break (verdicts, Err(partly(StoreError::Unreachable(error), written.len())));
            }
            WriteOutcome::Done(revision) => break (verdicts, Ok(revision)),
            WriteOutcome::Failed(error, _) => break (verdicts, Err(partly(error, written.len()))),
        }
    };
    // Proposals without a verdict did not fit into the transaction.
    let left = batch.split_off(verdicts.len());
    for (proposal, verdict) in batch.into_iter().zip(verdicts) {
        let result = match (verdict, &outcome) {
            (Err(error), _) => Err(error),
            // A proposal that writes nothing succeeds whatever became of the others.
            (Ok(decision), Err(error)) if decision.writes => Err(error.clone()),
            (Ok(ProposalDecision { committed, .. }), Ok(revision)) => {
                Ok(committed.map(|committed| plan::numbered(&committed, *revision)))
            }
            (Ok(_), Err(_)) => Ok(None),
        };
        (proposal.done)(result);
    }
    left
}

fn partly(error: StoreError, written: usize) -> StoreError {
    match written {
        0 => error,
        written => StoreError::Unreachable(format!(
            "{error}; {written} objects of the change were written before, as it is larger than one transaction"
        )),
    }
}

/// Result of writing a plan.
enum WriteOutcome {
    /// All writes are committed, up to this revision.
    Done(Revision),
    /// A concurrent write conflicted, after this number of committed writes.
    Conflict(usize),
    /// The write failed, after this number of committed writes.
    Failed(StoreError, usize),
}

/// Writes a plan in as few transactions as possible; more than one only for a single large proposal.
async fn write_all(
    shared: &EtcdShared,
    decided_on: &EtcdMirror,
    writes: &[PlannedWrite],
    writes_max: usize,
    by: &Authorship,
    time_ms: u64,
) -> WriteOutcome {
    // Without any write, the state decided on is the result.
    let mut newest = decided_on.state().revision;
    let (mut done, mut note_revision) = (0, decided_on.expected(&KeyRole::Note));
    for part in plan::parts(writes, writes_max) {
        // A known outage fails at once, so callers do not queue behind a timeout each.
        if let Some(error) = shared.error().filter(|_| is_outage(shared)) {
            let error = StoreError::Unreachable(format!("etcd cannot be written: {error}"));
            return WriteOutcome::Failed(error, done);
        }
        let deadline = Instant::now() + shared.settings.write_timeout;
        // Before the transaction, which names the leases.
        let leases = match grant_leases(shared, part).await {
            Ok(leases) => leases,
            Err(error) => return WriteOutcome::Failed(unreachable(&error), done),
        };
        // A repetition must be distinguishable from the part before it.
        let nonce = super::random_name();
        let note = WriteNote { author: by.author.clone(), reason: by.reason.clone(), time_ms, nonce };
        let request = plan::transaction(decided_on, &shared.layout, part, &leases, &note, note_revision);
        match submit(shared, &request, &note.nonce, deadline).await {
            // The next part compares the note that this part has written.
            Ok(Some(revision)) => (newest, note_revision) = (Revision(revision), revision),
            Ok(None) => return WriteOutcome::Conflict(done),
            Err(error) => return WriteOutcome::Failed(error, done),
        }
        done += part.len();
        // The acknowledgement guarantees the write. A late watch is not an error.
        until(shared, deadline, |mirror| mirror.seen() >= newest.0).await;
    }
    WriteOutcome::Done(newest)
}

/// Grants a lease for each write with an expiry; 0 for the others.
async fn grant_leases(shared: &EtcdShared, writes: &[PlannedWrite]) -> Result<Vec<i64>, RpcError> {
    let mut leases = Vec::with_capacity(writes.len());
    for write in writes {
        leases.push(match write.expires_ms {
            None => 0,
            Some(at_ms) => {
                // Rounded up: an object must not vanish before its time.
                let ttl_s = at_ms.saturating_sub(now_ms()).div_ceil(1000).max(1);
                let lease = shared.client.grant_lease(ttl_s).await?;
                // Recorded before the write, so that the watch finds the expiry when it delivers the object.
                shared.note_lease(lease, at_ms);
                lease
            }
        });
    }
    Ok(leases)
}

/// Sends a transaction until its outcome is certain: the revision, or `None` on a conflict.
///
/// Without a response the transaction may have been committed. Sending it again is safe: the commit changes
/// the compared revisions, so the repetition fails, and the nonce in the note identifies the first commit.
async fn submit(
    shared: &EtcdShared,
    request: &TxnRequest,
    nonce: &str,
    deadline: Instant,
) -> Result<Option<u64>, StoreError> {
    let begin = Instant::now();
    let mut was_sent = false;
    loop {
        let answer = timeout_at(deadline, shared.client.txn(request)).await;
        let answer = answer.unwrap_or(Err(RpcError::Late(begin.elapsed().as_millis())));
        let error = match answer {
            Ok(answer) if answer.succeeded => {
                return Ok(answer.header.map(|header| header.revision.max(0) as u64));
            }
            Ok(answer) => {
                // The comparison failed either for a conflict or because an earlier attempt was committed.
                catch_up(shared, request, &answer, deadline).await?;
                return Ok(shared.with_mirror(|mirror| mirror.revision_of(nonce)));
            }
            Err(error) => error,
        };
        // Only a call without a connection certainly had no effect.
        was_sent |= !matches!(error, RpcError::Unconnected(_));
        if !error.is_passing() {
            return Err(unreachable(&error));
        }
        if (!was_sent && is_outage(shared)) || Instant::now() + PAUSE >= deadline {
            let doubt = if was_sent { "; the write may have taken effect, or may yet" } else { "" };
            return Err(StoreError::Unreachable(format!("etcd cannot be written: {error}{doubt}")));
        }
        sleep(PAUSE).await;
        // The watch may have delivered the commit whose response was lost.
        if let Some(revision) = shared.with_mirror(|mirror| mirror.revision_of(nonce)) {
            return Ok(Some(revision));
        }
    }
}

/// Waits until the mirror contains the revisions that a transaction conflicted with.
async fn catch_up(
    shared: &EtcdShared,
    request: &TxnRequest,
    answer: &TxnResponse,
    deadline: Instant,
) -> Result<(), StoreError> {
    let found = answer.responses.iter().map(|step| match &step.answer {
        // An absent key compares as revision 0.
        Some(ResponseOpKind::Range(range)) => range.kvs.first().map_or(0, |kv| kv.mod_revision),
        None => 0,
    });
    let wrong: Vec<(KeyRole, u64)> = request
        .compare
        .iter()
        .zip(found)
        .filter(|(compare, found)| compare.with != Some(CompareTarget::ModRevision(*found)))
        .filter_map(|(compare, _)| {
            let Some(CompareTarget::ModRevision(assumed)) = compare.with else { return None };
            Some((shared.layout.role(&compare.key)?, assumed.max(0) as u64))
        })
        .collect();
    let is_current = until(shared, deadline, |mirror| {
        wrong.iter().all(|(role, assumed)| mirror.expected(role) != *assumed)
    });
    match is_current.await {
        true => Ok(()),
        false => Err(StoreError::Unreachable(
            "conflict with a newer revision that the watch has not delivered: nothing was written".into(),
        )),
    }
}

/// Waits until the mirror meets a condition or the deadline passes; returns whether it is met.
async fn until(shared: &EtcdShared, deadline: Instant, holds: impl Fn(&EtcdMirror) -> bool) -> bool {
    let mut moves = shared.moves();
    loop {
        // Before the check, so that a change during the check is not missed.
        moves.mark_unchanged();
        if shared.with_mirror(&holds) {
            return true;
        }
        if !matches!(timeout_at(deadline, moves.changed()).await, Ok(Ok(()))) {
            // Once more at the deadline: the last change may have arrived with it.
            return shared.with_mirror(&holds);
        }
    }
}

/// Writes confirmations of all held deletions for all nodes.
async fn confirm(shared: &EtcdShared, by: &Authorship) -> Result<usize, StoreError> {
    let held = shared.with_mirror(EtcdMirror::held_names);
    // etcd bounds a request, so large confirmations are split.
    for part in held.chunks(NAMED_MAX) {
        confirm_part(shared, by, part).await?;
    }
    Ok(held.len())
}

async fn confirm_part(shared: &EtcdShared, by: &Authorship, names: &[String]) -> Result<(), StoreError> {
    let deadline = Instant::now() + shared.settings.write_timeout;
    let note = WriteNote {
        author: by.author.clone(),
        reason: Some(by.reason.clone().unwrap_or_else(|| "held deletions confirmed".into())),
        time_ms: now_ms(),
        nonce: super::random_name(),
    };
    let put = |role, value: String| {
        let key = shared.layout.path(&role).into();
        RequestOp { kind: Some(RequestOpKind::Put(PutRequest { key, value: value.into(), lease: 0 })) }
    };
    let word = DeletionConfirmation::about(note.clone(), names);
    let success = vec![put(KeyRole::Confirmation, word.to_json()), put(KeyRole::Note, note.to_json())];
    // No comparison: names, not revisions, decide the extent of a confirmation.
    let request = TxnRequest { success, ..TxnRequest::default() };
    match submit(shared, &request, &note.nonce, deadline).await? {
        Some(revision) if until(shared, deadline, |mirror| mirror.seen() >= revision).await => Ok(()),
        _ => Err(StoreError::Unreachable(
            "the confirmation was written, but the watch has not delivered it yet".into(),
        )),
    }
}

/// Whether the outage already exceeds the write timeout, so that waiting is pointless.
fn is_outage(shared: &EtcdShared) -> bool {
    shared.outage() > shared.settings.write_timeout
}

fn unreachable(error: &RpcError) -> StoreError {
    StoreError::Unreachable(format!("etcd cannot be written: {error}"))
}
