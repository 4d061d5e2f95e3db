//! The usage section: processor time and memory of gateway, upstream and generator in every case, and the
//! bottleneck.
//!
//! Reads the record through its context.

use super::super::context::{ReportContext, target_names};
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell, TableColumn};
use crate::metric::{bottleneck, part_name};
use crate::quantity::QuantityUnit;
use crate::record::{BottleneckPart, MeasuredTarget, PartUsage, RoundRecord, TargetResult, TargetRole};
use crate::statistics::median;

pub(crate) fn blocks(context: ReportContext<'_>) -> Vec<ReportBlock> {
    if context.run.cases.is_empty() || context.run.targets.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        ReportBlock::Paragraph(
            "A comparison of gateways needs the gateway to be the bottleneck. What bounded most rounds of each case:"
                .to_owned(),
        ),
        ReportBlock::Table(overview(context)),
    ];
    for target in &context.run.targets {
        let strip = strip(context, target);
        if !strip.rows.is_empty() {
            let title = format!("Processors and memory: {}", target.name);
            blocks.push(ReportBlock::Details(title, vec![ReportBlock::Table(strip)]));
        }
    }
    blocks
}

fn overview(context: ReportContext<'_>) -> ReportTable {
    let mut columns = vec![TableColumn { label: "case".to_owned(), numeric: false }];
    columns.extend(target_names(context.run).into_iter().map(|label| TableColumn { label, numeric: false }));
    let mut table =
        ReportTable { caption: "What bounded the rate".to_owned(), columns, ..ReportTable::default() };
    for case in &context.run.cases {
        let mut row = vec![TableCell::text(&case.label)];
        for target in &context.run.targets {
            let bottleneck_part = context.result(case, target).and_then(bottleneck);
            let foreign = context.foreign(case, target).is_some();
            row.push(
                bottleneck_part
                    .map_or_else(TableCell::none, |bottleneck_part| cell(target, bottleneck_part, foreign)),
            );
        }
        table.rows.push(row);
    }
    table
}

fn cell(target: &MeasuredTarget, bottleneck_part: BottleneckPart, foreign: bool) -> TableCell {
    let emphasis = match (target.role, foreign) {
        (TargetRole::Baseline, _) => CellEmphasis::Quiet,
        (_, true) => CellEmphasis::Loss,
        (_, false) => CellEmphasis::None,
    };
    TableCell { emphasis, ..TableCell::text(part_name(bottleneck_part)) }
}

/// A row per case with each part's processor usage as bars.
fn strip(context: ReportContext<'_>, target: &MeasuredTarget) -> ReportTable {
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
    let mut table = ReportTable::with_columns(format!("Processors and memory: {}", target.name), &columns);
    for case in &context.run.cases {
        let Some(result) = context.result(case, target) else { continue };
        let busy = |part: fn(&RoundRecord) -> &PartUsage| share_cell(&result.rounds, part);
        let memory = middle(result, |round| round.usage.gateway.rss_bytes_max as f64);
        let stolen = middle(result, |round| round.usage.stolen).unwrap_or(0.0);
        let bottleneck_part = bottleneck(result).unwrap_or(BottleneckPart::Unknown);
        let foreign = context.foreign(case, target).is_some();
        let why = result.rounds.iter().find(|round| round.bottleneck.who == bottleneck_part);
        table.rows.push(vec![
            TableCell::text(&case.label),
            busy(|round| &round.usage.gateway),
            busy(|round| &round.usage.upstream),
            busy(|round| &round.usage.generator),
            TableCell::text(QuantityUnit::Share.show(stolen)),
            memory
                .filter(|bytes| *bytes > 0.0)
                .map_or_else(TableCell::none, |bytes| TableCell::text(QuantityUnit::Bytes.show(bytes))),
            cell(target, bottleneck_part, foreign),
            why.map_or_else(TableCell::none, |round| TableCell::text(&round.bottleneck.why)),
        ]);
    }
    table.notes.push("Shares of the processors each part could use, median of the rounds.".to_owned());
    table
}

fn share_cell(rounds: &[RoundRecord], part: fn(&RoundRecord) -> &PartUsage) -> TableCell {
    let shares: Vec<f64> =
        rounds.iter().filter_map(|round| share(part(round), round.summary.elapsed_ns)).collect();
    median(&shares).map_or_else(TableCell::none, |share| TableCell {
        bar: Some(share),
        ..TableCell::text(QuantityUnit::Share.show(share))
    })
}

/// Used processor time as a share of the available time.
fn share(part: &PartUsage, elapsed_ns: u64) -> Option<f64> {
    let available = part.cpus as f64 * elapsed_ns as f64;
    (available > 0.0 && part.cpu_ns > 0).then(|| part.cpu_ns as f64 / available)
}

fn middle(result: &TargetResult, value: fn(&RoundRecord) -> f64) -> Option<f64> {
    median(&result.rounds.iter().map(value).collect::<Vec<_>>())
}
