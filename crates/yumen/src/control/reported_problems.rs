//! Problems beside those of the compiler: of the resource file as a whole, and of the node.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use yumen_base::{Problem, ProblemLevel};

use yumen_config::document::DocumentPlaces;

use super::ProblemSource;
use crate::diagnostics::SourceText;

/// Problems logged at most at once; the status listener has all of them.
const LOGGED_MAX: usize = 20;

/// Current problems by reporter.
#[derive(Debug, Default)]
pub(super) struct ReportedProblems {
    document: Vec<Problem>,
    by_source: BTreeMap<ProblemSource, Vec<Problem>>,
    /// The resource file in force.
    source: Option<SourceText>,
    /// Its index, built for the first problem.
    places: OnceCell<DocumentPlaces>,
}

/// Longest resource file whose problems get places: the control thread reads the file a second time for them.
const LOCATED_BYTES_MAX: usize = 8 * 1024 * 1024;

impl ReportedProblems {
    /// Replaces the problems of the resource file.
    pub(super) fn set_document(&mut self, problems: Vec<Problem>) {
        log(&problems);
        self.document = problems;
    }

    /// Replaces the resource file in force.
    pub(super) fn set_source(&mut self, source: SourceText) {
        self.source = (source.text.len() <= LOCATED_BYTES_MAX && !source.name.is_empty()).then_some(source);
        self.places = OnceCell::new();
    }

    /// Adds the places in the resource file to problems of its objects.
    pub(super) fn locate(&self, problems: &mut [Problem]) {
        let Some(source) = self.source.as_ref().filter(|_| !problems.is_empty()) else { return };
        let places = self.places.get_or_init(|| source.places());
        places.locate(problems);
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
        let Problem { object, path, message, hint, allowed, place, .. } = problem;
        let hint = hint.as_deref().unwrap_or_default();
        let place = place.as_ref().map(tracing::field::display);
        match problem.level {
            ProblemLevel::Error => {
                tracing::error!(place, object, path, message, allowed, hint, "configuration problem")
            }
            ProblemLevel::Warning => {
                tracing::warn!(place, object, path, message, allowed, hint, "configuration problem")
            }
        }
    }
    if problems.len() > LOGGED_MAX {
        tracing::warn!(more = problems.len() - LOGGED_MAX, "more configuration problems");
    }
}
