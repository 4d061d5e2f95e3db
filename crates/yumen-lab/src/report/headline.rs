//! The result of a run in a sentence and a chart: the top of a page, the row of an index, the end of a run.
//!
//! Computed from the comparisons; depends on neither the page nor the terminal.

use super::chart::{AxisSpacing, ChartAxis, ChartPlot, DotPlot, DotRow, ReportChart};
use super::context::{ReportContext, target_names};
use super::document::{ReportBlock, ReportTable, TableCell};
use super::rivals::{RivalComparison, rivals};
use super::sections::gateways;
use super::views::{heading, y_label};
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{RunCase, RunRecord};
use crate::statistics::median;
use crate::verdict::{VerdictDecision, VerdictLimits};

/// Rows of the chart, so that the chart fits on the first screen.
const ROWS_MAX: usize = 4;

/// The figure that answers the question of the scenario.
pub(crate) fn lead_metric(context: ReportContext<'_>) -> Option<RoundMetric> {
    use RoundMetric::{CpuPerRequest, LatencyP50, LatencyP99, Memory, MemoryPerConnection, Throughput};
    let order = [Throughput, MemoryPerConnection, LatencyP99, LatencyP50, CpuPerRequest, Memory];
    let is_measured =
        |metric: &RoundMetric| {
            context.run.cases.iter().any(|case| {
                gateways(context.run).any(|target| !context.values(case, target, *metric).is_empty())
            })
        };
    let first = order.into_iter().find(is_measured)?;
    // A rate that something else bounded does not compare gateways; processor time does.
    let is_foreign = first == Throughput && is_measured(&CpuPerRequest) && mostly_flagged(context);
    Some(if is_foreign { CpuPerRequest } else { first })
}

/// Whether most measurements of gateways carry a letter.
fn mostly_flagged(context: ReportContext<'_>) -> bool {
    let (flagged, measured) = flagged(context);
    flagged * 2 > measured
}

/// Measurements of gateways with a letter, and all of them.
pub(crate) fn flagged(context: ReportContext<'_>) -> (usize, usize) {
    let cells =
        || context.run.cases.iter().flat_map(|case| gateways(context.run).map(move |target| (case, target)));
    let measured = cells().filter(|(case, target)| context.result(case, target).is_some()).count();
    let flagged = cells().filter(|(case, target)| context.doubt(case, target).is_some()).count();
    (flagged, measured)
}

/// The sentence and the chart.
pub(crate) fn blocks(
    context: ReportContext<'_>,
    comparisons: &[RivalComparison],
    limits: VerdictLimits,
) -> Vec<ReportBlock> {
    let mut blocks = vec![ReportBlock::Paragraph(sentence(context, comparisons, limits))];
    blocks.extend(lead_metric(context).and_then(|metric| figure(context, metric)));
    blocks
}

/// The result in one or two sentences.
pub(crate) fn sentence(
    context: ReportContext<'_>,
    comparisons: &[RivalComparison],
    limits: VerdictLimits,
) -> String {
    let Some(metric) = lead_metric(context) else { return "No gateway was measured.".to_owned() };
    let lead: Vec<&RivalComparison> = comparisons.iter().filter(|one| one.metric == metric).collect();
    let name = capitalized(metric.name());
    if lead.is_empty() {
        return without_comparison(context, metric);
    }
    if lead.iter().all(|one| !one.verdict.has_enough_rounds(limits)) {
        let rounds = lead.iter().map(|one| one.verdict.first.count).max().unwrap_or(0);
        return format!(
            "Too few rounds for a result: {rounds} of each gateway, and a comparison needs at least three."
        );
    }
    let clauses: Vec<String> = clauses(&lead);
    let mut text = format!("{name}: yumen is {}.", joined(&clauses, ", and "));
    if metric == RoundMetric::CpuPerRequest && mostly_flagged(context) {
        let (flagged, measured) = flagged(context);
        text.push_str(&format!(
            " The rates compare little, because {flagged} of {measured} were not bounded by the gateway alone."
        ));
    }
    text + &other_losses(comparisons, metric)
}

/// Result of a run that has no comparison with yumen.
fn without_comparison(context: ReportContext<'_>, metric: RoundMetric) -> String {
    let name = capitalized(metric.name());
    let measured: Vec<_> = gateways(context.run).collect();
    if let [only] = measured.as_slice() {
        let last = context
            .run
            .cases
            .iter()
            .rev()
            .find_map(|case| Some((case, median(&context.values(case, only, metric))?)));
        return last.map_or("No gateway was measured.".to_owned(), |(case, value)| {
            format!(
                "{name}: {} {} at {}; no other gateway was measured.",
                only.name,
                metric.unit().show(value),
                case.label
            )
        });
    }
    let cases = context.run.cases.len();
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for best in context.run.cases.iter().filter_map(|case| context.best(case, metric)) {
        match wins.iter_mut().find(|(known, _)| *known == best) {
            Some((_, count)) => *count += 1,
            None => wins.push((best, 1)),
        }
    }
    let wins: Vec<String> =
        wins.iter().map(|(name, count)| format!("{name} in {count} of {cases}")).collect();
    match wins.is_empty() {
        true => format!("{name}: no gateway is better than all others beyond the noise."),
        false => format!("{name}: better than all others beyond the noise: {}.", wins.join(", ")),
    }
}

/// Standing beside the other gateways, one clause per kind of outcome.
fn clauses(lead: &[&RivalComparison]) -> Vec<String> {
    let comparisons: Vec<RivalComparison> = lead.iter().map(|one| (*one).clone()).collect();
    let (mut better, mut worse, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut level, mut open) = (Vec::new(), Vec::new());
    for rival in rivals(&comparisons) {
        let of_both: Vec<&&RivalComparison> = lead.iter().filter(|one| one.rival == rival).collect();
        let with = |decision| of_both.iter().filter(|one| one.verdict.decision == decision).count();
        let ratio = |decision| {
            let decided = of_both.iter().filter(|one| one.verdict.decision == decision);
            let ratios: Vec<f64> = decided.filter_map(|one| one.verdict.ratio).collect();
            median(&ratios).map_or("from zero".to_owned(), |ratio| QuantityUnit::Ratio.show(ratio))
        };
        let all = of_both.len();
        let share = |count: usize| match count {
            _ if all == 1 => String::new(),
            count if count == all => format!(" in all {all} cases"),
            count => format!(" in {count} of {all} cases"),
        };
        let named = |decision, count| format!("{rival} ({}{})", ratio(decision), share(count));
        match (with(VerdictDecision::Better), with(VerdictDecision::Worse)) {
            (0, 0) if with(VerdictDecision::Same) == all => level.push(rival.to_owned()),
            (0, 0) => open.push(rival.to_owned()),
            (count, 0) => better.push(named(VerdictDecision::Better, count)),
            (0, count) => worse.push(named(VerdictDecision::Worse, count)),
            (won, lost) => mixed.push(format!("{rival} ({won} : {lost} of {all} cases)")),
        }
    }
    let clause = |start: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!("{start} {}", joined(&names, " and ")))
    };
    [
        clause("better than", better),
        clause("worse than", worse),
        clause("better and worse than", mixed),
        clause("level with", level),
        clause("not distinguishable from", open),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Losses in figures other than the leading one.
fn other_losses(comparisons: &[RivalComparison], lead: RoundMetric) -> String {
    let mut lost: Vec<(RoundMetric, Vec<&str>)> = Vec::new();
    let worse = comparisons.iter().filter(|one| one.verdict.decision == VerdictDecision::Worse);
    for one in worse.filter(|one| one.metric != lead) {
        match lost.iter_mut().find(|(metric, _)| *metric == one.metric) {
            Some((_, rivals)) if rivals.contains(&one.rival.as_str()) => {}
            Some((_, rivals)) => rivals.push(&one.rival),
            None => lost.push((one.metric, vec![&one.rival])),
        }
    }
    lost.sort_by_key(|(metric, _)| *metric);
    let lost: Vec<String> =
        lost.iter().map(|(metric, rivals)| format!("{} ({})", metric.name(), rivals.join(", "))).collect();
    if lost.is_empty() { String::new() } else { format!(" Worse in other figures: {}.", lost.join(", ")) }
}

/// The leading figure by case.
fn figure(context: ReportContext<'_>, metric: RoundMetric) -> Option<ReportBlock> {
    let cases = shown_cases(context.run);
    let mut table = ReportTable::of_numbers(heading(metric), "case", &target_names(context.run));
    let mut rows = Vec::new();
    for case in &cases {
        let mut dots = Vec::new();
        for target in &context.run.targets {
            let point = context.point(case, target, metric, 0.0);
            dots.extend(point.map(|point| {
                (context.style(&target.name), super::chart::ChartPoint { x: point.y, y: 0.0, ..point })
            }));
        }
        let mut cells = vec![TableCell::text(&case.label)];
        cells.extend(context.cells(case, metric));
        table.rows.push(cells);
        rows.push(DotRow { label: case.label.clone(), dots });
    }
    if rows.iter().all(|row| row.dots.is_empty()) {
        return None;
    }
    table.notes = context.flag_notes(&cases);
    let has_flags = rows.iter().flat_map(|row| &row.dots).any(|(_, point)| point.flagged);
    let hollow = if has_flags { " Hollow: not bounded by the gateway alone." } else { "" };
    let mut legend = context.legend();
    // The baseline has no processor time of a gateway, for example.
    legend.retain(|entry| rows.iter().flat_map(|row| &row.dots).any(|(style, _)| *style == entry.style));
    let is_latency = metric.name().starts_with("latency");
    let all = context.run.cases.len();
    let shown = if cases.len() < all { format!(" {} of {all} cases.", cases.len()) } else { String::new() };
    let better = match metric.better() {
        crate::metric::BetterDirection::Higher => "Further right is better.",
        crate::metric::BetterDirection::Lower => "Further left is better.",
    };
    let chart = ReportChart {
        id: "result".to_owned(),
        title: heading(metric).to_owned(),
        description: format!("{better}{hollow}{shown}"),
        plot: ChartPlot::Dots(DotPlot {
            x: ChartAxis {
                label: y_label(metric).to_owned(),
                spacing: if is_latency { AxisSpacing::Logarithmic } else { AxisSpacing::Linear },
                unit: metric.unit(),
            },
            rows,
        }),
        legend,
    };
    Some(ReportBlock::Figure(Box::new(chart), table))
}

/// All cases, or a few that are spread evenly from the first to the last.
fn shown_cases(run: &RunRecord) -> Vec<&RunCase> {
    let all = run.cases.len();
    if all <= ROWS_MAX {
        return run.cases.iter().collect();
    }
    (0..ROWS_MAX).map(|index| &run.cases[index * (all - 1) / (ROWS_MAX - 1)]).collect()
}

fn joined(parts: &[String], last: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., end] => format!("{}{last}{end}", first.join(", ")),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
