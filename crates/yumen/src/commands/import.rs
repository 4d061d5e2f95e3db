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
use crate::diagnostics::{ConfigProblems, ExitStatus, SourceText};
use crate::environment;
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
    pub(crate) form: ReportForm,
    /// Fail if anything is not converted exactly
    #[arg(long)]
    strict: bool,
}

/// Form of the report.
#[derive(Debug, Args)]
pub(crate) struct ReportForm {
    /// Write the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// List every object in the report, instead of one line per message
    #[arg(long)]
    verbose: bool,
}

/// Converts a declarative Kong file. The exit status is 1 if the result fails `yumen check`, if requests are
/// refused for lack of a guard plugin, or with `--strict` for any loss; 2 if the file is unreadable.
pub(crate) fn kong(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let source = SourceText::read(&args.file).map_err(|error| match error.downcast::<ConfigProblems>() {
        Ok(problems) => ConfigProblems { status: ExitStatus::Failed, ..problems }.into(),
        Err(error) => error,
    })?;
    let context = ImportContext {
        environment: &environment::variable,
        runs: &|plugin| yumen_plugins::BUILTIN.iter().any(|kind| kind.name == plugin),
    };
    let ImportResult { resources, mut report } = match kong::import(&source.text, &context) {
        Ok(imported) => imported,
        Err(message) => {
            let syntax = document::syntax_problem(&source.text);
            let mut problems = [syntax.unwrap_or_else(|| Problem::error("file", "", message))];
            source.locate(&mut problems);
            // Not the exit status of a conversion with losses: nothing was converted.
            bail!(ConfigProblems { status: ExitStatus::Failed, ..source.refuse(&problems) });
        }
    };
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
    Ok(if is_whole { ExitStatus::Done } else { ExitStatus::Problems }.into())
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
