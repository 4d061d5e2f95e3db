//! What held connections cost a gateway in memory.
//!
//! Knows the record through its context.

use super::super::context::{Context, number};
use super::super::document::{Block, Cell, Emphasis, Table};
use super::curves::metric_block;
use crate::metric::Metric;
use crate::quantity::Unit;
use crate::record::{Case, View};

pub(super) fn blocks(context: Context<'_>, view: &View, id: &str) -> Vec<Block> {
    let over = view.over.as_deref().unwrap_or("connections");
    let mut blocks = Vec::new();
    for (index, (heading, cases)) in context.groups(over).into_iter().enumerate() {
        if !heading.is_empty() {
            blocks.push(Block::Heading(heading));
        }
        for metric in [Metric::Memory, Metric::MemoryPerConnection] {
            blocks.extend(metric_block(context, metric, over, &cases, &format!("{id}-{index}")));
        }
        blocks.extend(held(context, over, &cases));
    }
    blocks
}

/// How many connections were held and lost, in every round.
fn held(context: Context<'_>, over: &str, cases: &[&Case]) -> Option<Block> {
    let columns = [
        over,
        "target",
        "#round",
        "#held",
        "#lost",
        "#opened within",
        "#memory before",
        "#while held",
        "#each",
    ];
    let mut table = Table::with_columns("Connections held", &columns);
    let bytes = |bytes: u64| Cell::text(Unit::Bytes.show(bytes as f64));
    for case in cases {
        for target in &context.run.targets {
            let rounds =
                context.result(case, target).map(|result| result.rounds.as_slice()).unwrap_or_default();
            for round in rounds {
                let Some(idle) = &round.summary.idle else { continue };
                let short = idle.held < idle.wanted;
                let emphasis = if short { Emphasis::Loss } else { Emphasis::None };
                let each = idle.rss_per_connection_bytes;
                table.rows.push(vec![
                    Cell::text(Unit::Count.show(number(case, over).unwrap_or(0.0))),
                    Cell::text(&target.name),
                    Cell::text(round.number.to_string()),
                    Cell { emphasis, ..Cell::text(Unit::Count.show(idle.held as f64)) },
                    Cell::text(Unit::Count.show(idle.lost as f64)),
                    Cell::text(Unit::Nanoseconds.show(idle.opening_ns as f64)),
                    bytes(idle.rss_before_bytes),
                    bytes(idle.rss_held_bytes),
                    each.map_or_else(Cell::none, |each| Cell::text(Unit::Bytes.show(each))),
                ]);
            }
        }
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}
