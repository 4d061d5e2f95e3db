//! `yumen import kong`: converts the configuration of another gateway to a resource file, with a report.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use yumen_base::Problem;
use yumen_config::{Resource, document};
use yumen_import::{ImportContext, ImportFinding, ImportLevel, ImportResult, kong};

use super::{offline, output};
use crate::config::compiler;
use crate::node::NodeFile;
use crate::process::private_file;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Kong file, YAML or JSON
    file: PathBuf,
    #[command(flatten)]
    node: NodeFile,
    /// Output file of the resources
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Output file of the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    form: ReportForm,
    /// Fail if anything is not converted exactly
    #[arg(long)]
    strict: bool,
}

/// Form of the report.
#[derive(Debug, Args)]
struct ReportForm {
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// List every object in the report, instead of one line per message
    #[arg(long)]
    verbose: bool,
}

/// Exit status for a file that cannot be read or parsed.
const UNREADABLE: u8 = 2;

/// Converts a declarative Kong file. The exit status is 1 if the result fails `yumen check`, if requests are
/// refused for lack of a guard plugin, or with `--strict` for any loss; 2 if the file is unreadable.
pub(crate) fn kong(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    match convert(args) {
        Ok(imported) => write(args, imported),
        Err(error) => {
            // Not the exit status of other failures: nothing was converted.
            let _ = writeln!(std::io::stderr(), "yumen: {error:#}");
            Ok(ExitCode::from(UNREADABLE))
        }
    }
}

fn convert(args: &ImportArgs) -> anyhow::Result<ImportResult> {
    let name = args.file.display();
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {name}"))?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let (line, column) = position(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
            bail!("{name}: invalid UTF-8 at line {line} column {column}; expected YAML or JSON in UTF-8")
        }
    };
    let context = ImportContext {
        environment: &compiler::environment,
        runs: &|plugin| yumen_plugins::BUILTIN.iter().any(|kind| kind.name == plugin),
    };
    kong::import(&text, &context).map_err(|message| anyhow::anyhow!("{name}: {message}"))
}

/// Line and column after some text, counted from 1.
fn position(before: &[u8]) -> (usize, usize) {
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    (line, String::from_utf8_lossy(last).chars().count() + 1)
}

fn write(args: &ImportArgs, imported: ImportResult) -> anyhow::Result<ExitCode> {
    let ImportResult { resources, mut report } = imported;
    let errors = errors(&resources, &args.node)?;
    for problem in &errors {
        report.add(unusable(problem));
    }
    let losses = report.counts().different + report.counts().dropped;
    let is_whole = errors.is_empty() && report.refused() == 0 && (losses == 0 || !args.strict);
    let report = match &args.form {
        ReportForm { json: true, .. } => format!("{:#}\n", report.json()),
        ReportForm { verbose: true, .. } => report.text(),
        ReportForm { .. } => report.summary(),
    };
    let document = document::to_yaml(&resources).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    put(args.out.as_deref(), &document, |text| output::print(text).map(drop))?;
    put(args.report.as_deref(), &report, |text| Ok(std::io::stderr().write_all(text.as_bytes())?))?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Errors that `yumen check` would report.
fn errors(resources: &[Resource], node: &NodeFile) -> anyhow::Result<Vec<Problem>> {
    let mut compiler = offline::compiler(&node.read()?);
    compiler.replace_all(resources.to_vec(), 1);
    let mut problems = compiler.problems();
    problems.retain(|problem| problem.level == yumen_base::ProblemLevel::Error);
    Ok(problems)
}

fn unusable(problem: &Problem) -> ImportFinding {
    ImportFinding {
        level: ImportLevel::Dropped,
        object: problem.object.clone(),
        field: problem.path.clone(),
        instead: "the result is refused".to_owned(),
        why: problem.message.clone(),
        hint: problem.hint.clone().unwrap_or_else(|| "fix it in the result".to_owned()),
    }
}

fn put(
    file: Option<&Path>,
    text: &str,
    otherwise: impl FnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match file {
        // The result may contain credentials and private keys.
        Some(file) => private_file::write(file, |file| Ok(file.write_all(text.as_bytes())?)),
        None => otherwise(text).context("cannot write the result"),
    }
}
