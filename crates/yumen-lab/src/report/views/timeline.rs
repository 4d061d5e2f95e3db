//! Rate, latency and errors per second with marked changes, and processors and memory over time.
//!
//! Reads the record through its context.

use super::super::chart::{
    AxisSpacing, ChartAxis, ChartMark, ChartPlot, ChartPoint, LegendEntry, LinePlot, LineSeries, ReportChart,
};
use super::super::context::{ReportContext, target_names, typical_round};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RoundRecord, RunCase};

/// Maximum rows of the table beside a chart.
const ROWS_MAX: usize = 12;

/// One value drawn over time.
struct TimelineTrack {
    name: &'static str,
    y_label: &'static str,
    unit: QuantityUnit,
    spacing: AxisSpacing,
    /// Values of a round as pairs of second and value.
    values: fn(&RoundRecord) -> Vec<(f64, f64)>,
}

const TRACKS: [TimelineTrack; 5] = [
    TimelineTrack {
        name: "Responses",
        y_label: "responses per second",
        unit: QuantityUnit::PerSecond,
        spacing: AxisSpacing::Linear,
        values: |round| seconds(round, |second| Some(second.responses as f64)),
    },
    TimelineTrack {
        name: "Latency, 99th percentile",
        y_label: "p99 of each second, logarithmic",
        unit: QuantityUnit::Nanoseconds,
        spacing: AxisSpacing::Logarithmic,
        // Without a response there is no latency; zero would look like the best second.
        values: |round| seconds(round, |second| (second.p99_ns > 0).then_some(second.p99_ns as f64)),
    },
    TimelineTrack {
        name: "Errors",
        y_label: "errors per second",
        unit: QuantityUnit::PerSecond,
        spacing: AxisSpacing::Linear,
        values: |round| seconds(round, |second| Some(second.errors as f64)),
    },
    TimelineTrack {
        name: "Processors the gateway used",
        y_label: "processors",
        unit: QuantityUnit::Count,
        spacing: AxisSpacing::Linear,
        values: |round| samples(round, |sample| sample.cpus),
    },
    TimelineTrack {
        name: "Memory of the gateway",
        y_label: "resident memory",
        unit: QuantityUnit::Bytes,
        spacing: AxisSpacing::Linear,
        values: |round| samples(round, |sample| sample.rss_bytes as f64),
    },
];

pub(super) fn blocks(context: ReportContext<'_>, id: &str) -> Vec<ReportBlock> {
    let several = context.run.cases.len() > 1;
    let mut blocks = Vec::new();
    for (index, case) in context.run.cases.iter().enumerate() {
        let shown = shown_rounds(context, case);
        if shown.is_empty() {
            continue;
        }
        if several {
            blocks.push(ReportBlock::Heading(case.label.clone()));
        }
        blocks.push(ReportBlock::Paragraph(which_rounds(&shown)));
        for (number, track) in TRACKS.iter().enumerate() {
            blocks.extend(track_block(context, track, &shown, &format!("{id}-{index}-{number}")));
        }
        blocks.extend(changes(&shown));
    }
    blocks
}

/// One representative round per target.
fn shown_rounds<'a>(
    context: ReportContext<'a>,
    case: &'a RunCase,
) -> Vec<(&'a MeasuredTarget, &'a RoundRecord)> {
    let round = |target: &'a MeasuredTarget| {
        let result = context.result(case, target)?;
        let metric = if RoundMetric::Throughput.of(result.rounds.first()?).is_some() {
            RoundMetric::Throughput
        } else {
            RoundMetric::LatencyP99
        };
        Some((target, typical_round(result, metric)?))
    };
    context.run.targets.iter().filter_map(round).collect()
}

fn which_rounds(shown: &[(&MeasuredTarget, &RoundRecord)]) -> String {
    let rounds: Vec<String> =
        shown.iter().map(|(target, round)| format!("{} {}", target.name, round.number)).collect();
    format!("One round of each target, the one nearest to the median of all: {}.", rounds.join(", "))
}

fn track_block(
    context: ReportContext<'_>,
    track: &TimelineTrack,
    shown: &[(&MeasuredTarget, &RoundRecord)],
    id: &str,
) -> Option<ReportBlock> {
    let tracks: Vec<(&MeasuredTarget, Vec<(f64, f64)>)> = shown
        .iter()
        .map(|(target, round)| (*target, (track.values)(round)))
        .filter(|(_, values)| values.len() > 1)
        .collect();
    let all = || tracks.iter().flat_map(|(_, values)| values).filter(|(_, value)| value.is_finite());
    all().next()?;
    if all().all(|(_, value)| *value == 0.0) {
        return Some(ReportBlock::Paragraph(format!("{}: none in any second of these rounds.", track.name)));
    }
    let series = tracks.iter().map(|(target, values)| LineSeries {
        style: context.style(&target.name),
        points: values
            .iter()
            .map(|(x, y)| ChartPoint { x: *x, y: *y, interval: None, flagged: false })
            .collect(),
    });
    let marks = shown.iter().map(|(_, round)| marks(round)).max_by_key(Vec::len).unwrap_or_default();
    let legend = tracks
        .iter()
        .map(|(target, _)| LegendEntry { name: target.name.clone(), style: context.style(&target.name) });
    let chart = ReportChart {
        id: id.to_owned(),
        title: format!("{} over time", track.name),
        description: describe(track, &tracks, marks.len()),
        legend: legend.collect(),
        plot: ChartPlot::Lines(LinePlot {
            x: ChartAxis {
                label: "seconds".to_owned(),
                spacing: AxisSpacing::Linear,
                unit: QuantityUnit::Seconds,
            },
            y: ChartAxis { label: track.y_label.to_owned(), spacing: track.spacing, unit: track.unit },
            series: series.collect(),
            marks,
            x_ticks: None,
            every_point: false,
        }),
    };
    Some(ReportBlock::Figure(Box::new(chart), table(context, track, &tracks)))
}

/// Values of whole seconds. A second without a value is a gap in the line.
fn seconds(round: &RoundRecord, value: fn(&yumen_load::SecondSummary) -> Option<f64>) -> Vec<(f64, f64)> {
    let point =
        |second: &yumen_load::SecondSummary| (second.second as f64, value(second).unwrap_or(f64::NAN));
    round.summary.whole_seconds().map(point).collect()
}

fn samples(round: &RoundRecord, value: fn(&crate::record::UsageSample) -> f64) -> Vec<(f64, f64)> {
    round.usage.gateway.samples.iter().map(|sample| (sample.at_ms as f64 / 1e3, value(sample))).collect()
}

/// Numbered marks of the changes; the table below the chart describes them.
fn marks(round: &RoundRecord) -> Vec<ChartMark> {
    let mark = |(index, change): (usize, &crate::record::ChangeMark)| ChartMark {
        x: change.at_ms as f64 / 1e3,
        label: (index + 1).to_string(),
    };
    round.changes.iter().enumerate().map(mark).collect()
}

fn describe(track: &TimelineTrack, tracks: &[(&MeasuredTarget, Vec<(f64, f64)>)], marks: usize) -> String {
    let extremes: Vec<String> = tracks
        .iter()
        .map(|(target, values)| {
            // `min` and `max` leave out the gaps, which are not numbers.
            let low = values.iter().map(|(_, value)| *value).fold(f64::NAN, f64::min);
            let high = values.iter().map(|(_, value)| *value).fold(f64::NAN, f64::max);
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

/// Seconds in groups, one row per group with the mean of its values.
fn table(
    context: ReportContext<'_>,
    track: &TimelineTrack,
    tracks: &[(&MeasuredTarget, Vec<(f64, f64)>)],
) -> ReportTable {
    let end = tracks.iter().flat_map(|(_, values)| values).map(|(x, _)| *x).fold(0.0, f64::max);
    let width = (end / ROWS_MAX as f64).ceil().max(1.0);
    let title = format!("{} over time, mean of each row", track.name);
    let mut table = ReportTable::of_numbers(title, "from second", &target_names(context.run));
    let mut start = 0.0;
    while start <= end {
        let mut row = vec![TableCell::text(QuantityUnit::Count.show(start))];
        for target in &context.run.targets {
            let values = tracks.iter().find(|(known, _)| known.name == target.name).map(|(_, values)| values);
            let inside: Vec<f64> = values
                .into_iter()
                .flatten()
                .filter(|(x, value)| *x >= start && *x < start + width && value.is_finite())
                .map(|(_, value)| *value)
                .collect();
            let mean = inside.iter().sum::<f64>() / inside.len() as f64;
            row.push(if inside.is_empty() {
                TableCell::none()
            } else {
                TableCell::text(track.unit.show(mean))
            });
        }
        table.rows.push(row);
        start += width;
    }
    table
}

/// Changes and their duration on each gateway.
fn changes(shown: &[(&MeasuredTarget, &RoundRecord)]) -> Option<ReportBlock> {
    if shown.iter().all(|(_, round)| round.changes.is_empty()) {
        return None;
    }
    let columns = ["target", "#no.", "change", "#begun", "#interface took", "#seen in traffic", "error"];
    let mut table = ReportTable::with_columns("Changes during these rounds", &columns);
    for (target, round) in shown {
        for (index, change) in round.changes.iter().enumerate() {
            let effective =
                change.effective_ms.map_or_else(TableCell::none, |ms| TableCell::text(milliseconds(ms)));
            let error = change.error.as_ref().map_or_else(TableCell::none, |error| TableCell {
                emphasis: CellEmphasis::Loss,
                ..TableCell::text(error)
            });
            table.rows.push(vec![
                TableCell::text(&target.name),
                TableCell::text((index + 1).to_string()),
                TableCell::text(&change.what),
                TableCell::text(QuantityUnit::Seconds.show(change.at_ms as f64 / 1e3)),
                TableCell::text(milliseconds(change.took_ms)),
                effective,
                error,
            ]);
        }
    }
    Some(ReportBlock::Table(table))
}

fn milliseconds(ms: f64) -> String {
    QuantityUnit::Nanoseconds.show(ms * 1e6)
}
