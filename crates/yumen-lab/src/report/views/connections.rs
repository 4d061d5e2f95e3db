//! Connections counted by the kernel: whether a load that requests new connections gets them.
//!
//! Reads the record through its context.

use super::super::chart::{AxisSpacing, ChartAxis, ChartPlot, ChartPoint, DotPlot, DotRow, ReportChart};
use super::super::context::{ReportContext, target_names};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::metric::{connections_per_request, kept_connections};
use crate::quantity::QuantityUnit;
use crate::statistics::median;

pub(super) fn blocks(context: ReportContext<'_>, id: &str) -> Vec<ReportBlock> {
    let mut table = ReportTable::of_numbers(
        "New client connections per 100 requests",
        "case",
        &target_names(context.run),
    );
    let mut rows = Vec::new();
    let mut reused = Vec::new();
    for case in &context.run.cases {
        let mut dots = Vec::new();
        let mut cells = vec![TableCell::text(&case.label)];
        for target in &context.run.targets {
            let result = context.result(case, target);
            let share = result.and_then(|result| median(&connections_per_request(result)));
            let is_keepalive = result.is_some_and(kept_connections);
            cells.push(share.map_or_else(TableCell::none, |share| TableCell {
                text: hundred(share),
                flag: is_keepalive.then_some('k'),
                emphasis: if is_keepalive { CellEmphasis::Loss } else { CellEmphasis::None },
                bar: None,
            }));
            if is_keepalive {
                reused.push(format!("{} at `{}`", target.name, case.label));
            }
            dots.extend(share.map(|share| {
                let point = ChartPoint { x: share * 100.0, y: 0.0, interval: None, flagged: is_keepalive };
                (context.style(&target.name), point)
            }));
        }
        rows.push(DotRow { label: case.label.clone(), dots });
        table.rows.push(cells);
    }
    if rows.iter().all(|row| row.dots.is_empty()) {
        return Vec::new();
    }
    let mut blocks = vec![ReportBlock::Paragraph(
        "What the gateways did with the request to close, counted by the generator and by the kernel, and not assumed: 100 means that \
         every request had a connection of its own, close to 0 that connections were kept. Figures of the two kinds must not be compared."
            .to_owned(),
    )];
    blocks.extend(notice(&reused));
    if !reused.is_empty() {
        table.notes.push("k: asked to close, and kept the connection all the same.".to_owned());
    }
    blocks.push(ReportBlock::Figure(Box::new(chart(context, rows, id, &reused)), table));
    let title = "The bare counts of every round".to_owned();
    blocks.push(ReportBlock::Details(title, vec![ReportBlock::Table(counts(context))]));
    blocks
}

fn notice(reused: &[String]) -> Option<ReportBlock> {
    (!reused.is_empty()).then(|| {
        ReportBlock::Notice(format!(
            "Kept connections although the request said to close: {}. Their throughput is that of reused connections; \
             set beside gateways that closed, it says nothing.",
            reused.join(", ")
        ))
    })
}

fn chart(context: ReportContext<'_>, rows: Vec<DotRow>, id: &str, reused: &[String]) -> ReportChart {
    let description = if reused.is_empty() {
        "No target kept a connection that it was asked to close.".to_owned()
    } else {
        format!(
            "Hollow, far left: kept connections although asked to close ({} of the figures).",
            reused.len()
        )
    };
    ReportChart {
        id: id.to_owned(),
        title: "New client connections per 100 requests".to_owned(),
        description,
        plot: ChartPlot::Dots(DotPlot {
            x: ChartAxis {
                label: "connections per 100 requests".to_owned(),
                spacing: AxisSpacing::Linear,
                unit: QuantityUnit::Count,
            },
            rows,
        }),
        legend: context.legend(),
    }
}

fn hundred(share: f64) -> String {
    QuantityUnit::Count.show((share * 1000.0).round() / 10.0)
}

/// Connection counts of every round.
fn counts(context: ReportContext<'_>) -> ReportTable {
    let columns = ["case", "target", "#round", "#requests", "#opened", "#at the door", "#at the upstream"];
    let mut table = ReportTable::with_columns("Connections as they were counted", &columns);
    let count = |count: u64| TableCell::text(QuantityUnit::Count.show(count as f64));
    for case in &context.run.cases {
        for target in &context.run.targets {
            let rounds =
                context.result(case, target).map(|result| result.rounds.as_slice()).unwrap_or_default();
            for round in rounds {
                let Some(connections) = round.connections else { continue };
                table.rows.push(vec![
                    TableCell::text(&case.label),
                    TableCell::text(&target.name),
                    TableCell::text(round.number.to_string()),
                    count(connections.requests),
                    count(connections.client),
                    connections.door.map_or_else(TableCell::none, count),
                    connections.upstream.map_or_else(TableCell::none, count),
                ]);
            }
        }
    }
    table.notes.push(
        "Opened: by the generator. At the door: counted by the kernel, less those of the upstream; other programs on the machine add to it."
            .to_owned(),
    );
    table
}
