//! `yumen-bench report`: converts records of runs to HTML, Markdown, JSON or CSV.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::record::RunRecord;
use crate::report::{ReportFormat, read_run, render, render_csv, render_index};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Records of runs, written by `yumen-bench run`; `-` reads standard input.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Formats for people.
    #[command(flatten)]
    pub page: ReportPageArgs,
    /// Formats for programs.
    #[command(flatten)]
    pub data: ReportDataArgs,
    /// Output file, whose extension selects the format if no option does; standard output by default. For
    /// several records, a directory: a report for each and index.html.
    #[arg(long, short)]
    pub out: Option<PathBuf>,
}

/// Formats for people.
#[derive(Debug, Args)]
pub struct ReportPageArgs {
    /// Write a self-contained HTML page (default).
    #[arg(long, conflicts_with_all = ["md", "json", "csv"])]
    pub html: bool,
    /// Write Markdown: tables without charts.
    #[arg(long, visible_alias = "markdown", conflicts_with_all = ["json", "csv"])]
    pub md: bool,
}

/// Formats for programs.
#[derive(Debug, Args)]
pub struct ReportDataArgs {
    /// Write computed figures, comparisons and losses as JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Write CSV: one line per round, of all records in one table.
    #[arg(long)]
    pub csv: bool,
}

/// Writes the report.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let runs: Vec<RunRecord> = args.runs.iter().map(|path| read_file(path)).collect::<Result<_>>()?;
    let format = format(args);
    match (&args.out, runs.as_slice()) {
        (Some(folder), runs) if format != ReportFormat::Csv && (runs.len() > 1 || folder.is_dir()) => {
            write_folder(folder, &args.runs, runs, format)?;
        }
        (None, [_, _, ..]) if format != ReportFormat::Csv => {
            bail!("several records make several reports: give a directory with --out, or use --csv");
        }
        (out, [one]) => write_text(out.as_deref(), &render(one, format)?)?,
        (out, several) => write_text(out.as_deref(), &render_csv(several))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a report per record, named like the record, and an index of pages.
fn write_folder(folder: &Path, files: &[PathBuf], runs: &[RunRecord], format: ReportFormat) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("--out {}", folder.display()))?;
    let ending = match format {
        ReportFormat::Html => "html",
        ReportFormat::Markdown => "md",
        ReportFormat::Json => "json",
        ReportFormat::Csv => "csv",
    };
    let mut pages: Vec<(String, RunRecord)> = Vec::new();
    for (file, run) in files.iter().zip(runs) {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).filter(|stem| *stem != "-");
        let name = format!("{}.{ending}", stem.unwrap_or(&run.scenario.name));
        let path = folder.join(&name);
        ensure!(
            pages.iter().all(|(known, _)| *known != name),
            "{}: two records would have this report; rename one of them",
            path.display()
        );
        // A report in JSON must not replace its record.
        let is_record = path
            .canonicalize()
            .is_ok_and(|path| files.iter().any(|file| file.canonicalize().is_ok_and(|file| file == path)));
        ensure!(!is_record, "{}: this is a record; give another directory", path.display());
        write_text(Some(&path), &render(run, format)?)?;
        pages.push((name, run.clone()));
    }
    if format == ReportFormat::Html {
        write_text(Some(&folder.join("index.html")), &render_index(&pages))?;
    }
    Ok(())
}

fn write_text(path: Option<&Path>, text: &str) -> Result<()> {
    match path {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output"),
    }
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
    match ending {
        _ if args.page.html => ReportFormat::Html,
        _ if args.page.md => ReportFormat::Markdown,
        _ if args.data.json => ReportFormat::Json,
        _ if args.data.csv => ReportFormat::Csv,
        Some("md" | "markdown") => ReportFormat::Markdown,
        Some("json") => ReportFormat::Json,
        Some("csv") => ReportFormat::Csv,
        _ => ReportFormat::Html,
    }
}
