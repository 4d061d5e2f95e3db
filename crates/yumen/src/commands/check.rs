//! `yumen check`: compiles a resource file and runs its tests, or compiles Kubernetes manifests, without serving them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use yumen_base::{Problem, quantity};

use super::{offline, output};
use crate::diagnostics::{ExitStatus, SourceText, has_colors, render};
use crate::node::NodeFile;

/// Compiles `file` and prints every problem.
pub(crate) fn check(file: &Path, node: &NodeFile, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load(file, node)?;
    report(&loaded.problems, Some(&loaded.source), loaded.resources.len(), json)
}

/// Translates and compiles Kubernetes manifests and prints every problem.
pub(crate) fn check_manifests(paths: &[PathBuf], node: &NodeFile, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load_manifests(paths, node)?;
    report(&loaded.problems(), None, loaded.manifests.count, json)
}

/// Prints problems with their count; exit status 1 if one is an error.
pub(crate) fn report(
    problems: &[Problem],
    source: Option<&SourceText>,
    objects: usize,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let errors = offline::errors(problems);
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(problems)?),
        false => {
            let rendered = render(problems, source, has_colors(&std::io::stdout()));
            format!("{rendered}{}", summary(problems, objects, errors))
        }
    };
    output::print(&text)?;
    Ok(if errors == 0 { ExitStatus::Done } else { ExitStatus::Problems }.into())
}

fn summary(problems: &[Problem], objects: usize, errors: usize) -> String {
    let warnings = problems.len() - errors;
    format!(
        "{}, {}, {}\n",
        quantity(objects, "object"),
        quantity(errors, "error"),
        quantity(warnings, "warning")
    )
}
