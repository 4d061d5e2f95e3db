//! `yumen-bench report`: converts the record of a run to HTML, Markdown or JSON.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::record::RunRecord;
use crate::report::{ReportFormat, read_run, render};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Record of a run, written by `yumen-bench run`; `-` reads standard input.
    pub run: PathBuf,
    /// Write a self-contained HTML page (default).
    #[arg(long, group = "format")]
    pub html: bool,
    /// Write Markdown: tables without charts.
    #[arg(long, visible_alias = "markdown", group = "format")]
    pub md: bool,
    /// Write computed figures, comparisons and losses as JSON.
    #[arg(long, group = "format")]
    pub json: bool,
    /// Output file; standard output by default. Its extension selects the format if no option does.
    #[arg(long, short)]
    pub out: Option<PathBuf>,
}

/// Writes the report.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let text = render(&read_file(&args.run)?, format(args))?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?
        }
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the record of a run from a file or standard input.
pub(crate) fn read_file(path: &Path) -> Result<RunRecord> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    read_run(&text).with_context(|| path.display().to_string())
}

fn format(args: &ReportArgs) -> ReportFormat {
    let ending = args.out.as_ref().and_then(|path| path.extension()).and_then(|ending| ending.to_str());
    match (args.html, args.md, args.json, ending) {
        (true, ..) => ReportFormat::Html,
        (_, true, ..) | (false, false, false, Some("md" | "markdown")) => ReportFormat::Markdown,
        (_, _, true, _) | (false, false, false, Some("json")) => ReportFormat::Json,
        _ => ReportFormat::Html,
    }
}
