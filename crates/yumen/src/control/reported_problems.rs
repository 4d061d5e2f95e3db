//! Problems beside those of the compiler: of the resource file as a whole, and of the node.

use std::collections::BTreeMap;

use yumen_base::{Problem, ProblemLevel};

use super::ProblemSource;

/// Problems logged at most at once; the status listener has all of them.
const LOGGED_MAX: usize = 20;

/// Current problems by reporter.
#[derive(Debug, Default)]
pub(super) struct ReportedProblems {
    document: Vec<Problem>,
    by_source: BTreeMap<ProblemSource, Vec<Problem>>,
}

impl ReportedProblems {
    /// Replaces the problems of the resource file.
    pub(super) fn set_document(&mut self, problems: Vec<Problem>) {
        log(&problems);
        self.document = problems;
    }

    /// Replaces the problems of one reporter; returns whether they differ.
    pub(super) fn set(&mut self, source: ProblemSource, problems: Vec<Problem>) -> bool {
        let before = self.by_source.insert(source, problems.clone()).unwrap_or_default();
        let differs = before != problems;
        if differs {
            log(&problems);
        }
        differs
    }

    /// All problems, with those of the compiler between the resource file's and the node's.
    pub(super) fn with(&self, compiled: impl Iterator<Item = Problem>) -> Vec<Problem> {
        let document = self.document.iter().cloned();
        document.chain(compiled).chain(self.by_source.values().flatten().cloned()).collect()
    }
}

/// Logs the first problems.
pub(super) fn log(problems: &[Problem]) {
    for problem in problems.iter().take(LOGGED_MAX) {
        let Problem { object, path, message, hint, .. } = problem;
        let hint = hint.as_deref().unwrap_or_default();
        match problem.level {
            ProblemLevel::Error => tracing::error!(object, path, message, hint, "configuration problem"),
            ProblemLevel::Warning => tracing::warn!(object, path, message, hint, "configuration problem"),
        }
    }
    if problems.len() > LOGGED_MAX {
        tracing::warn!(more = problems.len() - LOGGED_MAX, "more configuration problems");
    }
}
