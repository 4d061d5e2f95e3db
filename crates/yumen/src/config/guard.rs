//! Store wrapper that rejects writes which break policy tests in the configuration.
//!
//! Wraps the store itself, so that every writer is covered.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use yumen_base::Problem;
use yumen_config::Kind;
use yumen_store::store::{ConfirmFn, DecideFn, DoneFn, FollowerFn};
use yumen_store::{
    Authorship, LastGoodVersions, Proposal, Revision, Store, StoreCommit, StoreError, StoreState,
};

use super::trial::TrialCompiler;

/// A store, guarded by the tests that it contains.
pub(crate) struct GuardedStore {
    inner: Arc<dyn Store>,
    trial: Arc<TrialCompiler>,
    /// Last good versions of broken objects. Tests run against them, as traffic does.
    versions: Arc<LastGoodVersions>,
}

impl GuardedStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        trial: Arc<TrialCompiler>,
        versions: Arc<LastGoodVersions>,
    ) -> GuardedStore {
        GuardedStore { inner, trial, versions }
    }
}

impl Store for GuardedStore {
    fn state(&self) -> StoreState {
        self.inner.state()
    }

    /// Compiles a snapshot of the draft once per write if the store contains tests, and none otherwise.
    fn propose(&self, proposal: Proposal) {
        let Proposal { by, mut decide, done } = proposal;
        let (trial, versions) = (self.trial.clone(), self.versions.clone());
        let refusal = Arc::new(Mutex::new(None));
        let refused = refusal.clone();
        let decide: DecideFn = Box::new(move |draft| {
            let before = draft.state().clone();
            if !decide(draft) {
                return false;
            }
            let failed = broken(&trial, &versions, &before, draft.state());
            let is_good = failed.is_empty();
            // `decide` may run again on a newer state: each run replaces the earlier result.
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = failed.into_iter().next();
            is_good
        });
        let done: DoneFn =
            Box::new(move |result| match refusal.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(problem) => done(Err(StoreError::Refused(problem.to_string()))),
                None => done(result),
            });
        self.inner.propose(Proposal { by, decide, done });
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        self.inner.follow(follower)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        self.inner.history(before, limit)
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.inner.backup(to)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    fn failure(&self) -> Option<StoreError> {
        self.inner.failure()
    }

    fn confirm(&self, by: Authorship, done: ConfirmFn) {
        self.inner.confirm(by, done);
    }

    fn state_at(&self, revision: Revision) -> Result<StoreState, StoreError> {
        self.inner.state_at(revision)
    }
}

/// Tests that a write breaks. Tests that failed before, for instance after an expiry, do not block a write
/// that leaves them unchanged: otherwise no step of a repair could be written.
fn broken(
    trial: &TrialCompiler,
    versions: &LastGoodVersions,
    before: &StoreState,
    after: &StoreState,
) -> Vec<Problem> {
    if after.of_kind(Kind::Tests).next().is_none() {
        return Vec::new();
    }
    let failing = |state: &StoreState| trial.newly_failing(versions.resources(), &state.resources());
    let mut failed = failing(after);
    if failed.is_empty() {
        return failed;
    }
    let failed_before = failing(before);
    let failed_before: BTreeSet<&str> = failed_before.iter().map(|problem| &*problem.object).collect();
    failed.retain(|problem| !failed_before.contains(&*problem.object) || is_other(before, after, problem));
    failed
}

/// Whether the write changed the test of a problem.
fn is_other(before: &StoreState, after: &StoreState, problem: &Problem) -> bool {
    let id = problem.object.split_once('/').map_or("", |(_, id)| id);
    let text = |state: &StoreState| state.get(Kind::Tests, id).map(|entry| entry.json.clone());
    text(before) != text(after)
}

#[cfg(test)]
mod tests;
