//! A file that problems are about.

use std::path::Path;

use anyhow::Context;
use yumen_base::Problem;
use yumen_config::document::DocumentPlaces;

use super::{ConfigProblems, has_colors, render};

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
        match String::from_utf8(bytes) {
            Ok(text) => Ok(SourceText { name, text }),
            Err(error) => {
                let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let text = format!(
                    "{name}:{line}: error: the line is not UTF-8 text\nhelp: save the file as UTF-8\n"
                );
                Err(ConfigProblems(text).into())
            }
        }
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
            let environment = &crate::config::compiler::environment;
            DocumentPlaces::of(&self.name, &self.text, environment).locate(problems);
        }
    }

    /// The problems as an error of a command, for standard error.
    pub(crate) fn refuse(&self, problems: &[Problem]) -> ConfigProblems {
        ConfigProblems(render(problems, Some(self), has_colors(&std::io::stderr())))
    }
}
