//! Cases as rows, with ratios to the first, as R4 has them: what each plugin costs each gateway.
//!
//! Knows the record through its context.

use super::super::chart::{Axis, Chart, DotRow, Dots, Plot, Point, Spacing};
use super::super::context::{Context, target_names};
use super::super::document::{Block, Cell, Table};
use crate::metric::Metric;
use crate::quantity::Unit;
use crate::record::{Case, Target, ViewKind};
use crate::statistics::Interval;

/// What the tables hold, one table each; ratios are drawn of the first that was measured.
const METRICS: [Metric; 7] = [
    Metric::Throughput,
    Metric::CpuPerRequest,
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::Errors,
    Metric::Memory,
    Metric::MemoryPerConnection,
];

pub(super) fn blocks(context: Context<'_>, id: &str) -> Vec<Block> {
    let cases: Vec<&Case> = context.run.cases.iter().collect();
    let mut blocks = Vec::new();
    // where another view comes first, the first case is an end of its axis and not what the others build on
    if context.run.scenario.views.first().is_none_or(|view| view.kind == ViewKind::Table) {
        for metric in [Metric::Throughput, Metric::CpuPerRequest] {
            blocks.extend(ratio_figure(context, metric, &cases, id));
        }
    }
    for metric in METRICS {
        blocks.extend(metric_table(context, metric, &cases));
    }
    blocks
}

fn metric_table(context: Context<'_>, metric: Metric, cases: &[&Case]) -> Option<Block> {
    let measured =
        |target: &Target| cases.iter().any(|case| !context.values(case, target, metric).is_empty());
    if !context.run.targets.iter().any(measured) {
        return None;
    }
    let mut table = Table::of_numbers(heading(metric), "case", &target_names(context.run));
    for case in cases {
        let mut row = vec![Cell::text(&case.label)];
        row.extend(context.cells(case, metric));
        table.rows.push(row);
    }
    table.notes = context.flag_notes(cases);
    Some(Block::Table(table))
}

/// How each target does in every case, compared with what it does itself in the first.
fn ratio_figure(context: Context<'_>, metric: Metric, cases: &[&Case], id: &str) -> Option<Block> {
    let (first, others) = cases.split_first()?;
    if others.is_empty() {
        return None;
    }
    let caption = format!("{} as a ratio to the first case", heading(metric));
    let mut table = Table::of_numbers(&caption, "case", &target_names(context.run));
    let mut rows = Vec::new();
    for case in cases {
        let mut dots = Vec::new();
        let mut cells = vec![Cell::text(&case.label)];
        for target in &context.run.targets {
            let point = ratio(context, metric, first, case, target);
            cells.push(point.map_or_else(Cell::none, |point| Cell::text(Unit::Ratio.show(point.x))));
            dots.extend(point.map(|point| (context.style(&target.name), point)));
        }
        rows.push(DotRow { label: case.label.clone(), dots });
        table.rows.push(cells);
    }
    if rows.iter().all(|row| row.dots.is_empty()) {
        return None;
    }
    table.notes.push(format!("1.00 is what the same target did in the case `{}`.", first.label));
    let chart = Chart {
        id: format!("{id}-{metric:?}").to_lowercase(),
        title: caption,
        description: describe(context, metric, cases),
        plot: Plot::Dots(Dots {
            x: Axis {
                label: format!("{}, ratio to the first case", metric.name()),
                spacing: Spacing::Linear,
                unit: Unit::Ratio,
            },
            rows,
        }),
        legend: context.legend(),
    };
    Some(Block::Figure(Box::new(chart), table))
}

fn ratio(context: Context<'_>, metric: Metric, first: &Case, case: &Case, target: &Target) -> Option<Point> {
    let base = context.middle(first, target, metric)?;
    let spread = context.spread(case, target, metric)?;
    if base <= 0.0 {
        return None;
    }
    let interval = Interval { low: spread.interval.low / base, high: spread.interval.high / base };
    let flagged = context.doubt(case, target).is_some();
    Some(Point { x: spread.median / base, y: 0.0, interval: Some(interval), flagged })
}

/// How far each target goes from its first case to its furthest.
fn describe(context: Context<'_>, metric: Metric, cases: &[&Case]) -> String {
    let Some(first) = cases.first() else { return String::new() };
    let furthest = |target: &Target| {
        let ratios =
            cases.iter().filter_map(|case| Some((case, ratio(context, metric, first, case, target)?.x)));
        let (case, ratio) = ratios.max_by(|(_, a), (_, b)| (a.ln().abs()).total_cmp(&b.ln().abs()))?;
        Some(format!("{} {} ({})", target.name, Unit::Ratio.show(ratio), case.label))
    };
    let listed: Vec<String> = context.run.targets.iter().filter_map(furthest).collect();
    format!("Furthest from the first case: {}.", listed.join("; "))
}

fn heading(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "Throughput, good responses per second",
        Metric::CpuPerRequest => "CPU time of the gateway per request",
        Metric::LatencyP50 => "Median latency",
        Metric::LatencyP99 => "Latency, 99th percentile",
        Metric::LatencyP999 => "Latency, 99.9th percentile",
        Metric::Errors => "Errors, share of requests",
        Metric::Memory => "Largest resident memory of the gateway",
        Metric::MemoryPerConnection => "Memory of the gateway per connection held",
    }
}
