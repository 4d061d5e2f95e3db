//! Reports of a run: a self-contained HTML page, Markdown, or JSON.
//!
//! Every statement of a report is computed from the record of the run.

mod build;
pub mod chart;
mod context;
mod csv;
pub mod document;
mod flame;
mod headline;
mod html;
mod index;
mod json;
mod markdown;
mod markup;
mod rivals;
mod sections;
mod terminal;
mod views;

use anyhow::{Context as _, Result, ensure};

use crate::record::{FORMAT, RunRecord};

pub use build::build;
pub(crate) use rivals::p_value;
pub use rivals::{RivalComparison, standings};

/// Format of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// One page with charts.
    #[default]
    Html,
    /// Text with tables.
    Markdown,
    /// Computed figures and comparisons.
    Json,
    /// One line per round.
    Csv,
}

/// Renders the report of a run.
pub fn render(run: &RunRecord, format: ReportFormat) -> Result<String> {
    Ok(match format {
        ReportFormat::Html => html::write(&build(run)),
        ReportFormat::Markdown => markdown::write(&build(run)),
        ReportFormat::Json => json::write(run)?,
        ReportFormat::Csv => csv::write(std::slice::from_ref(run)),
    })
}

/// Renders the rounds of several runs as one CSV table.
pub fn render_csv(runs: &[RunRecord]) -> String {
    csv::write(runs)
}

/// Renders the index page of several reports. Each run has the file name of its page.
pub fn render_index(runs: &[(String, RunRecord)]) -> String {
    index::write(runs)
}

/// Renders the end of a run for a terminal.
pub fn render_summary(run: &RunRecord) -> String {
    terminal::write(run)
}

/// Parses the record of a run. A newer format is refused, because its meaning may differ.
pub fn read_run(text: &str) -> Result<RunRecord> {
    let value: serde_json::Value = serde_json::from_str(text).context("not JSON")?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    let format =
        format.context("no `format`: is this the record of a run, as `yumen-bench run` writes it?")?;
    ensure!(
        format <= u64::from(FORMAT),
        "format {format} is newer than this program, which knows up to {FORMAT}"
    );
    serde_json::from_value(value).context("not the record of a run, as `yumen-bench run` writes it")
}
