//! `yumen check`: the live compile, with nothing served.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use yumen_base::{Level, Problem};
use yumen_config::{NodeConfig, document};
use yumen_plugin::Carry;

use crate::compiler;

/// Compiles `file` and prints every problem.
pub(crate) fn check(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (resources, mut problems) = document::parse(&text, &compiler::environment);
    let count = resources.len();
    let mut compiler = compiler::new(&NodeConfig::default(), 1, Arc::new(Carry::default()));
    compiler.replace_all(resources, 1);
    problems.extend(compiler.problems());
    let errors = problems.iter().filter(|problem| problem.level == Level::Error).count();
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &problems)?;
        writeln!(out)?;
    } else {
        print(&mut out, &problems, count, errors)?;
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
