//! `yumen check`: the live compile and the document's tests, with nothing served.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use yumen_base::Problem;

use crate::offline;

/// Compiles `file` and prints every problem.
pub(crate) fn check(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load(file)?;
    report(&loaded.problems, loaded.resources.len(), json)
}

/// Prints problems and how many there are; the exit status says whether one is an error.
pub(crate) fn report(problems: &[Problem], objects: usize, json: bool) -> anyhow::Result<ExitCode> {
    let errors = offline::errors(problems);
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, problems)?;
        writeln!(out)?;
    } else {
        print(&mut out, problems, objects, errors)?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(out: &mut impl Write, problems: &[Problem], count: usize, errors: usize) -> std::io::Result<()> {
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    let warnings = problems.len() - errors;
    writeln!(out, "{count} objects, {errors} errors, {warnings} warnings")
}
