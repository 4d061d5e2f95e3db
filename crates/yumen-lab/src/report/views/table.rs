//! Cases as rows with ratios to the first, as in R4: the cost of each plugin on each gateway.
//!
//! Reads the record through its context.

use super::super::chart::{AxisSpacing, ChartAxis, ChartPlot, ChartPoint, DotPlot, DotRow, ReportChart};
use super::super::context::{ReportContext, target_names};
use super::super::document::{ReportBlock, ReportTable, TableCell};
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RunCase, ViewKind};
use crate::statistics::ConfidenceInterval;

/// Figures of the tables, one table each; ratios are drawn for the first measured one.
const METRICS: [RoundMetric; 7] = [
    RoundMetric::Throughput,
    RoundMetric::CpuPerRequest,
    RoundMetric::LatencyP50,
    RoundMetric::LatencyP99,
    RoundMetric::Errors,
    RoundMetric::Memory,
    RoundMetric::MemoryPerConnection,
];

pub(super) fn blocks(context: ReportContext<'_>, id: &str) -> Vec<ReportBlock> {
    let cases: Vec<&RunCase> = context.run.cases.iter().collect();
    let mut blocks = Vec::new();
    // If another view comes first, the first case is the end of its axis and no base for ratios.
    if context.run.scenario.views.first().is_none_or(|view| view.kind == ViewKind::Table) {
        for metric in [RoundMetric::Throughput, RoundMetric::CpuPerRequest] {
            blocks.extend(ratio_figure(context, metric, &cases, id));
        }
    }
    for metric in METRICS {
        blocks.extend(metric_table(context, metric, &cases));
    }
    blocks
}

fn metric_table(context: ReportContext<'_>, metric: RoundMetric, cases: &[&RunCase]) -> Option<ReportBlock> {
    let measured =
        |target: &MeasuredTarget| cases.iter().any(|case| !context.values(case, target, metric).is_empty());
    if !context.run.targets.iter().any(measured) {
        return None;
    }
    let mut table = ReportTable::of_numbers(heading(metric), "case", &target_names(context.run));
    for case in cases {
        let mut row = vec![TableCell::text(&case.label)];
        row.extend(context.cells(case, metric));
        table.rows.push(row);
    }
    table.notes = context.flag_notes(cases);
    Some(ReportBlock::Table(table))
}

/// Ratio of each target's cases to its own first case.
fn ratio_figure(
    context: ReportContext<'_>,
    metric: RoundMetric,
    cases: &[&RunCase],
    id: &str,
) -> Option<ReportBlock> {
    let (first, others) = cases.split_first()?;
    if others.is_empty() {
        return None;
    }
    let caption = format!("{} as a ratio to the first case", heading(metric));
    let mut table = ReportTable::of_numbers(&caption, "case", &target_names(context.run));
    let mut rows = Vec::new();
    for case in cases {
        let mut dots = Vec::new();
        let mut cells = vec![TableCell::text(&case.label)];
        for target in &context.run.targets {
            let point = ratio(context, metric, first, case, target);
            cells
                .push(point.map_or_else(TableCell::none, |point| {
                    TableCell::text(QuantityUnit::Ratio.show(point.x))
                }));
            dots.extend(point.map(|point| (context.style(&target.name), point)));
        }
        rows.push(DotRow { label: case.label.clone(), dots });
        table.rows.push(cells);
    }
    if rows.iter().all(|row| row.dots.is_empty()) {
        return None;
    }
    table.notes.push(format!("1.00 is what the same target did in the case `{}`.", first.label));
    let chart = ReportChart {
        id: format!("{id}-{metric:?}").to_lowercase(),
        title: caption,
        description: describe(context, metric, cases),
        plot: ChartPlot::Dots(DotPlot {
            x: ChartAxis {
                label: format!("{}, ratio to the first case", metric.name()),
                spacing: AxisSpacing::Linear,
                unit: QuantityUnit::Ratio,
            },
            rows,
        }),
        legend: context.legend(),
    };
    Some(ReportBlock::Figure(Box::new(chart), table))
}

fn ratio(
    context: ReportContext<'_>,
    metric: RoundMetric,
    first: &RunCase,
    case: &RunCase,
    target: &MeasuredTarget,
) -> Option<ChartPoint> {
    let base = context.middle(first, target, metric)?;
    let spread = context.spread(case, target, metric)?;
    if base <= 0.0 {
        return None;
    }
    let interval = ConfidenceInterval { low: spread.interval.low / base, high: spread.interval.high / base };
    let flagged = context.doubt(case, target).is_some();
    Some(ChartPoint { x: spread.median / base, y: 0.0, interval: Some(interval), flagged })
}

/// Largest change of each target relative to its first case.
fn describe(context: ReportContext<'_>, metric: RoundMetric, cases: &[&RunCase]) -> String {
    let Some(first) = cases.first() else { return String::new() };
    let furthest = |target: &MeasuredTarget| {
        let ratios =
            cases.iter().filter_map(|case| Some((case, ratio(context, metric, first, case, target)?.x)));
        let (case, ratio) = ratios.max_by(|(_, a), (_, b)| (a.ln().abs()).total_cmp(&b.ln().abs()))?;
        Some(format!("{} {} ({})", target.name, QuantityUnit::Ratio.show(ratio), case.label))
    };
    let listed: Vec<String> = context.run.targets.iter().filter_map(furthest).collect();
    format!("Furthest from the first case: {}.", listed.join("; "))
}

/// Heading of a metric with its unit or meaning.
pub(crate) fn heading(metric: RoundMetric) -> &'static str {
    match metric {
        RoundMetric::Throughput => "Throughput, good responses per second",
        RoundMetric::CpuPerRequest => "CPU time of the gateway per request",
        RoundMetric::LatencyP50 => "Median latency",
        RoundMetric::LatencyP95 => "Latency, 95th percentile",
        RoundMetric::LatencyP99 => "Latency, 99th percentile",
        RoundMetric::LatencyP999 => "Latency, 99.9th percentile",
        RoundMetric::Errors => "Errors, share of requests",
        RoundMetric::Memory => "Largest resident memory of the gateway",
        RoundMetric::MemoryPerConnection => "Memory of the gateway per connection held",
    }
}
