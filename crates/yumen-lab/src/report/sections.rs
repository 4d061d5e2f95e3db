//! The parts every report has, whatever its scenario: the short answer, traps, rounds, how to repeat it.
//!
//! Knows the record through its context.

pub(crate) mod setup;
pub(crate) mod usage;

use super::context::Context;
use super::document::{Block, Cell, Emphasis, Table};
use super::standing::{Comparison, overview};
use crate::metric::{error_share, good_responses_per_second, percentile, who_name};
use crate::quantity::Unit;
use crate::record::{Level, Role, Run, Target};

/// The targets that are gateways.
pub(crate) fn gateways(run: &Run) -> impl Iterator<Item = &Target> {
    run.targets.iter().filter(|target| target.role == Role::Gateway)
}

/// What a reader in a hurry takes away, all of it computed.
pub(crate) fn in_short(context: Context<'_>, comparisons: &[Comparison]) -> Vec<Block> {
    let run = context.run;
    let mut blocks: Vec<Block> = run.scenario.about.iter().cloned().map(Block::Paragraph).collect();
    if !comparisons.is_empty() {
        blocks.push(Block::Table(overview(comparisons)));
    }
    blocks.extend(flagged_notice(context));
    blocks.extend(missing_notice(run));
    blocks.push(Block::Paragraph(
        "How to read: figures are medians of the rounds; ± is their standard deviation, whiskers are the 95 % interval of the \
         median; the best gateway of each row is bold. A letter behind a figure says why it may not be the gateway's own."
            .to_owned(),
    ));
    let doubtful = run.doctor.iter().filter(|finding| finding.level >= Level::Warning);
    let doubtful: Vec<String> =
        doubtful.map(|finding| format!("{} ({})", finding.name, finding.found)).collect();
    if !doubtful.is_empty() {
        blocks.push(Block::Notice(format!("The doctor warned of: {}.", doubtful.join(", "))));
    }
    blocks
}

fn flagged_notice(context: Context<'_>) -> Option<Block> {
    let cells =
        || context.run.cases.iter().flat_map(|case| gateways(context.run).map(move |target| (case, target)));
    let measured = cells().filter(|(case, target)| context.result(case, target).is_some()).count();
    let flagged = cells().filter(|(case, target)| context.doubt(case, target).is_some()).count();
    (flagged > 0).then(|| {
        Block::Notice(format!(
            "{flagged} of {measured} measurements may not be the gateway's own: something else bounded them, or connections were kept \
             that should have been closed. They are drawn hollow and carry a letter."
        ))
    })
}

fn missing_notice(run: &Run) -> Option<Block> {
    if run.skipped.is_empty() {
        return None;
    }
    let each = run.skipped.iter().map(|skipped| format!("{} ({})", skipped.name, skipped.reason));
    Some(Block::Paragraph(format!("Not measured: {}.", each.collect::<Vec<_>>().join(", "))))
}

/// What made the original misleading, and what was done about it.
pub(crate) fn traps(context: Context<'_>) -> Vec<Block> {
    let traps = &context.run.scenario.traps;
    if traps.is_empty() {
        return Vec::new();
    }
    let mut table = Table::with_columns(
        "What misleads, and what was done about it",
        &["trap", "how it misleads", "what is done here", "what this run saw"],
    );
    for trap in traps {
        table.rows.push(vec![
            Cell::text(&trap.name),
            Cell::text(&trap.what),
            Cell::text(&trap.answer),
            trap.seen.as_ref().map_or_else(Cell::none, Cell::text),
        ]);
    }
    vec![Block::Table(table)]
}

/// Every round by itself, so that nothing hides behind a median.
pub(crate) fn rounds(context: Context<'_>) -> Vec<Block> {
    let columns =
        ["case", "target", "#round", "#place", "#good/s", "#p50", "#p99", "#largest", "errors", "bounded by"];
    let mut table = Table::with_columns("All rounds", &columns);
    for case in &context.run.cases {
        for result in &case.results {
            if let Some(reason) = &result.missing {
                let mut row = vec![Cell::none(); columns.len()];
                row[0] = Cell::text(&case.label);
                row[1] = Cell::text(&result.target);
                row[9] = Cell { emphasis: Emphasis::Quiet, ..Cell::text(reason) };
                table.rows.push(row);
            }
            for round in &result.rounds {
                let latency = round.summary.main_latency();
                let at = |wanted| percentile(latency, wanted).map_or_else(Cell::none, nanoseconds);
                table.rows.push(vec![
                    Cell::text(&case.label),
                    Cell::text(&result.target),
                    Cell::text(round.number.to_string()),
                    Cell::text(round.position.to_string()),
                    Cell::text(Unit::PerSecond.show(good_responses_per_second(round))),
                    at(50.0),
                    at(99.0),
                    nanoseconds(latency.max_ns as f64),
                    Cell::text(errors(round)),
                    Cell::text(who_name(round.bottleneck.who)),
                ]);
            }
        }
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    table.notes.push("Place: in the order in which rounds ran, over all targets and cases.".to_owned());
    let title = format!("{} rounds, one by one", table.rows.len());
    vec![Block::Details(title, vec![Block::Table(table)])]
}

fn nanoseconds(value: f64) -> Cell {
    Cell::text(Unit::Nanoseconds.show(value))
}

/// Errors by class where there are any.
fn errors(round: &crate::record::Round) -> String {
    let classes = round.summary.errors.by_class();
    let seen: Vec<String> = classes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{} {}", class.replace('_', " "), Unit::Count.show(*count as f64)))
        .collect();
    if seen.is_empty() {
        return "none".to_owned();
    }
    format!("{}: {}", Unit::Share.show(error_share(round)), seen.join(", "))
}

/// The command, and the scenario as it was.
pub(crate) fn repeat(context: Context<'_>) -> Vec<Block> {
    let run = context.run;
    let mut blocks = vec![
        Block::Paragraph("On a machine with the same gateways installed:".to_owned()),
        Block::Code(run.command.clone()),
        Block::Paragraph(format!(
            "The order of the rounds came from seed {}; the whole took {}. To set a later run beside this one: \
             `yumen-bench compare THIS.json LATER.json`.",
            run.seed,
            Unit::Nanoseconds.show(run.took_ms as f64 * 1e6)
        )),
    ];
    if !run.scenario.source.is_empty() {
        blocks.push(Block::Details(
            format!("The scenario `{}`", run.scenario.name),
            vec![Block::Code(run.scenario.source.clone())],
        ));
    }
    blocks
}
