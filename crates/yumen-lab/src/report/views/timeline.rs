//! Rate, latency and errors second by second, with the moments of changes marked; processors and memory beside them.
//!
//! Knows the record through its context.

use super::super::chart::{Axis, Chart, LegendEntry, Lines, Mark, Plot, Point, Series, Spacing};
use super::super::context::{Context, target_names, typical_round};
use super::super::document::{Block, Cell, Emphasis, Table};
use crate::metric::Metric;
use crate::quantity::Unit;
use crate::record::{Case, Round, Target};

/// Rows of the table beside a chart of many seconds.
const ROWS_MAX: usize = 12;

/// One thing that is drawn over time.
struct Track {
    name: &'static str,
    y_label: &'static str,
    unit: Unit,
    spacing: Spacing,
    /// What a round says, as seconds and values.
    values: fn(&Round) -> Vec<(f64, f64)>,
}

const TRACKS: [Track; 5] = [
    Track {
        name: "Responses",
        y_label: "responses per second",
        unit: Unit::PerSecond,
        spacing: Spacing::Linear,
        values: |round| seconds(round, |second| second.responses as f64),
    },
    Track {
        name: "Latency, 99th percentile",
        y_label: "p99 of each second, logarithmic",
        unit: Unit::Nanoseconds,
        spacing: Spacing::Logarithmic,
        values: |round| seconds(round, |second| second.p99_ns as f64),
    },
    Track {
        name: "Errors",
        y_label: "errors per second",
        unit: Unit::PerSecond,
        spacing: Spacing::Linear,
        values: |round| seconds(round, |second| second.errors as f64),
    },
    Track {
        name: "Processors the gateway used",
        y_label: "processors",
        unit: Unit::Count,
        spacing: Spacing::Linear,
        values: |round| samples(round, |sample| sample.cpus),
    },
    Track {
        name: "Memory of the gateway",
        y_label: "resident memory",
        unit: Unit::Bytes,
        spacing: Spacing::Linear,
        values: |round| samples(round, |sample| sample.rss_bytes as f64),
    },
];

pub(super) fn blocks(context: Context<'_>, id: &str) -> Vec<Block> {
    let several = context.run.cases.len() > 1;
    let mut blocks = Vec::new();
    for (index, case) in context.run.cases.iter().enumerate() {
        let shown = shown_rounds(context, case);
        if shown.is_empty() {
            continue;
        }
        if several {
            blocks.push(Block::Heading(case.label.clone()));
        }
        blocks.push(Block::Paragraph(which_rounds(&shown)));
        for (number, track) in TRACKS.iter().enumerate() {
            blocks.extend(track_block(context, track, &shown, &format!("{id}-{index}-{number}")));
        }
        blocks.extend(changes(&shown));
    }
    blocks
}

/// The round of each target that stands for the others.
fn shown_rounds<'a>(context: Context<'a>, case: &'a Case) -> Vec<(&'a Target, &'a Round)> {
    let round = |target: &'a Target| {
        let result = context.result(case, target)?;
        let metric = if Metric::Throughput.of(result.rounds.first()?).is_some() {
            Metric::Throughput
        } else {
            Metric::LatencyP99
        };
        Some((target, typical_round(result, metric)?))
    };
    context.run.targets.iter().filter_map(round).collect()
}

fn which_rounds(shown: &[(&Target, &Round)]) -> String {
    let rounds: Vec<String> =
        shown.iter().map(|(target, round)| format!("{} {}", target.name, round.number)).collect();
    format!("One round of each target, the one nearest to the median of all: {}.", rounds.join(", "))
}

fn track_block(context: Context<'_>, track: &Track, shown: &[(&Target, &Round)], id: &str) -> Option<Block> {
    let tracks: Vec<(&Target, Vec<(f64, f64)>)> = shown
        .iter()
        .map(|(target, round)| (*target, (track.values)(round)))
        .filter(|(_, values)| values.len() > 1)
        .collect();
    let all = || tracks.iter().flat_map(|(_, values)| values);
    if tracks.is_empty() {
        return None;
    }
    if all().all(|(_, value)| *value == 0.0) {
        return Some(Block::Paragraph(format!("{}: none in any second of these rounds.", track.name)));
    }
    let series = tracks.iter().map(|(target, values)| Series {
        style: context.style(&target.name),
        points: values.iter().map(|(x, y)| Point { x: *x, y: *y, interval: None, flagged: false }).collect(),
    });
    let marks = shown.iter().map(|(_, round)| marks(round)).max_by_key(Vec::len).unwrap_or_default();
    let legend = tracks
        .iter()
        .map(|(target, _)| LegendEntry { name: target.name.clone(), style: context.style(&target.name) });
    let chart = Chart {
        id: id.to_owned(),
        title: format!("{} over time", track.name),
        description: describe(track, &tracks, marks.len()),
        legend: legend.collect(),
        plot: Plot::Lines(Lines {
            x: Axis { label: "seconds".to_owned(), spacing: Spacing::Linear, unit: Unit::Seconds },
            y: Axis { label: track.y_label.to_owned(), spacing: track.spacing, unit: track.unit },
            series: series.collect(),
            marks,
            x_ticks: None,
            every_point: false,
        }),
    };
    Some(Block::Figure(Box::new(chart), table(context, track, &tracks)))
}

fn seconds(round: &Round, value: fn(&yumen_load::Second) -> f64) -> Vec<(f64, f64)> {
    round.summary.timeline.iter().map(|second| (second.second as f64, value(second))).collect()
}

fn samples(round: &Round, value: fn(&crate::record::Sample) -> f64) -> Vec<(f64, f64)> {
    round.usage.gateway.samples.iter().map(|sample| (sample.at_ms as f64 / 1e3, value(sample))).collect()
}

/// Changes as numbers over the chart; the table under it says what they were.
fn marks(round: &Round) -> Vec<Mark> {
    let mark = |(index, change): (usize, &crate::record::ChangeMark)| Mark {
        x: change.at_ms as f64 / 1e3,
        label: (index + 1).to_string(),
    };
    round.changes.iter().enumerate().map(mark).collect()
}

fn describe(track: &Track, tracks: &[(&Target, Vec<(f64, f64)>)], marks: usize) -> String {
    let extremes: Vec<String> = tracks
        .iter()
        .map(|(target, values)| {
            let low = values.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
            let high = values.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
            format!("{} {} to {}", target.name, track.unit.show(low), track.unit.show(high))
        })
        .collect();
    let changes = match marks {
        0 => String::new(),
        1 => " The dotted line is a change.".to_owned(),
        count => format!(" The dotted lines are {count} changes."),
    };
    format!("Lowest to highest second: {}.{changes}", extremes.join("; "))
}

/// The seconds in groups, each with its worst value where that is what matters.
fn table(context: Context<'_>, track: &Track, tracks: &[(&Target, Vec<(f64, f64)>)]) -> Table {
    let end = tracks.iter().flat_map(|(_, values)| values).map(|(x, _)| *x).fold(0.0, f64::max);
    let width = (end / ROWS_MAX as f64).ceil().max(1.0);
    let title = format!("{} over time, mean of each row", track.name);
    let mut table = Table::of_numbers(title, "from second", &target_names(context.run));
    let mut start = 0.0;
    while start <= end {
        let mut row = vec![Cell::text(Unit::Count.show(start))];
        for target in &context.run.targets {
            let values = tracks.iter().find(|(known, _)| known.name == target.name).map(|(_, values)| values);
            let inside: Vec<f64> = values
                .into_iter()
                .flatten()
                .filter(|(x, _)| *x >= start && *x < start + width)
                .map(|(_, value)| *value)
                .collect();
            let mean = inside.iter().sum::<f64>() / inside.len() as f64;
            row.push(if inside.is_empty() { Cell::none() } else { Cell::text(track.unit.show(mean)) });
        }
        table.rows.push(row);
        start += width;
    }
    table
}

/// What was changed, and how long each gateway took for it.
fn changes(shown: &[(&Target, &Round)]) -> Option<Block> {
    if shown.iter().all(|(_, round)| round.changes.is_empty()) {
        return None;
    }
    let columns = ["target", "#no.", "change", "#begun", "#interface took", "#seen in traffic", "error"];
    let mut table = Table::with_columns("Changes during these rounds", &columns);
    for (target, round) in shown {
        for (index, change) in round.changes.iter().enumerate() {
            let effective = change.effective_ms.map_or_else(Cell::none, |ms| Cell::text(milliseconds(ms)));
            let error = change
                .error
                .as_ref()
                .map_or_else(Cell::none, |error| Cell { emphasis: Emphasis::Loss, ..Cell::text(error) });
            table.rows.push(vec![
                Cell::text(&target.name),
                Cell::text((index + 1).to_string()),
                Cell::text(&change.what),
                Cell::text(Unit::Seconds.show(change.at_ms as f64 / 1e3)),
                Cell::text(milliseconds(change.took_ms)),
                effective,
                error,
            ]);
        }
    }
    Some(Block::Table(table))
}

fn milliseconds(ms: f64) -> String {
    Unit::Nanoseconds.show(ms * 1e6)
}
