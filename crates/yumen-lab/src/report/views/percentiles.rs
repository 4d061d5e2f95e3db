//! Latency by percentile out to p99.9999, as R2 draws it: the far end is where gateways differ.
//!
//! Knows the record through its context.

use yumen_load::Latency;

use super::super::chart::{Axis, Chart, Lines, Plot, Point, Series, Spacing};
use super::super::context::{Context, target_names};
use super::super::document::{Block, Cell, Emphasis, Table};
use crate::metric::percentile;
use crate::quantity::Unit;
use crate::record::{Case, Role, Target, TargetResult};
use crate::statistics::{Spread, median};

/// Percentiles of the tables.
const ROWS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// A percentile of a sample says little with fewer values beyond it than this.
const VALUES_BEYOND_MIN: f64 = 10.0;

/// Where the time a request should have been sent changes a percentile by this factor, the report says so.
const OMISSION_FROM: f64 = 1.5;

pub(super) fn blocks(context: Context<'_>, id: &str) -> Vec<Block> {
    let several = context.run.cases.len() > 1;
    let mut blocks = Vec::new();
    for (index, case) in context.run.cases.iter().enumerate() {
        let figure = figure(context, case, &format!("{id}-{index}"));
        if let Some(figure) = figure {
            if several {
                blocks.push(Block::Heading(case.label.clone()));
            }
            blocks.push(figure);
            blocks.extend(omission_notice(context, case));
        }
    }
    blocks
}

fn figure(context: Context<'_>, case: &Case, id: &str) -> Option<Block> {
    let series: Vec<Series> = context
        .run
        .targets
        .iter()
        .filter_map(|target| {
            let result = context.result(case, target)?;
            let flagged = context.doubt(case, target).is_some();
            Some(Series { style: context.style(&target.name), points: points(result, flagged) })
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    let chart = Chart {
        id: id.to_owned(),
        title: "Latency by percentile".to_owned(),
        description: describe(context, case),
        plot: Plot::Lines(Lines {
            x: Axis { label: "percentile".to_owned(), spacing: Spacing::Nines, unit: Unit::Percentile },
            y: Axis {
                label: "latency, logarithmic".to_owned(),
                spacing: Spacing::Logarithmic,
                unit: Unit::Nanoseconds,
            },
            series,
            marks: Vec::new(),
            x_ticks: None,
            every_point: false,
        }),
        legend: context.legend(),
    };
    Some(Block::Figure(Box::new(chart), table(context, case)))
}

/// The median of the rounds at every percentile that all of them have.
fn points(result: &TargetResult, flagged: bool) -> Vec<Point> {
    let Some(first) = result.rounds.first() else { return Vec::new() };
    let listed = first.summary.main_latency().percentiles.iter().map(|entry| entry.percentile);
    let listed = listed.filter(|percentile| *percentile < 99.99995);
    listed
        .filter_map(|wanted| {
            let values = values(result, wanted, true);
            let interval = Spread::of(&values)?.interval;
            let y = median(&values)?;
            Some(Point { x: wanted / 100.0, y, interval: Some(interval), flagged })
        })
        .collect()
}

fn values(result: &TargetResult, wanted: f64, corrected: bool) -> Vec<f64> {
    let latency = |round: &crate::record::Round| -> Option<f64> {
        let summary = &round.summary;
        let latency = if corrected { summary.main_latency() } else { &summary.latency };
        percentile(latency, wanted)
    };
    result.rounds.iter().filter_map(latency).collect()
}

fn table(context: Context<'_>, case: &Case) -> Table {
    let mut table =
        Table::of_numbers(format!("Latency: {}", case.label), "percentile", &target_names(context.run));
    let mut thin = false;
    for wanted in ROWS {
        let mut row = vec![Cell::text(Unit::Percentile.show(wanted / 100.0))];
        for target in &context.run.targets {
            let cell = cell(context, case, target, wanted);
            thin |= cell.flag == Some('n');
            row.push(cell);
        }
        table.rows.push(row);
    }
    let mut row = vec![Cell::text("largest")];
    row.extend(context.run.targets.iter().map(|target| largest(context, case, target)));
    table.rows.push(row);
    table.notes.push("Median of the rounds; the last row is the largest of any round.".to_owned());
    if thin {
        table.notes.push("n: fewer than ten responses of a round lie beyond this percentile.".to_owned());
    }
    table.notes.extend(context.flag_notes(&[case]));
    table
}

fn cell(context: Context<'_>, case: &Case, target: &Target, wanted: f64) -> Cell {
    let Some(result) = context.result(case, target) else { return Cell::none() };
    let Some(value) = median(&values(result, wanted, true)) else { return Cell::none() };
    let counts = result.rounds.iter().map(|round| round.summary.main_latency().count as f64);
    let beyond = counts.fold(f64::INFINITY, f64::min) * (1.0 - wanted / 100.0);
    let flag = if beyond < VALUES_BEYOND_MIN { Some('n') } else { context.doubt(case, target) };
    let emphasis = if target.role == Role::Baseline { Emphasis::Quiet } else { Emphasis::None };
    Cell { text: Unit::Nanoseconds.show(value), emphasis, flag, bar: None }
}

fn largest(context: Context<'_>, case: &Case, target: &Target) -> Cell {
    let Some(result) = context.result(case, target) else { return Cell::none() };
    let largest = result.rounds.iter().map(|round| round.summary.main_latency().max_ns).max();
    largest.map_or_else(Cell::none, |ns| Cell::text(Unit::Nanoseconds.show(ns as f64)))
}

fn describe(context: Context<'_>, case: &Case) -> String {
    let tail = |target: &Target| {
        let result = context.result(case, target)?;
        let (middle, far) = (median(&values(result, 50.0, true))?, median(&values(result, 99.99, true))?);
        let unit = Unit::Nanoseconds;
        Some(format!("{} from {} to {}", target.name, unit.show(middle), unit.show(far)))
    };
    let tails: Vec<String> = context.run.targets.iter().filter_map(tail).collect();
    format!("From the median to p99.99: {}.", tails.join("; "))
}

/// What a tool that waits for answers before it asks again would have hidden.
fn omission_notice(context: Context<'_>, case: &Case) -> Option<Block> {
    let corrected = |latency: &Option<Latency>| latency.is_some();
    let hidden: Vec<String> = context
        .run
        .targets
        .iter()
        .filter_map(|target| {
            let result = context.result(case, target)?;
            if !result.rounds.iter().all(|round| corrected(&round.summary.latency_corrected)) {
                return None;
            }
            let (honest, naive) =
                (median(&values(result, 99.9, true))?, median(&values(result, 99.9, false))?);
            let unit = Unit::Nanoseconds;
            (naive > 0.0 && honest / naive >= OMISSION_FROM)
                .then(|| format!("{}: {} instead of {}", target.name, unit.show(honest), unit.show(naive)))
        })
        .collect();
    (!hidden.is_empty()).then(|| {
        Block::Notice(format!(
            "Coordinated omission, p99.9 from the intended moment of sending instead of the actual one: {}.",
            hidden.join("; ")
        ))
    })
}
