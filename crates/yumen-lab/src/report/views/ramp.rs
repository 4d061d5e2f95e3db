//! Responses, response time and errors by the offered rate, as in R5.
//!
//! Reads the record through its context.

use yumen_load::RampStep;

use super::super::chart::{AxisSpacing, ChartAxis, ChartPlot, ChartPoint, LinePlot, LineSeries, ReportChart};
use super::super::context::{ReportContext, target_names};
use super::super::document::{ReportBlock, ReportTable, TableCell};
use crate::metric::percentile;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RunCase};
use crate::statistics::{SampleSpread, median};

/// One figure of a step.
struct RampReading {
    name: &'static str,
    y_label: &'static str,
    unit: QuantityUnit,
    spacing: AxisSpacing,
    value: fn(&RampStep) -> Option<f64>,
}

const READINGS: [RampReading; 4] = [
    RampReading {
        name: "Replies",
        y_label: "replies per second",
        unit: QuantityUnit::PerSecond,
        spacing: AxisSpacing::Linear,
        value: |step| Some(step.reply_rate),
    },
    RampReading {
        name: "Median response time",
        y_label: "response time, logarithmic",
        unit: QuantityUnit::Nanoseconds,
        spacing: AxisSpacing::Logarithmic,
        value: |step| percentile(&step.latency, 50.0),
    },
    RampReading {
        name: "Response time, 99th percentile",
        y_label: "response time, logarithmic",
        unit: QuantityUnit::Nanoseconds,
        spacing: AxisSpacing::Logarithmic,
        value: |step| percentile(&step.latency, 99.0),
    },
    RampReading {
        name: "Errors",
        y_label: "calls without a good answer",
        unit: QuantityUnit::Share,
        spacing: AxisSpacing::Linear,
        value: |step| Some(step.error_percent / 100.0),
    },
];

pub(super) fn blocks(context: ReportContext<'_>, id: &str) -> Vec<ReportBlock> {
    let several = context.run.cases.len() > 1;
    let mut blocks = Vec::new();
    for (index, case) in context.run.cases.iter().enumerate() {
        let rates = offered_rates(context, case);
        if rates.is_empty() {
            continue;
        }
        if several {
            blocks.push(ReportBlock::Heading(case.label.clone()));
        }
        for (number, reading) in READINGS.iter().enumerate() {
            blocks.push(reading_block(context, reading, case, &rates, &format!("{id}-{index}-{number}")));
        }
    }
    blocks
}

/// Offered request rates, ascending.
fn offered_rates(context: ReportContext<'_>, case: &RunCase) -> Vec<f64> {
    let results = context.run.targets.iter().filter_map(|target| context.result(case, target));
    let steps = results.flat_map(|result| &result.rounds).flat_map(|round| &round.summary.ramp);
    let mut rates: Vec<f64> = steps.map(|step| step.demanded_request_rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

fn values(
    context: ReportContext<'_>,
    case: &RunCase,
    target: &MeasuredTarget,
    reading: &RampReading,
    rate: f64,
) -> Vec<f64> {
    let rounds = context.result(case, target).map(|result| result.rounds.as_slice()).unwrap_or_default();
    let steps = rounds.iter().flat_map(|round| &round.summary.ramp);
    steps.filter(|step| step.demanded_request_rate == rate).filter_map(reading.value).collect()
}

fn reading_block(
    context: ReportContext<'_>,
    reading: &RampReading,
    case: &RunCase,
    rates: &[f64],
    id: &str,
) -> ReportBlock {
    let caption = format!("{} over the offered rate", reading.name);
    let mut table = ReportTable::of_numbers(&caption, "offered/s", &target_names(context.run));
    for rate in rates {
        let mut row = vec![TableCell::text(QuantityUnit::PerSecond.show(*rate))];
        row.extend(context.run.targets.iter().map(|target| {
            let middle = median(&values(context, case, target, reading, *rate));
            middle.map_or_else(TableCell::none, |value| TableCell::text(reading.unit.show(value)))
        }));
        table.rows.push(row);
    }
    if rates.iter().all(|rate| {
        context
            .run
            .targets
            .iter()
            .all(|target| values(context, case, target, reading, *rate).iter().all(|value| *value == 0.0))
    }) {
        return ReportBlock::Paragraph(format!("{}: none at any rate.", reading.name));
    }
    let chart = ReportChart {
        id: id.to_owned(),
        title: caption,
        description: describe(context, reading, case, rates),
        plot: ChartPlot::Lines(LinePlot {
            x: ChartAxis {
                label: "requests offered per second".to_owned(),
                spacing: AxisSpacing::Linear,
                unit: QuantityUnit::PerSecond,
            },
            y: ChartAxis { label: reading.y_label.to_owned(), spacing: reading.spacing, unit: reading.unit },
            series: series(context, reading, case, rates),
            marks: Vec::new(),
            x_ticks: Some(rates.to_vec()),
            every_point: true,
        }),
        legend: context.legend(),
    };
    ReportBlock::Figure(Box::new(chart), table)
}

fn series(
    context: ReportContext<'_>,
    reading: &RampReading,
    case: &RunCase,
    rates: &[f64],
) -> Vec<LineSeries> {
    let point = |target: &MeasuredTarget, rate: f64| {
        let spread = SampleSpread::of(&values(context, case, target, reading, rate))?;
        let flagged = context.doubt(case, target).is_some();
        Some(ChartPoint { x: rate, y: spread.median, interval: Some(spread.interval), flagged })
    };
    let line = |target: &MeasuredTarget| LineSeries {
        style: context.style(&target.name),
        points: rates.iter().filter_map(|rate| point(target, *rate)).collect(),
    };
    context.run.targets.iter().map(line).filter(|series| !series.points.is_empty()).collect()
}

fn describe(context: ReportContext<'_>, reading: &RampReading, case: &RunCase, rates: &[f64]) -> String {
    let Some(last) = rates.last() else { return String::new() };
    let at_last = |target: &MeasuredTarget| {
        let value = median(&values(context, case, target, reading, *last))?;
        Some(format!("{} {}", target.name, reading.unit.show(value)))
    };
    let listed: Vec<String> = context.run.targets.iter().filter_map(at_last).collect();
    format!("At {} requests offered per second: {}.", QuantityUnit::PerSecond.show(*last), listed.join(", "))
}
