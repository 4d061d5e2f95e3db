//! `yumen check`: compiles a resource file and runs its tests, without serving it.

use std::path::Path;
use std::process::ExitCode;

use yumen_base::Problem;

use super::{offline, output};
use crate::node::NodeFile;

/// Compiles `file` and prints every problem.
pub(crate) fn check(file: &Path, node: &NodeFile, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load(file, node)?;
    report(&loaded.problems, loaded.resources.len(), json)
}

/// Prints problems with their count; exit status 1 if one is an error.
pub(crate) fn report(problems: &[Problem], objects: usize, json: bool) -> anyhow::Result<ExitCode> {
    let errors = offline::errors(problems);
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(problems)?),
        false => words(problems, objects, errors),
    };
    output::print(&text)?;
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn words(problems: &[Problem], count: usize, errors: usize) -> String {
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    let warnings = problems.len() - errors;
    format!("{lines}{count} objects, {errors} errors, {warnings} warnings\n")
}
