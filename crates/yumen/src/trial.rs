//! Configuration compiled beside what is in force: the same compile, with counters and health of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use yumen_base::Problem;
use yumen_config::{Kind, Resource};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::plan::{ChangePlan, PlanContext, PlanLimits, plan};
use yumen_snapshot::{Question, Snapshot, policy};
use yumen_store::Store;

use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use crate::lint;

/// Many changes may follow each other.
const SETTLE: Duration = Duration::from_millis(500);
/// Tests in force are rested from at least so many times what they took, so that they do not occupy a core.
const REST_PER_RUN: u32 = 20;

/// Compiles what is not, or not yet, in force.
pub(crate) struct TrialCompiler {
    empty: Mutex<Compiler>,
}

impl TrialCompiler {
    /// Compiles as this compiler would.
    pub(crate) fn new(like: &Compiler) -> TrialCompiler {
        TrialCompiler { empty: Mutex::new(like.fresh()) }
    }

    /// The snapshot of these resources, and what is wrong with them.
    pub(crate) fn compile(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        self.compile_from(Vec::new(), resources)
    }

    /// The same where objects that are broken have these texts as their last good ones.
    fn compile_from(&self, former: Vec<Resource>, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        let mut compiler = self.empty.lock().unwrap_or_else(PoisonError::into_inner).fresh();
        compiler.begin_from(former);
        let snapshot = compiler.replace_all(resources, 0).snapshot;
        (snapshot, compiler.problems())
    }

    /// What a change would do, to these requests too.
    pub(crate) fn plan(
        &self,
        before: &[Resource],
        after: &[Resource],
        sample: &[Question],
        is_healthy: &dyn Fn(SocketAddr) -> Option<bool>,
        limits: PlanLimits,
    ) -> ChangePlan {
        let workshop = PlanContext {
            compiler: &|| self.empty.lock().unwrap_or_else(PoisonError::into_inner).fresh(),
            now: yumen_proxy::clock::exact(),
            certificate: &lint::certificate,
            is_healthy,
            limits,
        };
        plan(before, after, sample, &workshop)
    }

    /// What is wrong with these resources and fails among their tests, and what they say that is probably not
    /// meant.
    pub(crate) fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem> {
        let (snapshot, mut problems) = self.compile(resources.to_vec());
        problems.extend(policy::run(&snapshot, resources, yumen_proxy::clock::exact()));
        problems.extend(lint::findings(resources, &snapshot, strict));
        problems
    }

    /// What the tests among these resources find; nothing is compiled where there are none.
    pub(crate) fn failing_tests(&self, resources: &[Resource]) -> Vec<Problem> {
        self.failing_beside(Vec::new(), resources)
    }

    /// The same where objects that are broken have these texts as their last good ones.
    pub(crate) fn failing_beside(&self, former: Vec<Resource>, resources: &[Resource]) -> Vec<Problem> {
        if resources.iter().all(|resource| resource.kind != Kind::Tests) {
            return Vec::new();
        }
        let (snapshot, _) = self.compile_from(former, resources.to_vec());
        policy::run(&snapshot, resources, yumen_proxy::clock::exact())
    }
}

/// Has failing tests of what the store holds told as problems, and holds nothing back: what was not written through this
/// gateway, or ended by itself, is there already.
pub(crate) async fn watch_tests(trial: Arc<TrialCompiler>, store: Arc<dyn Store>, control: ControlHandle) {
    let mut published = control.reach.published();
    let mut known = None;
    loop {
        published.borrow_and_update();
        let (trial, store, versions) = (trial.clone(), store.clone(), control.versions.clone());
        let (compiled, started) = (published.clone(), Instant::now());
        let run = move || {
            let now_ms = yumen_proxy::clock::exact().unix_ms;
            let state = store.state();
            // Addresses that were found change nothing of it; what has ended does.
            let resources = state.resources_at(now_ms);
            let seen = (state.revision, resources.len());
            let is_known = known == Some(seen);
            let failing = (!is_known).then(|| trial.failing_beside(versions.resources(), &resources));
            // What is in force in place of broken objects is told when that is published.
            let is_final = *compiled.borrow() >= state.revision;
            (is_final.then_some(seen), failing)
        };
        // What panics tells by itself, and the next change is looked at again.
        if let Ok((seen, failing)) = spawn_blocking(run).await {
            known = seen;
            // The control thread ends with the process.
            let tell = |failing| {
                drop(control.messages.send(ControlMessage::Problems(ProblemSource::Tests, failing)))
            };
            failing.into_iter().for_each(tell);
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
