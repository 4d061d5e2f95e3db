//! Latency by percentile up to p99.9999, as in R2. Gateways differ most at the far end.
//!
//! Reads the record through its context.

use yumen_load::LatencySummary;

use super::super::chart::{AxisSpacing, ChartAxis, ChartPlot, ChartPoint, LinePlot, LineSeries, ReportChart};
use super::super::context::{ReportContext, target_names};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::metric::percentile;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RunCase, TargetResult, TargetRole};
use crate::statistics::{SampleSpread, median};

/// Percentiles of the tables.
const ROWS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// Minimum number of values beyond a percentile; with fewer, the percentile is unreliable.
const VALUES_BEYOND_MIN: f64 = 10.0;

/// Factor between corrected and uncorrected percentile from which the report mentions the difference.
const OMISSION_FROM: f64 = 1.5;

pub(super) fn blocks(context: ReportContext<'_>, id: &str) -> Vec<ReportBlock> {
    let several = context.run.cases.len() > 1;
    let mut blocks = Vec::new();
    for (index, case) in context.run.cases.iter().enumerate() {
        let figure = figure(context, case, &format!("{id}-{index}"));
        if let Some(figure) = figure {
            if several {
                blocks.push(ReportBlock::Heading(case.label.clone()));
            }
            blocks.push(figure);
            blocks.extend(omission_notice(context, case));
        }
    }
    blocks
}

fn figure(context: ReportContext<'_>, case: &RunCase, id: &str) -> Option<ReportBlock> {
    let series: Vec<LineSeries> = context
        .run
        .targets
        .iter()
        .filter_map(|target| {
            let result = context.result(case, target)?;
            let flagged = context.doubt(case, target).is_some();
            Some(LineSeries { style: context.style(&target.name), points: points(result, flagged) })
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    let chart = ReportChart {
        id: id.to_owned(),
        title: "Latency by percentile".to_owned(),
        description: describe(context, case),
        plot: ChartPlot::Lines(LinePlot {
            x: ChartAxis {
                label: "percentile".to_owned(),
                spacing: AxisSpacing::Nines,
                unit: QuantityUnit::Percentile,
            },
            y: ChartAxis {
                label: "latency, logarithmic".to_owned(),
                spacing: AxisSpacing::Logarithmic,
                unit: QuantityUnit::Nanoseconds,
            },
            series,
            marks: Vec::new(),
            x_ticks: None,
            every_point: false,
        }),
        legend: context.legend(),
    };
    Some(ReportBlock::Figure(Box::new(chart), table(context, case)))
}

/// Median over the rounds at every percentile that all rounds have.
fn points(result: &TargetResult, flagged: bool) -> Vec<ChartPoint> {
    let Some(first) = result.rounds.first() else { return Vec::new() };
    let listed = first.summary.main_latency().percentiles.iter().map(|entry| entry.percentile);
    let listed = listed.filter(|percentile| *percentile < 99.99995);
    listed
        .filter_map(|percent| {
            let values = values(result, percent, true);
            let interval = SampleSpread::of(&values)?.interval;
            let y = median(&values)?;
            Some(ChartPoint { x: percent / 100.0, y, interval: Some(interval), flagged })
        })
        .collect()
}

fn values(result: &TargetResult, percent: f64, corrected: bool) -> Vec<f64> {
    let latency = |round: &crate::record::RoundRecord| -> Option<f64> {
        let summary = &round.summary;
        let latency = if corrected { summary.main_latency() } else { &summary.latencies.response };
        percentile(latency, percent)
    };
    result.rounds.iter().filter_map(latency).collect()
}

fn table(context: ReportContext<'_>, case: &RunCase) -> ReportTable {
    let mut table =
        ReportTable::of_numbers(format!("Latency: {}", case.label), "percentile", &target_names(context.run));
    let mut thin = false;
    for percent in ROWS {
        let mut row = vec![TableCell::text(QuantityUnit::Percentile.show(percent / 100.0))];
        for target in &context.run.targets {
            let cell = cell(context, case, target, percent);
            thin |= cell.flag == Some('n');
            row.push(cell);
        }
        table.rows.push(row);
    }
    let mut row = vec![TableCell::text("largest")];
    row.extend(context.run.targets.iter().map(|target| largest(context, case, target)));
    table.rows.push(row);
    table.notes.push("Median of the rounds; the last row is the largest of any round.".to_owned());
    if thin {
        table.notes.push("n: fewer than ten responses of a round lie beyond this percentile.".to_owned());
    }
    table.notes.extend(context.flag_notes(&[case]));
    table
}

fn cell(context: ReportContext<'_>, case: &RunCase, target: &MeasuredTarget, percent: f64) -> TableCell {
    let Some(result) = context.result(case, target) else { return TableCell::none() };
    let Some(value) = median(&values(result, percent, true)) else { return TableCell::none() };
    let counts = result.rounds.iter().map(|round| round.summary.main_latency().count as f64);
    let beyond = counts.fold(f64::INFINITY, f64::min) * (1.0 - percent / 100.0);
    let flag = if beyond < VALUES_BEYOND_MIN { Some('n') } else { context.doubt(case, target) };
    let emphasis = if target.role == TargetRole::Baseline { CellEmphasis::Quiet } else { CellEmphasis::None };
    TableCell { text: QuantityUnit::Nanoseconds.show(value), emphasis, flag, bar: None }
}

fn largest(context: ReportContext<'_>, case: &RunCase, target: &MeasuredTarget) -> TableCell {
    let Some(result) = context.result(case, target) else { return TableCell::none() };
    let largest = result.rounds.iter().map(|round| round.summary.main_latency().max_ns).max();
    largest.map_or_else(TableCell::none, |ns| TableCell::text(QuantityUnit::Nanoseconds.show(ns as f64)))
}

fn describe(context: ReportContext<'_>, case: &RunCase) -> String {
    let tail = |target: &MeasuredTarget| {
        let result = context.result(case, target)?;
        let (middle, far) = (median(&values(result, 50.0, true))?, median(&values(result, 99.99, true))?);
        let unit = QuantityUnit::Nanoseconds;
        Some(format!("{} from {} to {}", target.name, unit.show(middle), unit.show(far)))
    };
    let tails: Vec<String> = context.run.targets.iter().filter_map(tail).collect();
    format!("From the median to p99.99: {}.", tails.join("; "))
}

/// Notice of the latency that a closed loop would have hidden (coordinated omission).
fn omission_notice(context: ReportContext<'_>, case: &RunCase) -> Option<ReportBlock> {
    let corrected = |latency: &Option<LatencySummary>| latency.is_some();
    let hidden: Vec<String> = context
        .run
        .targets
        .iter()
        .filter_map(|target| {
            let result = context.result(case, target)?;
            if !result.rounds.iter().all(|round| corrected(&round.summary.latencies.corrected)) {
                return None;
            }
            let (honest, naive) =
                (median(&values(result, 99.9, true))?, median(&values(result, 99.9, false))?);
            let unit = QuantityUnit::Nanoseconds;
            (naive > 0.0 && honest / naive >= OMISSION_FROM)
                .then(|| format!("{}: {} instead of {}", target.name, unit.show(honest), unit.show(naive)))
        })
        .collect();
    (!hidden.is_empty()).then(|| {
        ReportBlock::Notice(format!(
            "Coordinated omission, p99.9 from the intended moment of sending instead of the actual one: {}.",
            hidden.join("; ")
        ))
    })
}
