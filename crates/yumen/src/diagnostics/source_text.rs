//! A file that problems are about.

use std::path::Path;

use anyhow::Context;
use yumen_base::{FilePlace, Problem};
use yumen_config::document::{DocumentPlaces, decode};

use super::{ConfigProblems, ExitStatus, has_colors, render};

/// Text and name of a file.
#[derive(Debug)]
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl SourceText {
    /// Reads a file. Bytes that are no UTF-8 are an error with their line.
    pub(crate) fn read(file: &Path) -> anyhow::Result<SourceText> {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let (text, problem) = match decode(bytes) {
            Ok(text) => return Ok(SourceText { name, text }),
            Err(refused) => *refused,
        };
        let span = problem.place.as_ref().map(|place| place.span);
        let place = span.map(|span| FilePlace { file: name.as_str().into(), span });
        let source = SourceText { name, text };
        Err(source.refuse(&[Problem { place, ..problem }]).into())
    }

    /// Adds the places of problems, and sorts the problems by place.
    pub(crate) fn locate_and_sort(&self, problems: &mut [Problem]) {
        self.locate(problems);
        // Problems of the whole file come first.
        problems
            .sort_by_key(|problem| problem.place.as_ref().map(|place| (place.span.line, place.span.column)));
    }

    /// Adds the places of problems of a document of resources, as a node reads the document.
    pub(crate) fn locate(&self, problems: &mut [Problem]) {
        if !problems.is_empty() {
            self.places().locate(problems);
        }
    }

    /// Indexes the text as a document of resources of this node.
    pub(crate) fn places(&self) -> DocumentPlaces {
        DocumentPlaces::of(&self.name, &self.text, &|name| std::env::var(name).ok())
    }

    /// The problems as an error of a command, for standard error.
    pub(crate) fn refuse(&self, problems: &[Problem]) -> ConfigProblems {
        let rendered = render(problems, Some(self), has_colors(&std::io::stderr()));
        ConfigProblems { status: ExitStatus::Problems, problems: problems.to_vec(), rendered }
    }
}
