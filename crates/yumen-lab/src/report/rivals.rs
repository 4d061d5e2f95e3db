//! Comparison of yumen with each other gateway in every case: wins and losses.
//!
//! Computed from the record, over all measurements: no result can be left out.

use serde::Serialize;

use super::context::ReportContext;
use super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::metric::RoundMetric;
use crate::quantity::QuantityUnit;
use crate::record::{MeasuredTarget, RunCase, RunRecord, TargetRole};
use crate::verdict::{Verdict, VerdictDecision, VerdictLimits};

/// The adapter of the targets that are compared with the others.
const SUBJECT: &str = "yumen";

/// One figure of one case for a target of yumen and another gateway.
#[derive(Debug, Clone, Serialize)]
pub struct RivalComparison {
    /// Id of the case.
    pub case: String,
    /// Target of yumen.
    pub subject: String,
    /// The other gateway.
    pub rival: String,
    /// Compared figure.
    pub metric: RoundMetric,
    /// Verdict; the target of yumen is the first sample.
    pub verdict: Verdict,
    /// Whether a figure may not show the gateway's own limit: another bottleneck, or kept connections.
    pub flagged: bool,
}

/// Compares every figure of every case with every other gateway.
pub fn standings(run: &RunRecord, limits: VerdictLimits) -> Vec<RivalComparison> {
    let context = ReportContext::new(run);
    let gateways = || run.targets.iter().filter(|target| target.role == TargetRole::Gateway);
    let mut comparisons = Vec::new();
    for case in &run.cases {
        for subject in gateways().filter(|target| target.adapter == SUBJECT) {
            for rival in gateways().filter(|target| target.adapter != SUBJECT) {
                let one = |metric| compare(context, case, subject, rival, metric, limits);
                comparisons.extend(RoundMetric::ALL.into_iter().filter_map(one));
            }
        }
    }
    comparisons
}

fn compare(
    context: ReportContext<'_>,
    case: &RunCase,
    subject: &MeasuredTarget,
    rival: &MeasuredTarget,
    metric: RoundMetric,
    limits: VerdictLimits,
) -> Option<RivalComparison> {
    let values = |target| Some(metric.over(&context.result(case, target)?.rounds));
    // Both targets ran in every round, so changes of the machine cancel in the ratio.
    let verdict = Verdict::paired(metric, &values(subject)?, &values(rival)?, limits)?;
    Some(RivalComparison {
        case: case.label.clone(),
        subject: subject.name.clone(),
        rival: rival.name.clone(),
        metric,
        verdict,
        // A doubt about either figure is a doubt about the comparison.
        flagged: context.doubt(case, subject).is_some() || context.doubt(case, rival).is_some(),
    })
}

/// The section on yumen's losses.
pub(crate) fn blocks(comparisons: &[RivalComparison], limits: VerdictLimits) -> Vec<ReportBlock> {
    if comparisons.is_empty() {
        return vec![ReportBlock::Paragraph(
            "This run did not measure yumen beside another gateway, so there is nothing to lose.".to_owned(),
        )];
    }
    if comparisons.iter().all(|one| !one.verdict.has_enough_rounds(limits)) {
        let mut blocks = vec![ReportBlock::Paragraph(
            "Too few rounds: no difference of this run can be distinguished from chance. Three rounds of each gateway are the least \
             that can."
                .to_owned(),
        )];
        blocks.extend(behind(comparisons));
        return blocks;
    }
    let losses: Vec<&RivalComparison> = with(comparisons, VerdictDecision::Worse);
    let wins: Vec<&RivalComparison> = with(comparisons, VerdictDecision::Better);
    let same = with(comparisons, VerdictDecision::Same).len();
    let mut blocks = vec![ReportBlock::Paragraph(format!(
        "Of {} comparisons with other gateways yumen is worse in {}, better in {} and within {} in {same}; the other {} are \
         inconclusive. Worse or better means: medians more than {} apart, and a rank test over the rounds that gives p ≤ {}.",
        comparisons.len(),
        losses.len(),
        wins.len(),
        QuantityUnit::Share.tick(limits.threshold),
        comparisons.len() - losses.len() - wins.len() - same,
        QuantityUnit::Share.tick(limits.threshold),
        limits.alpha,
    ))];
    if losses.is_empty() {
        blocks
            .push(ReportBlock::Paragraph("yumen is worse with certainty in no case of this run.".to_owned()));
    } else {
        blocks.push(ReportBlock::Table(list("Where yumen loses", &losses)));
    }
    blocks.extend(behind(comparisons));
    if !wins.is_empty() {
        let title = format!("Where yumen wins: {}", wins.len());
        blocks.push(ReportBlock::Details(title.clone(), vec![ReportBlock::Table(list(&title, &wins))]));
    }
    blocks
}

/// Lags that are not significant.
fn behind(comparisons: &[RivalComparison]) -> Option<ReportBlock> {
    let uncertain: Vec<&RivalComparison> = comparisons
        .iter()
        .filter(|one| matches!(one.verdict.decision, VerdictDecision::Undecided | VerdictDecision::TooFew))
        .filter(|one| one.verdict.is_worse(one.metric))
        .collect();
    let title = format!("Behind, but inconclusive: {}", uncertain.len());
    (!uncertain.is_empty())
        .then(|| ReportBlock::Details(title.clone(), vec![ReportBlock::Table(list(&title, &uncertain))]))
}

fn with(comparisons: &[RivalComparison], decision: VerdictDecision) -> Vec<&RivalComparison> {
    let mut found: Vec<&RivalComparison> =
        comparisons.iter().filter(|one| one.verdict.decision == decision).collect();
    found.sort_by_key(|one| one.metric);
    found
}

/// A row per other gateway, a column per figure: number of cases better and worse.
pub(crate) fn overview(comparisons: &[RivalComparison], limits: VerdictLimits) -> ReportTable {
    let metrics: Vec<RoundMetric> = RoundMetric::ALL
        .into_iter()
        .filter(|metric| comparisons.iter().any(|one| one.metric == *metric))
        .collect();
    let names: Vec<String> = metrics.iter().map(|metric| metric.name().to_owned()).collect();
    let mut table = ReportTable::of_numbers("Cases in which yumen is better : worse", "beside", &names);
    for rival in rivals(comparisons) {
        let mut row = vec![TableCell::text(rival)];
        for metric in &metrics {
            let of_both = comparisons.iter().filter(|one| one.rival == rival && one.metric == *metric);
            row.push(standing(&of_both.collect::<Vec<_>>(), limits));
        }
        table.rows.push(row);
    }
    table
}

/// Cell of the overview: the cases with a difference, or the reason why there are none.
fn standing(comparisons: &[&RivalComparison], limits: VerdictLimits) -> TableCell {
    let count = |decision| comparisons.iter().filter(|one| one.verdict.decision == decision).count();
    let quiet = |text: &str| TableCell { emphasis: CellEmphasis::Quiet, ..TableCell::text(text) };
    let (better, worse) = (count(VerdictDecision::Better), count(VerdictDecision::Worse));
    match (better, worse) {
        _ if comparisons.is_empty() => TableCell::none(),
        // Medians of so few rounds can be equal by chance as well.
        _ if comparisons.iter().all(|one| !one.verdict.has_enough_rounds(limits)) => quiet("too few rounds"),
        (0, 0) if count(VerdictDecision::Same) == comparisons.len() => quiet("level"),
        (0, 0) => quiet("inconclusive"),
        _ => {
            let emphasis = if worse > better { CellEmphasis::Loss } else { CellEmphasis::None };
            TableCell { emphasis, ..TableCell::text(format!("{better} : {worse}")) }
        }
    }
}

/// The other gateways in the order of the run.
pub(crate) fn rivals(comparisons: &[RivalComparison]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for one in comparisons {
        if !names.contains(&one.rival.as_str()) {
            names.push(&one.rival);
        }
    }
    names
}

fn list(caption: &str, comparisons: &[&RivalComparison]) -> ReportTable {
    let columns =
        ["figure", "case", "beside", "#yumen", "#the other", "#ratio", "#95 % interval", "#p", "effect"];
    let mut table = ReportTable::with_columns(caption, &columns);
    for one in comparisons {
        let (verdict, unit) = (&one.verdict, one.metric.unit());
        let ratio = verdict
            .ratio
            .map_or_else(TableCell::none, |ratio| TableCell::text(QuantityUnit::Ratio.show(ratio)));
        let interval = verdict.ratio_interval.map_or_else(TableCell::none, |ends| {
            TableCell::text(format!("{:.2} – {:.2}", ends.low, ends.high))
        });
        table.rows.push(vec![
            TableCell::text(one.metric.name()),
            TableCell::text(&one.case),
            TableCell { flag: one.flagged.then_some('*'), ..TableCell::text(&one.rival) },
            TableCell::text(unit.show(verdict.first.median)),
            TableCell::text(unit.show(verdict.second.median)),
            ratio,
            interval,
            TableCell::text(p_value(verdict.p_value)),
            TableCell::text(verdict.effect.as_str()),
        ]);
    }
    table
        .notes
        .push("Ratios are yumen's figure over the other's, round by round, as their median.".to_owned());
    if comparisons.iter().any(|one| one.flagged) {
        table.notes.push(
            "*: a figure of this row carries a letter above; it may not be the gateway's own.".to_owned(),
        );
    }
    table
}

/// A p-value with two significant digits.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.0001 {
        "< 0.0001".to_owned()
    } else {
        format!("{p:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
