//! Compilation of configuration that is not active, with its own counters and health.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use yumen_admin::SecretVisibility;
use yumen_base::Problem;
use yumen_config::masking::without_values;
use yumen_config::{Kind, Resource};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::plan::{ChangePlan, PlanContext, PlanLimits, plan};
use yumen_snapshot::{Question, Snapshot, policy};
use yumen_store::Store;

use super::findings;
use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use crate::environment::ReadVariables;
use crate::fetched::FetchLedger;

/// Delay that collects a burst of changes into one run.
const SETTLE: Duration = Duration::from_millis(500);
/// Pause between two runs as a multiple of a run's duration, so that tests use at most 5 % of a CPU.
const REST_PER_RUN: u32 = 20;

/// Compiler of configuration that is not active.
pub(crate) struct TrialCompiler {
    empty: Mutex<Compiler>,
    variables: Arc<ReadVariables>,
    secrets: OnceLock<Arc<FetchLedger>>,
}

/// The traffic of a plan.
pub(crate) struct PlannedTraffic<'t> {
    /// Recent requests.
    pub(crate) sample: &'t [Question],
    pub(crate) is_healthy: &'t dyn Fn(SocketAddr) -> Option<bool>,
    pub(crate) limits: PlanLimits,
}

impl TrialCompiler {
    /// Creates a trial compiler with the environment of `like`, which reads these variables.
    pub(crate) fn new(like: &Compiler, variables: Arc<ReadVariables>) -> TrialCompiler {
        TrialCompiler { empty: Mutex::new(like.fresh()), variables, secrets: OnceLock::new() }
    }

    /// Hides the values of secrets in this ledger.
    pub(crate) fn hide_secrets(&self, ledger: Arc<FetchLedger>) {
        // The ledger of a process is set once.
        let _ = self.secrets.set(ledger);
    }

    fn fresh(&self) -> Compiler {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner).fresh()
    }

    /// Failing tests. They name fields of upstream requests, whose values may come from references.
    fn run_tests(&self, snapshot: &Snapshot, resources: &[Resource]) -> Vec<Problem> {
        let mut failing = policy::run(snapshot, resources, yumen_proxy::clock::exact());
        self.hide_values(&mut failing);
        failing
    }

    /// Replaces values of references in messages.
    fn hide_values<'p>(&self, problems: impl IntoIterator<Item = &'p mut Problem>) {
        let mut problems = problems.into_iter().peekable();
        if problems.peek().is_none() {
            return;
        }
        let mut values = self.variables.values();
        values.extend(self.secrets.get().into_iter().flat_map(|ledger| ledger.secret_values()));
        for problem in problems {
            problem.message = without_values(std::mem::take(&mut problem.message), values.clone());
        }
    }

    /// Compiles resources; returns their snapshot and problems.
    pub(crate) fn compile(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        self.compile_from(Vec::new(), resources)
    }

    /// Compiles resources with `former` as the last good versions.
    fn compile_from(&self, former: Vec<Resource>, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        let mut compiler = self.fresh();
        compiler.begin_from(former);
        let snapshot = compiler.replace_all(resources, 0).snapshot;
        (snapshot, compiler.problems())
    }

    /// Plans a change, with its effect on sampled requests. For a reader without secrets no request is simulated, and no
    /// reference or file is read: the document of the reader could send a secret to an upstream, or decide by it, and a
    /// test would show the outcome.
    pub(crate) fn plan(
        &self,
        before: &[Resource],
        after: &[Resource],
        traffic: PlannedTraffic<'_>,
        visibility: SecretVisibility,
    ) -> ChangePlan {
        let PlannedTraffic { sample, is_healthy, limits } = traffic;
        let workshop = PlanContext {
            compiler: &|| match visibility {
                SecretVisibility::Whole => self.fresh(),
                SecretVisibility::NoSecrets => self.fresh().isolated(),
            },
            now: yumen_proxy::clock::exact(),
            certificate: &findings::certificate,
            is_healthy,
            limits,
            simulates: visibility == SecretVisibility::Whole,
        };
        let mut plan = plan(before, after, sample, &workshop);
        self.hide_values(plan.problems.iter_mut().map(|planned| &mut planned.problem));
        plan
    }

    /// Problems, failing tests and lint findings of these resources.
    pub(crate) fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem> {
        let (snapshot, mut problems) = self.compile(resources.to_vec());
        problems.extend(self.run_tests(&snapshot, resources));
        problems.extend(findings::of(resources, &snapshot, strict));
        problems
    }

    /// Failing tests among these resources. Without tests nothing is compiled.
    pub(crate) fn failing_tests(&self, resources: &[Resource]) -> Vec<Problem> {
        self.newly_failing(Vec::new(), resources)
    }

    /// Failing tests, with `former` as the last good versions of broken objects.
    pub(crate) fn newly_failing(&self, former: Vec<Resource>, resources: &[Resource]) -> Vec<Problem> {
        if resources.iter().all(|resource| resource.kind != Kind::Tests) {
            return Vec::new();
        }
        let (snapshot, _) = self.compile_from(former, resources.to_vec());
        self.run_tests(&snapshot, resources)
    }
}

/// Reports failing tests of the active configuration as problems. It blocks nothing: a change that bypassed
/// this gateway, or an expiry, is already in effect.
pub(crate) async fn watch_tests(trial: Arc<TrialCompiler>, store: Arc<dyn Store>, control: ControlHandle) {
    let mut published = control.applied_tracker.published();
    let mut known = None;
    loop {
        // Marked as seen before the state is read, so that a change in between causes another run.
        published.borrow_and_update();
        let (trial, store, versions) = (trial.clone(), store.clone(), control.versions.clone());
        let (compiled, started) = (published.clone(), Instant::now());
        let run = move || {
            let now_ms = yumen_proxy::clock::exact().unix_ms;
            let state = store.state();
            // Resolved addresses do not affect tests, but expired objects do.
            let resources = state.resources_at(now_ms);
            let seen = (state.revision, resources.len());
            let is_known = known == Some(seen);
            let failing = (!is_known).then(|| trial.newly_failing(versions.resources(), &resources));
            // The last good versions of this revision are known only after its publication.
            let is_final = *compiled.borrow() >= state.revision;
            (is_final.then_some(seen), failing)
        };
        // A panic is logged by its hook; the next change triggers another run.
        if let Ok((seen, failing)) = spawn_blocking(run).await {
            known = seen;
            // Fails only if the process is ending and the control thread with it.
            let report = |failing| {
                drop(control.messages.send(ControlMessage::Problems(ProblemSource::Tests, failing)))
            };
            failing.into_iter().for_each(report);
        }
        let rest = SETTLE.max(started.elapsed() * REST_PER_RUN);
        if published.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(rest).await;
    }
}

#[cfg(test)]
mod tests;
