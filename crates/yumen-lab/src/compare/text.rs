//! A comparison as aligned columns for a terminal or a CI log.
//!
//! Depends on the outcome, but not on the method.

use std::fmt::Write;

use super::{ComparisonOutcome, ComparisonRow};
use crate::quantity::QuantityUnit;
use crate::verdict::VerdictDecision;

const HEADINGS: [&str; 9] =
    ["verdict", "target", "case", "figure", "earlier", "later", "change", "p", "effect"];

/// Whether a column contains numbers.
const NUMERIC: [bool; 9] = [false, false, false, false, true, true, true, true, false];

pub(super) fn write(outcome: &ComparisonOutcome, all: bool) -> String {
    let shown = outcome.rows.iter().filter(|row| all || row.verdict.decision != VerdictDecision::Same);
    let rows: Vec<[String; 9]> = shown.map(cells).collect();
    let mut text = String::new();
    for warning in &outcome.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if let Some(reference) = &outcome.relative_to {
        let _ = writeln!(text, "figures are ratios to {reference}, round by round (errors as they are)");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    if !rows.is_empty() {
        write_columns(&mut text, &rows);
        text.push('\n');
    }
    text.push_str(&closing(outcome));
    text
}

fn cells(row: &ComparisonRow) -> [String; 9] {
    let verdict = &row.verdict;
    let unit = if row.relative { QuantityUnit::Ratio } else { row.metric.unit() };
    [
        verdict.decision.as_str().to_owned(),
        row.target.clone(),
        row.case.clone(),
        row.metric.name().to_owned(),
        unit.show(verdict.second.median),
        unit.show(verdict.first.median),
        change(row),
        crate::report::p_value(verdict.p_value),
        format!("{} ({:+.2})", verdict.effect.as_str(), verdict.delta),
    ]
}

fn change(row: &ComparisonRow) -> String {
    match row.verdict.ratio {
        Some(ratio) => format!("{:+.1}\u{202f}%", (ratio - 1.0) * 100.0),
        None => "from zero".to_owned(),
    }
}

fn write_columns(text: &mut String, rows: &[[String; 9]]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let headings = HEADINGS.map(str::to_owned);
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if NUMERIC[column] {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Counts by decision, and the number of differences expected by chance.
fn closing(outcome: &ComparisonOutcome) -> String {
    let count = |decision| outcome.count(decision);
    let mut text = format!(
        "{} figures compared: {} worse, {} better, {} within {}, {} inconclusive, {} with too few rounds\n",
        outcome.rows.len(),
        count(VerdictDecision::Worse),
        count(VerdictDecision::Better),
        count(VerdictDecision::Same),
        QuantityUnit::Share.tick(outcome.limits.threshold),
        count(VerdictDecision::Undecided),
        count(VerdictDecision::TooFew),
    );
    let by_chance = outcome.limits.alpha * outcome.rows.len() as f64;
    let _ = writeln!(
        text,
        "with p <= {} the rank test alone would call about {} of them different by chance; the threshold is there for those",
        outcome.limits.alpha,
        QuantityUnit::Count.show(by_chance),
    );
    if count(VerdictDecision::TooFew) > 0 {
        text.push_str("a verdict needs at least three rounds in each run\n");
    }
    text
}
