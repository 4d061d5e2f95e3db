//! The end of a run on a terminal: the result in a sentence, a row per case and target, and the thresholds.
//!
//! Depends on the record, but not on the measurement.

use std::fmt::Write;

use super::context::ReportContext;
use super::headline::sentence;
use super::rivals::standings;
use crate::metric::{RoundMetric, bottleneck, good_rate, part_name};
use crate::quantity::QuantityUnit;
use crate::record::RunRecord;
use crate::statistics::median;
use crate::threshold::judge;
use crate::verdict::VerdictLimits;

const COLUMNS: [&str; 9] =
    ["case", "target", "rate/s", "p50", "p99", "errors", "CPU each", "memory", "bounded by"];

/// Whether a column contains numbers.
const NUMERIC: [bool; 9] = [false, false, true, true, true, true, true, true, false];

/// Formats the whole summary.
pub(crate) fn write(run: &RunRecord) -> String {
    let limits = VerdictLimits::default();
    let result = sentence(ReportContext::new(run), &standings(run, limits), limits);
    let mut text = format!("\n{}: {result}\nmedians of {}\n\n", run.scenario.name, super::build::rounds(run));
    let rows = rows(run);
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    for row in std::iter::once(&COLUMNS.map(str::to_owned)).chain(&rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match NUMERIC[column] {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let outcomes = judge(run);
    if !outcomes.is_empty() {
        text.push('\n');
    }
    for outcome in &outcomes {
        let verdict = if outcome.crossed { "CROSSED" } else { "kept" };
        let at = [outcome.target.as_str(), outcome.case.as_str()].join(" ");
        let _ = writeln!(text, "{verdict:<7}  {}  {}  {}", outcome.threshold, outcome.found, at.trim());
    }
    text
}

/// Medians of every target in every case.
fn rows(run: &RunRecord) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for case in &run.cases {
        for result in &case.results {
            let of = |metric: RoundMetric| {
                median(&metric.over(&result.rounds)).map_or("-".to_owned(), |value| metric.unit().show(value))
            };
            if result.rounds.is_empty() {
                // A target that does not take part in a case has neither rounds nor a reason.
                let Some(reason) = &result.missing else { continue };
                let mut row: [String; 9] = std::array::from_fn(|_| "-".to_owned());
                (row[0], row[1]) = (case.label.clone(), result.target.clone());
                row[8] = format!("missing: {}", reason.lines().next().unwrap_or_default());
                rows.push(row);
                continue;
            }
            let asked = result.rounds.iter().filter(|round| round.summary.idle.is_none());
            let rates: Vec<f64> = asked.map(|round| good_rate(&round.summary)).collect();
            rows.push([
                case.label.clone(),
                result.target.clone(),
                median(&rates).map_or("-".to_owned(), |rate| QuantityUnit::PerSecond.show(rate)),
                of(RoundMetric::LatencyP50),
                of(RoundMetric::LatencyP99),
                of(RoundMetric::Errors),
                of(RoundMetric::CpuPerRequest),
                of(RoundMetric::Memory),
                bottleneck(result).map_or("-", part_name).to_owned(),
            ]);
        }
    }
    rows
}
