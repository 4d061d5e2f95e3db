//! Configuration compiled beside what is in force: the same compile, with counters and health of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use yumen_base::Problem;
use yumen_config::{Kind, Resource};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::plan::{Limits, Plan, Workshop, plan};
use yumen_snapshot::{Lint, Question, Snapshot, lint, policy};

use crate::lint as facts;

/// Compiles what is not, or not yet, in force.
pub(crate) struct Trial {
    empty: Mutex<Compiler>,
}

impl Trial {
    /// Compiles as this compiler would.
    pub(crate) fn new(like: &Compiler) -> Trial {
        Trial { empty: Mutex::new(like.fresh()) }
    }

    /// The snapshot of these resources, and what is wrong with them.
    pub(crate) fn compile(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        let mut compiler = self.empty.lock().unwrap_or_else(PoisonError::into_inner).fresh();
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
        limits: Limits,
    ) -> Plan {
        let workshop = Workshop {
            compiler: &|| self.empty.lock().unwrap_or_else(PoisonError::into_inner).fresh(),
            now: yumen_proxy::clock::exact(),
            certificate: &facts::certificate,
            is_healthy,
            limits,
        };
        plan(before, after, sample, &workshop)
    }

    /// What is wrong with these resources and fails among their tests, and what they say that is probably not
    /// meant.
    pub(crate) fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem> {
        let (snapshot, mut problems) = self.compile(resources.to_vec());
        let now = yumen_proxy::clock::exact();
        problems.extend(policy::run(&snapshot, resources, now));
        let (now_unix_s, certificate) = (now.unix_s(), &facts::certificate);
        problems.extend(lint(&Lint { resources, snapshot: &snapshot, now_unix_s, certificate, strict }));
        problems
    }

    /// What the tests among these resources find; nothing is compiled where there are none.
    pub(crate) fn failing_tests(&self, resources: &[Resource]) -> Vec<Problem> {
        if resources.iter().all(|resource| resource.kind != Kind::Tests) {
            return Vec::new();
        }
        let (snapshot, _) = self.compile(resources.to_vec());
        policy::run(&snapshot, resources, yumen_proxy::clock::exact())
    }
}

#[cfg(test)]
mod tests;
