//! Throughput, latency and errors by a parameter, as in R1 and R3, with processor time.
//!
//! Reads the record through its context.

use super::super::chart::{AxisSpacing, ChartAxis, ChartPlot, LinePlot, LineSeries, ReportChart};
use super::super::context::{ReportContext, number, target_names};
use super::super::document::{ReportBlock, ReportTable, TableCell};
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, ReportView, RunCase};

/// Charts in their order.
const METRICS: [RoundMetric; 5] = [
    RoundMetric::Throughput,
    RoundMetric::LatencyP50,
    RoundMetric::LatencyP99,
    RoundMetric::Errors,
    RoundMetric::CpuPerRequest,
];

/// Charts for a large number of groups; the tables contain the other figures.
const METRICS_FEW: [RoundMetric; 2] = [RoundMetric::Throughput, RoundMetric::CpuPerRequest];

/// Maximum number of groups with charts of all figures.
const GROUPS_WHOLE_MAX: usize = 3;

/// Ratio of the axis ends from which the axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 12.0;

pub(super) fn blocks(context: ReportContext<'_>, view: &ReportView, id: &str) -> Vec<ReportBlock> {
    let over = view.over.as_deref().unwrap_or("connections");
    let mut blocks = Vec::new();
    let mut groups = context.groups(over);
    groups.retain(|(_, cases)| cases.len() > 1);
    if groups.is_empty() {
        return vec![ReportBlock::Paragraph(format!(
            "This run has no two values of {over}; a curve needs them."
        ))];
    }
    let metrics = if groups.len() > GROUPS_WHOLE_MAX { &METRICS_FEW[..] } else { &METRICS[..] };
    for (index, (heading, cases)) in groups.into_iter().enumerate() {
        if !heading.is_empty() {
            blocks.push(ReportBlock::Heading(heading));
        }
        for metric in metrics.iter().copied() {
            blocks.extend(metric_block(context, metric, over, &cases, &format!("{id}-{index}")));
        }
    }
    blocks
}

/// A chart of one figure by the parameter, or a sentence if a chart would show nothing.
pub(super) fn metric_block(
    context: ReportContext<'_>,
    metric: RoundMetric,
    over: &str,
    cases: &[&RunCase],
    id: &str,
) -> Option<ReportBlock> {
    let series: Vec<LineSeries> = context
        .run
        .targets
        .iter()
        .map(|target| LineSeries {
            style: context.style(&target.name),
            points: cases
                .iter()
                .filter_map(|case| context.point(case, target, metric, number(case, over)?))
                .collect(),
        })
        .filter(|series: &LineSeries| !series.points.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    if metric == RoundMetric::Errors
        && series.iter().flat_map(|series| &series.points).all(|point| point.y == 0.0)
    {
        let sentence =
            format!("No target had an error at any number of {over}, in the median of its rounds.");
        return Some(ReportBlock::Paragraph(sentence));
    }
    let mut table =
        ReportTable::of_numbers(format!("{} over {over}", metric.name()), over, &target_names(context.run));
    for case in cases {
        let position = number(case, over).unwrap_or(0.0);
        let mut row = vec![TableCell::text(QuantityUnit::Count.show(position))];
        row.extend(context.cells(case, metric));
        table.rows.push(row);
    }
    table.notes = context.flag_notes(cases);
    let chart = ReportChart {
        id: format!("{id}-{metric:?}").to_lowercase(),
        title: title(metric, over),
        description: describe(context, metric, over, cases),
        plot: ChartPlot::Lines(lines(metric, over, cases, series)),
        legend: context.legend(),
    };
    Some(ReportBlock::Figure(Box::new(chart), table))
}

fn lines(metric: RoundMetric, over: &str, cases: &[&RunCase], series: Vec<LineSeries>) -> LinePlot {
    let positions: Vec<f64> = cases.iter().filter_map(|case| number(case, over)).collect();
    let low = positions.iter().copied().fold(f64::INFINITY, f64::min);
    let high = positions.iter().copied().fold(0.0, f64::max);
    let spacing = if low > 0.0 && high / low >= LOGARITHMIC_FROM {
        AxisSpacing::Logarithmic
    } else {
        AxisSpacing::Linear
    };
    let y_spacing =
        if metric.name().starts_with("latency") { AxisSpacing::Logarithmic } else { AxisSpacing::Linear };
    LinePlot {
        x: ChartAxis { label: over.to_owned(), spacing, unit: QuantityUnit::Count },
        y: ChartAxis { label: y_label(metric).to_owned(), spacing: y_spacing, unit: metric.unit() },
        series,
        marks: Vec::new(),
        x_ticks: Some(positions),
        every_point: true,
    }
}

fn title(metric: RoundMetric, over: &str) -> String {
    let what = match metric {
        RoundMetric::Throughput => "Throughput",
        RoundMetric::LatencyP50 => "Median latency",
        RoundMetric::LatencyP99 => "Latency, 99th percentile",
        RoundMetric::Errors => "Errors",
        RoundMetric::CpuPerRequest => "CPU time of the gateway per request",
        other => other.name(),
    };
    format!("{what} over {over}")
}

/// Label of the axis of a metric.
pub(crate) fn y_label(metric: RoundMetric) -> &'static str {
    match metric {
        RoundMetric::Throughput => "good responses per second",
        RoundMetric::Errors => "share of requests that failed",
        RoundMetric::CpuPerRequest => "CPU time per request",
        RoundMetric::Memory | RoundMetric::MemoryPerConnection => "resident memory",
        _ => "latency, logarithmic",
    }
}

/// Ranking at the last point.
fn describe(context: ReportContext<'_>, metric: RoundMetric, over: &str, cases: &[&RunCase]) -> String {
    let Some(last) = cases.last() else { return String::new() };
    let value = |target: &MeasuredTarget| Some((target.name.clone(), context.middle(last, target, metric)?));
    let mut values: Vec<(String, f64)> = context.run.targets.iter().filter_map(value).collect();
    values.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let listed: Vec<String> =
        values.iter().map(|(name, value)| format!("{name} {}", metric.unit().show(*value))).collect();
    let position = QuantityUnit::Count.show(number(last, over).unwrap_or(0.0));
    format!("At {position} {over}, from most to least: {}.", listed.join(", "))
}
