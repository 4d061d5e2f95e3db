//! State that the control thread exports to other threads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use yumen_base::{Histogram, Problem, ProblemLevel};
use yumen_snapshot::Publisher;

/// Histogram bounds of compile times, in microseconds.
pub(super) static COMPILE_BOUNDS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Histogram bounds of the time from commit to publication, in milliseconds.
pub(super) static PROPAGATION_BOUNDS_MS: &[u64] = &[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// Exported state of the control thread.
pub(crate) struct ControlStatus {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) revision: AtomicU64,
    problems: Mutex<Vec<Problem>>,
    pub(super) propagation: Histogram,
    pub(super) compile: Histogram,
    pub(super) compile_last_us: AtomicU64,
    pub(super) unresolved: AtomicU64,
    pub(super) awaited_secrets: AtomicU64,
}

impl ControlStatus {
    pub(super) fn new(publisher: Arc<Publisher>) -> ControlStatus {
        ControlStatus {
            publisher,
            revision: AtomicU64::new(0),
            problems: Mutex::default(),
            propagation: Histogram::new(PROPAGATION_BOUNDS_MS),
            compile: Histogram::new(COMPILE_BOUNDS_US),
            compile_last_us: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
            awaited_secrets: AtomicU64::new(0),
        }
    }

    /// Names of objects with errors.
    pub(crate) fn broken(&self) -> Vec<String> {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        errors.map(|problem| problem.object.clone()).collect()
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_problems(&self, problems: Vec<Problem>) {
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    }
}
