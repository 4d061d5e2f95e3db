//! Memory cost of held connections.
//!
//! Reads the record through its context.

use super::super::context::{ReportContext, number};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use super::curves::metric_block;
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{ReportView, RunCase};

pub(super) fn blocks(context: ReportContext<'_>, view: &ReportView, id: &str) -> Vec<ReportBlock> {
    let over = view.over.as_deref().unwrap_or("connections");
    let mut blocks = Vec::new();
    for (index, (heading, cases)) in context.groups(over).into_iter().enumerate() {
        if !heading.is_empty() {
            blocks.push(ReportBlock::Heading(heading));
        }
        for metric in [RoundMetric::Memory, RoundMetric::MemoryPerConnection] {
            blocks.extend(metric_block(context, metric, over, &cases, &format!("{id}-{index}")));
        }
        blocks.extend(held_connections(context, over, &cases));
    }
    blocks
}

/// Held and lost connections of every round.
fn held_connections(context: ReportContext<'_>, over: &str, cases: &[&RunCase]) -> Option<ReportBlock> {
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
    let mut table = ReportTable::with_columns("Connections held", &columns);
    let bytes = |bytes: u64| TableCell::text(QuantityUnit::Bytes.show(bytes as f64));
    for case in cases {
        for target in &context.run.targets {
            let rounds =
                context.result(case, target).map(|result| result.rounds.as_slice()).unwrap_or_default();
            for round in rounds {
                let Some(idle) = &round.summary.idle else { continue };
                let short = idle.held < idle.wanted;
                let emphasis = if short { CellEmphasis::Loss } else { CellEmphasis::None };
                let each = idle.rss_per_connection_bytes;
                table.rows.push(vec![
                    TableCell::text(QuantityUnit::Count.show(number(case, over).unwrap_or(0.0))),
                    TableCell::text(&target.name),
                    TableCell::text(round.number.to_string()),
                    TableCell { emphasis, ..TableCell::text(QuantityUnit::Count.show(idle.held as f64)) },
                    TableCell::text(QuantityUnit::Count.show(idle.lost as f64)),
                    TableCell::text(QuantityUnit::Nanoseconds.show(idle.opening_ns as f64)),
                    bytes(idle.rss_before_bytes),
                    bytes(idle.rss_held_bytes),
                    each.map_or_else(TableCell::none, |each| TableCell::text(QuantityUnit::Bytes.show(each))),
                ]);
            }
        }
    }
    (!table.rows.is_empty()).then_some(ReportBlock::Table(table))
}
