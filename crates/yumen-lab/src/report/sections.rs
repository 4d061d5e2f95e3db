//! Sections of every report, independent of the scenario: summary, traps, rounds, repetition.
//!
//! Reads the record through its context.

pub(crate) mod setup;
pub(crate) mod usage;

use super::context::ReportContext;
use super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use super::headline::flagged;
use super::rivals::{RivalComparison, overview};
use crate::metric::{error_share, good_rate, part_name, percentile};
use crate::quantity::QuantityUnit;
use crate::record::{FindingLevel, MeasuredTarget, RunRecord, TargetRole};
use crate::threshold::judge;
use crate::verdict::VerdictLimits;

/// The targets that are gateways.
pub(crate) fn gateways(run: &RunRecord) -> impl Iterator<Item = &MeasuredTarget> {
    run.targets.iter().filter(|target| target.role == TargetRole::Gateway)
}

/// The summary, computed from the record.
pub(crate) fn in_short(
    context: ReportContext<'_>,
    comparisons: &[RivalComparison],
    limits: VerdictLimits,
) -> Vec<ReportBlock> {
    let run = context.run;
    let mut blocks = Vec::new();
    if !comparisons.is_empty() {
        blocks.push(ReportBlock::Table(overview(comparisons, limits)));
    }
    blocks.extend(flagged_notice(context));
    blocks.extend(missing_notice(run));
    blocks.push(ReportBlock::Paragraph(
        "How to read: figures are medians of the rounds; ± is their standard deviation, whiskers are the 95 % interval of the \
         median. A bold figure is better than that of every other gateway, by more than the noise; a row without one has no such \
         gateway. A letter behind a figure marks a reason why it may not be the gateway's own."
            .to_owned(),
    ));
    let doubtful = run.doctor.iter().filter(|finding| finding.level >= FindingLevel::Warning);
    let doubtful: Vec<String> =
        doubtful.map(|finding| format!("{} ({})", finding.name, finding.found)).collect();
    if !doubtful.is_empty() {
        blocks.push(ReportBlock::Notice(format!("The doctor warned of: {}.", doubtful.join(", "))));
    }
    blocks
}

fn flagged_notice(context: ReportContext<'_>) -> Option<ReportBlock> {
    let (flagged, measured) = flagged(context);
    (flagged > 0).then(|| {
        ReportBlock::Notice(format!(
            "{flagged} of {measured} measurements may not be the gateway's own: something else bounded them, or connections were kept \
             that should have been closed. They are drawn hollow and carry a letter."
        ))
    })
}

/// Description of the scenario and of the report that it repeats.
pub(crate) fn about(run: &RunRecord) -> Vec<ReportBlock> {
    run.scenario.about.iter().cloned().map(ReportBlock::Paragraph).collect()
}

fn missing_notice(run: &RunRecord) -> Option<ReportBlock> {
    if run.skipped.is_empty() {
        return None;
    }
    let each = run.skipped.iter().map(|skipped| format!("{} ({})", skipped.name, skipped.reason));
    Some(ReportBlock::Paragraph(format!("Not measured: {}.", each.collect::<Vec<_>>().join(", "))))
}

/// The thresholds of the run with the figures that they judge.
pub(crate) fn thresholds(run: &RunRecord) -> Vec<ReportBlock> {
    let outcomes = judge(run);
    if outcomes.is_empty() {
        return Vec::new();
    }
    let columns = ["fails if", "target", "case", "#found", "outcome"];
    let mut table = ReportTable::with_columns("Thresholds of this run", &columns);
    for outcome in outcomes {
        let (word, emphasis) =
            if outcome.crossed { ("crossed", CellEmphasis::Loss) } else { ("kept", CellEmphasis::None) };
        table.rows.push(vec![
            TableCell::text(format!("`{}`", outcome.threshold)),
            TableCell::text(outcome.target),
            TableCell::text(outcome.case),
            TableCell::text(outcome.found),
            TableCell { emphasis, ..TableCell::text(word) },
        ]);
    }
    vec![ReportBlock::Table(table)]
}

/// Traps of the original report, and their treatment.
pub(crate) fn traps(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let traps = &context.run.scenario.traps;
    if traps.is_empty() {
        return Vec::new();
    }
    let mut table = ReportTable::with_columns(
        "What misleads, and what was done about it",
        &["trap", "how it misleads", "what is done here", "what this run saw"],
    );
    for trap in traps {
        table.rows.push(vec![
            TableCell::text(&trap.name),
            TableCell::text(&trap.what),
            TableCell::text(&trap.answer),
            trap.seen.as_ref().map_or_else(TableCell::none, TableCell::text),
        ]);
    }
    vec![ReportBlock::Table(table)]
}

/// Every single round, because medians hide outliers.
pub(crate) fn rounds(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let columns =
        ["case", "target", "#round", "#place", "#good/s", "#p50", "#p99", "#largest", "errors", "bounded by"];
    let mut table = ReportTable::with_columns("All rounds", &columns);
    for case in &context.run.cases {
        for result in &case.results {
            if let Some(reason) = &result.missing {
                let mut row = vec![TableCell::none(); columns.len()];
                row[0] = TableCell::text(&case.label);
                row[1] = TableCell::text(&result.target);
                row[9] = TableCell { emphasis: CellEmphasis::Quiet, ..TableCell::text(reason) };
                table.rows.push(row);
            }
            for round in &result.rounds {
                let latency = round.summary.main_latency();
                let at = |percent| percentile(latency, percent).map_or_else(TableCell::none, nanoseconds);
                table.rows.push(vec![
                    TableCell::text(&case.label),
                    TableCell::text(&result.target),
                    TableCell::text(round.number.to_string()),
                    TableCell::text(round.position.to_string()),
                    TableCell::text(QuantityUnit::PerSecond.show(good_rate(&round.summary))),
                    at(50.0),
                    at(99.0),
                    nanoseconds(latency.max_ns as f64),
                    TableCell::text(errors(round)),
                    TableCell::text(part_name(round.bottleneck.who)),
                ]);
            }
        }
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    table.notes.push("Place: in the order in which rounds ran, over all targets and cases.".to_owned());
    let title = format!("{} rounds, one by one", table.rows.len());
    vec![ReportBlock::Details(title, vec![ReportBlock::Table(table)])]
}

fn nanoseconds(value: f64) -> TableCell {
    TableCell::text(QuantityUnit::Nanoseconds.show(value))
}

/// Errors by class, if any.
fn errors(round: &crate::record::RoundRecord) -> String {
    let classes = round.summary.errors.by_class();
    let seen: Vec<String> = classes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| {
            format!("{} {}", class.replace('_', " "), QuantityUnit::Count.show(*count as f64))
        })
        .collect();
    if seen.is_empty() {
        return "none".to_owned();
    }
    format!("{}: {}", QuantityUnit::Share.show(error_share(&round.summary)), seen.join(", "))
}

/// The command and the scenario file.
pub(crate) fn repeat(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let run = context.run;
    let mut blocks = vec![
        ReportBlock::Paragraph("On a machine with the same gateways installed:".to_owned()),
        ReportBlock::Code(run.command.clone()),
        ReportBlock::Paragraph(format!(
            "The order of the rounds came from seed {}; the whole took {}. To set a later run beside this one: \
             `yumen-bench compare THIS.json LATER.json`.",
            run.seed,
            QuantityUnit::Nanoseconds.show(run.took_ms as f64 * 1e6)
        )),
    ];
    if !run.scenario.source.is_empty() {
        blocks.push(ReportBlock::Details(
            format!("The scenario `{}`", run.scenario.name),
            vec![ReportBlock::Code(run.scenario.source.clone())],
        ));
    }
    blocks
}
