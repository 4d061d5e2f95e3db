//! Cases as rows; rate, p95 and p99 with their standard deviations as columns, as in R4.
//!
//! Reads the record through its context.

use super::super::context::ReportContext;
use super::super::document::{ReportBlock, ReportTable, TableCell};
use crate::metric::{RoundMetric, good_rate};
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RunCase, TargetResult};
use crate::statistics::SampleSpread;

/// One table per target: the rows of different gateways answer different questions.
pub(super) fn blocks(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let cases: Vec<&RunCase> = context.run.cases.iter().collect();
    context.run.targets.iter().filter_map(|target| table(context, target, &cases)).collect()
}

fn table(context: ReportContext<'_>, target: &MeasuredTarget, cases: &[&RunCase]) -> Option<ReportBlock> {
    let caption = format!("{}: rate and latency of each case", target.name);
    let mut table = ReportTable::with_columns(caption, &["case", "#QPS", "#±", "#p95", "#±", "#p99", "#±"]);
    let mut measured = Vec::new();
    for case in cases {
        let Some(result) = context.result(case, target) else { continue };
        let mut row = vec![TableCell { flag: context.doubt(case, target), ..TableCell::text(&case.label) }];
        let rates: Vec<f64> = result.rounds.iter().map(|round| good_rate(&round.summary)).collect();
        row.extend(with_deviation(&rates, QuantityUnit::PerSecond));
        for metric in [RoundMetric::LatencyP95, RoundMetric::LatencyP99] {
            row.extend(with_deviation(&over(metric, result), QuantityUnit::Nanoseconds));
        }
        table.rows.push(row);
        measured.push(*case);
    }
    if table.rows.is_empty() {
        return None;
    }
    table
        .notes
        .push("QPS: good responses per second. Means of the rounds; ±: their standard deviation.".to_owned());
    table.notes.extend(context.flag_notes(&measured));
    Some(ReportBlock::Table(table))
}

fn over(metric: RoundMetric, result: &TargetResult) -> Vec<f64> {
    metric.over(&result.rounds)
}

/// Mean and standard deviation; a single round has none.
fn with_deviation(values: &[f64], unit: QuantityUnit) -> [TableCell; 2] {
    let Some(spread) = SampleSpread::of(values) else { return [TableCell::none(), TableCell::none()] };
    let deviation = match spread.count {
        1 => TableCell::none(),
        _ => TableCell::text(unit.show(spread.standard_deviation)),
    };
    [TableCell::text(unit.show(spread.mean)), deviation]
}
