//! Configuration compiled beside what is in force: the same compile, with counters and health of its own.

use std::sync::{Arc, Mutex, PoisonError};

use yumen_base::Problem;
use yumen_config::{Kind, Resource};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::{Snapshot, policy};

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

    /// What the tests among these resources find; nothing is compiled where there are none.
    pub(crate) fn failing_tests(&self, resources: &[Resource]) -> Vec<Problem> {
        if resources.iter().all(|resource| resource.kind != Kind::Tests) {
            return Vec::new();
        }
        let (snapshot, _) = self.compile(resources.to_vec());
        policy::run(&snapshot, resources, yumen_proxy::clock::exact())
    }
}
