//! Failed requests by class, as in R2: connection errors, timeouts, read errors, statuses.
//!
//! Reads the record through its context.

use super::super::context::{ReportContext, target_names};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::quantity::QuantityUnit;
use crate::record::{RunCase, TargetResult};

/// Names of the rows, in the order of [`ErrorTotals::by_class`](yumen_load::ErrorTotals::by_class).
const CLASS_NAMES: [&str; 7] = [
    "connection errors",
    "connection timeouts",
    "write errors",
    "read errors",
    "response timeouts",
    "statuses other than 2xx and 3xx",
    "protocol errors",
];

/// One table per case.
pub(super) fn blocks(context: ReportContext<'_>) -> Vec<ReportBlock> {
    context.run.cases.iter().filter_map(|case| table(context, case)).collect()
}

fn table(context: ReportContext<'_>, case: &RunCase) -> Option<ReportBlock> {
    let results: Vec<Option<&TargetResult>> =
        context.run.targets.iter().map(|target| context.result(case, target)).collect();
    if results.iter().all(Option::is_none) {
        return None;
    }
    let caption = format!("Failures: {}", case.label);
    let mut table = ReportTable::of_numbers(caption, "all rounds", &target_names(context.run));
    table.rows.push(row("requests", &results, |result| total(result, |summary| summary.totals.requests)));
    for (class, name) in CLASS_NAMES.iter().enumerate() {
        let count = |result: &TargetResult| total(result, |summary| summary.errors.by_class()[class].1);
        let mut cells = row(name, &results, count);
        for (cell, result) in cells[1..].iter_mut().zip(&results) {
            if result.is_some_and(|result| count(result) > 0) {
                cell.emphasis = CellEmphasis::Loss;
            }
        }
        table.rows.push(cells);
    }
    table.rows.push(row("cut off by the end", &results, |result| {
        total(result, |summary| summary.totals.unanswered)
    }));
    table
        .notes
        .push("Sums over the rounds. Requests cut off by the end of a round are no failures.".to_owned());
    Some(ReportBlock::Table(table))
}

fn row(
    name: &str,
    results: &[Option<&TargetResult>],
    count: impl Fn(&TargetResult) -> u64,
) -> Vec<TableCell> {
    let cell = |result: &Option<&TargetResult>| {
        result.map_or_else(TableCell::none, |result| {
            TableCell::text(QuantityUnit::Count.show(count(result) as f64))
        })
    };
    std::iter::once(TableCell::text(name)).chain(results.iter().map(cell)).collect()
}

fn total(result: &TargetResult, count: impl Fn(&yumen_load::LoadSummary) -> u64) -> u64 {
    result.rounds.iter().map(|round| count(&round.summary)).sum()
}
