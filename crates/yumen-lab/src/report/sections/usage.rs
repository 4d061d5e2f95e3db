//! Who was at the limit: processor time and memory of gateway, upstream and generator in every case.
//!
//! Knows the record through its context.

use super::super::context::{Context, target_names};
use super::super::document::{Block, Cell, Column, Emphasis, Table};
use crate::metric::{bottleneck, who_name};
use crate::quantity::Unit;
use crate::record::{Part, Role, Round, Target, TargetResult, Who};
use crate::statistics::median;

pub(crate) fn blocks(context: Context<'_>) -> Vec<Block> {
    if context.run.cases.is_empty() || context.run.targets.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::Paragraph(
            "A comparison of gateways needs the gateway to be the bottleneck. What bounded most rounds of each case:"
                .to_owned(),
        ),
        Block::Table(overview(context)),
    ];
    for target in &context.run.targets {
        let strip = strip(context, target);
        if !strip.rows.is_empty() {
            let title = format!("Processors and memory: {}", target.name);
            blocks.push(Block::Details(title, vec![Block::Table(strip)]));
        }
    }
    blocks
}

fn overview(context: Context<'_>) -> Table {
    let mut columns = vec![Column { label: "case".to_owned(), numeric: false }];
    columns.extend(target_names(context.run).into_iter().map(|label| Column { label, numeric: false }));
    let mut table = Table { caption: "What bounded the rate".to_owned(), columns, ..Table::default() };
    for case in &context.run.cases {
        let mut row = vec![Cell::text(&case.label)];
        for target in &context.run.targets {
            let who = context.result(case, target).and_then(bottleneck);
            let foreign = context.foreign(case, target).is_some();
            row.push(who.map_or_else(Cell::none, |who| cell(target, who, foreign)));
        }
        table.rows.push(row);
    }
    table
}

fn cell(target: &Target, who: Who, foreign: bool) -> Cell {
    let emphasis = match (target.role, foreign) {
        (Role::Baseline, _) => Emphasis::Quiet,
        (_, true) => Emphasis::Loss,
        (_, false) => Emphasis::None,
    };
    Cell { emphasis, ..Cell::text(who_name(who)) }
}

/// A row for each case: how much of its processors each part used, as bars.
fn strip(context: Context<'_>, target: &Target) -> Table {
    let columns = [
        "case",
        "#gateway",
        "#upstream",
        "#generator",
        "#stolen",
        "#memory",
        "bounded by",
        "by which figures",
    ];
    let mut table = Table::with_columns(format!("Processors and memory: {}", target.name), &columns);
    for case in &context.run.cases {
        let Some(result) = context.result(case, target) else { continue };
        let busy = |part: fn(&Round) -> &Part| share_cell(&result.rounds, part);
        let memory = middle(result, |round| round.usage.gateway.rss_bytes_max as f64);
        let stolen = middle(result, |round| round.usage.stolen).unwrap_or(0.0);
        let who = bottleneck(result).unwrap_or(Who::Unknown);
        let foreign = context.foreign(case, target).is_some();
        let why = result.rounds.iter().find(|round| round.bottleneck.who == who);
        table.rows.push(vec![
            Cell::text(&case.label),
            busy(|round| &round.usage.gateway),
            busy(|round| &round.usage.upstream),
            busy(|round| &round.usage.generator),
            Cell::text(Unit::Share.show(stolen)),
            memory
                .filter(|bytes| *bytes > 0.0)
                .map_or_else(Cell::none, |bytes| Cell::text(Unit::Bytes.show(bytes))),
            cell(target, who, foreign),
            why.map_or_else(Cell::none, |round| Cell::text(&round.bottleneck.why)),
        ]);
    }
    table.notes.push("Shares of the processors each part could use, median of the rounds.".to_owned());
    table
}

fn share_cell(rounds: &[Round], part: fn(&Round) -> &Part) -> Cell {
    let shares: Vec<f64> =
        rounds.iter().filter_map(|round| share(part(round), round.summary.elapsed_ns)).collect();
    median(&shares)
        .map_or_else(Cell::none, |share| Cell { bar: Some(share), ..Cell::text(Unit::Share.show(share)) })
}

/// Used processor time as a share of what there was.
fn share(part: &Part, elapsed_ns: u64) -> Option<f64> {
    let available = part.cpus as f64 * elapsed_ns as f64;
    (available > 0.0 && part.cpu_ns > 0).then(|| part.cpu_ns as f64 / available)
}

fn middle(result: &TargetResult, value: fn(&Round) -> f64) -> Option<f64> {
    median(&result.rounds.iter().map(value).collect::<Vec<_>>())
}
