//! Connections counted where they arrive: whether a load that asks for a new connection each time gets one.
//!
//! Knows the record through its context.

use super::super::chart::{Axis, Chart, DotRow, Dots, Plot, Point, Spacing};
use super::super::context::{Context, target_names};
use super::super::document::{Block, Cell, Emphasis, Table};
use crate::metric::{connections_per_request, kept_connections};
use crate::quantity::Unit;
use crate::statistics::median;

pub(super) fn blocks(context: Context<'_>, id: &str) -> Vec<Block> {
    let mut table =
        Table::of_numbers("New client connections per 100 requests", "case", &target_names(context.run));
    let mut rows = Vec::new();
    let mut reused = Vec::new();
    for case in &context.run.cases {
        let mut dots = Vec::new();
        let mut cells = vec![Cell::text(&case.label)];
        for target in &context.run.targets {
            let result = context.result(case, target);
            let share = result.and_then(|result| median(&connections_per_request(result)));
            let kept = result.is_some_and(kept_connections);
            cells.push(share.map_or_else(Cell::none, |share| Cell {
                text: hundred(share),
                flag: kept.then_some('k'),
                emphasis: if kept { Emphasis::Loss } else { Emphasis::None },
                bar: None,
            }));
            if kept {
                reused.push(format!("{} at `{}`", target.name, case.label));
            }
            dots.extend(share.map(|share| {
                let point = Point { x: share * 100.0, y: 0.0, interval: None, flagged: kept };
                (context.style(&target.name), point)
            }));
        }
        rows.push(DotRow { label: case.label.clone(), dots });
        table.rows.push(cells);
    }
    if rows.iter().all(|row| row.dots.is_empty()) {
        return Vec::new();
    }
    let mut blocks = vec![Block::Paragraph(
        "What the gateways did with the request to close, counted by the generator and by the kernel, and not assumed: 100 means that \
         every request had a connection of its own, close to 0 that connections were kept. Figures of the two kinds must not be compared."
            .to_owned(),
    )];
    blocks.extend(notice(&reused));
    if !reused.is_empty() {
        table.notes.push("k: asked to close, and kept the connection all the same.".to_owned());
    }
    blocks.push(Block::Figure(Box::new(chart(context, rows, id, &reused)), table));
    let title = "The bare counts of every round".to_owned();
    blocks.push(Block::Details(title, vec![Block::Table(counts(context))]));
    blocks
}

fn notice(reused: &[String]) -> Option<Block> {
    (!reused.is_empty()).then(|| {
        Block::Notice(format!(
            "Kept connections although the request said to close: {}. Their throughput is that of reused connections; \
             set beside gateways that closed, it says nothing.",
            reused.join(", ")
        ))
    })
}

fn chart(context: Context<'_>, rows: Vec<DotRow>, id: &str, reused: &[String]) -> Chart {
    let description = if reused.is_empty() {
        "No target kept a connection that it was asked to close.".to_owned()
    } else {
        format!(
            "Hollow, far left: kept connections although asked to close ({} of the figures).",
            reused.len()
        )
    };
    Chart {
        id: id.to_owned(),
        title: "New client connections per 100 requests".to_owned(),
        description,
        plot: Plot::Dots(Dots {
            x: Axis {
                label: "connections per 100 requests".to_owned(),
                spacing: Spacing::Linear,
                unit: Unit::Count,
            },
            rows,
        }),
        legend: context.legend(),
    }
}

fn hundred(share: f64) -> String {
    Unit::Count.show((share * 1000.0).round() / 10.0)
}

/// The bare counts of every round.
fn counts(context: Context<'_>) -> Table {
    let columns = ["case", "target", "#round", "#requests", "#opened", "#at the door", "#at the upstream"];
    let mut table = Table::with_columns("Connections as they were counted", &columns);
    let count = |count: u64| Cell::text(Unit::Count.show(count as f64));
    for case in &context.run.cases {
        for target in &context.run.targets {
            let rounds =
                context.result(case, target).map(|result| result.rounds.as_slice()).unwrap_or_default();
            for round in rounds {
                let Some(connections) = round.connections else { continue };
                table.rows.push(vec![
                    Cell::text(&case.label),
                    Cell::text(&target.name),
                    Cell::text(round.number.to_string()),
                    count(connections.requests),
                    count(connections.client),
                    connections.door.map_or_else(Cell::none, count),
                    connections.upstream.map_or_else(Cell::none, count),
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
