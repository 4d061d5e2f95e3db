//! `yumen lint`: findings about valid but probably unintended configuration.

use std::path::Path;
use std::process::ExitCode;

use super::{check, offline};
use crate::config::findings;
use crate::node::NodeFile;

/// Prints the findings of `yumen check`, then those of lint.
pub(crate) fn run(file: &Path, node: &NodeFile, strict: bool, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load(file, node)?;
    let mut problems = loaded.problems;
    problems.extend(findings::of(&loaded.resources, &loaded.snapshot, strict));
    loaded.source.locate_and_sort(&mut problems);
    check::report(&problems, Some(&loaded.source), loaded.resources.len(), json)
}
