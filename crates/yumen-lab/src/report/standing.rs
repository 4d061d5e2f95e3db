//! How yumen stands beside each other gateway in every case: where it wins, and where it loses.
//!
//! Knows the record; the answer is computed for whatever was measured and cannot be edited.

use serde::Serialize;

use super::context::Context;
use super::document::{Block, Cell, Emphasis, Table};
use crate::metric::Metric;
use crate::quantity::Unit;
use crate::record::{Case, Role, Run, Target};
use crate::verdict::{Decision, Limits, Verdict};

/// The adapter whose targets are compared with the others.
const SUBJECT: &str = "yumen";

/// One figure of one case, ours beside theirs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The case.
    pub case: String,
    /// Our target.
    pub subject: String,
    /// The other gateway.
    pub rival: String,
    /// What is compared.
    pub metric: Metric,
    /// What came out, ours first.
    pub verdict: Verdict,
    /// Whether a figure may not be the gateway's own: something else bounded it, or connections were kept.
    pub flagged: bool,
}

/// Every figure of every case against every other gateway.
pub fn standings(run: &Run, limits: Limits) -> Vec<Comparison> {
    let context = Context::new(run);
    let gateways = || run.targets.iter().filter(|target| target.role == Role::Gateway);
    let mut comparisons = Vec::new();
    for case in &run.cases {
        for subject in gateways().filter(|target| target.adapter == SUBJECT) {
            for rival in gateways().filter(|target| target.adapter != SUBJECT) {
                let one = |metric| compare(context, case, subject, rival, metric, limits);
                comparisons.extend(Metric::ALL.into_iter().filter_map(one));
            }
        }
    }
    comparisons
}

fn compare(
    context: Context<'_>,
    case: &Case,
    subject: &Target,
    rival: &Target,
    metric: Metric,
    limits: Limits,
) -> Option<Comparison> {
    let values = |target| Some(metric.over(&context.result(case, target)?.rounds));
    let verdict = Verdict::paired(metric, &values(subject)?, &values(rival)?, limits)?;
    Some(Comparison {
        case: case.label.clone(),
        subject: subject.name.clone(),
        rival: rival.name.clone(),
        metric,
        verdict,
        flagged: context.doubt(case, subject).is_some() || context.doubt(case, rival).is_some(),
    })
}

/// The section that says where yumen loses.
pub(crate) fn blocks(comparisons: &[Comparison], limits: Limits) -> Vec<Block> {
    if comparisons.is_empty() {
        return vec![Block::Paragraph(
            "This run did not measure yumen beside another gateway, so there is nothing to lose.".to_owned(),
        )];
    }
    let losses: Vec<&Comparison> = with(comparisons, Decision::Worse);
    let wins: Vec<&Comparison> = with(comparisons, Decision::Better);
    let uncertain: Vec<&Comparison> = comparisons
        .iter()
        .filter(|one| matches!(one.verdict.decision, Decision::Undecided | Decision::TooFew))
        .filter(|one| one.verdict.is_behind(one.metric))
        .collect();
    let same = with(comparisons, Decision::Same).len();
    let mut blocks = vec![Block::Paragraph(format!(
        "Of {} comparisons with other gateways yumen is worse in {}, better in {} and within {} in {same}; the other {} were not told \
         from chance. Worse or better means: medians more than {} apart, and a rank test over the rounds that gives p ≤ {}.",
        comparisons.len(),
        losses.len(),
        wins.len(),
        Unit::Share.tick(limits.threshold),
        comparisons.len() - losses.len() - wins.len() - same,
        Unit::Share.tick(limits.threshold),
        limits.alpha,
    ))];
    if losses.is_empty() {
        blocks.push(Block::Paragraph("yumen is worse with certainty in no case of this run.".to_owned()));
    } else {
        blocks.push(Block::Table(list("Where yumen loses", &losses)));
    }
    if !uncertain.is_empty() {
        let title = format!("Behind, but not told from chance: {}", uncertain.len());
        blocks.push(Block::Details(title.clone(), vec![Block::Table(list(&title, &uncertain))]));
    }
    if !wins.is_empty() {
        let title = format!("Where yumen wins: {}", wins.len());
        blocks.push(Block::Details(title.clone(), vec![Block::Table(list(&title, &wins))]));
    }
    blocks
}

fn with(comparisons: &[Comparison], decision: Decision) -> Vec<&Comparison> {
    let mut found: Vec<&Comparison> =
        comparisons.iter().filter(|one| one.verdict.decision == decision).collect();
    found.sort_by_key(|one| one.metric);
    found
}

/// A row for each rival, a column for each figure: in how many cases better and worse.
pub(crate) fn overview(comparisons: &[Comparison]) -> Table {
    let metrics: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|metric| comparisons.iter().any(|one| one.metric == *metric))
        .collect();
    let names: Vec<String> = metrics.iter().map(|metric| metric.name().to_owned()).collect();
    let mut table = Table::of_numbers("Cases in which yumen is better : worse", "beside", &names);
    for rival in rivals(comparisons) {
        let mut row = vec![Cell::text(rival)];
        for metric in &metrics {
            let of = |decision| {
                comparisons
                    .iter()
                    .filter(|one| {
                        one.rival == rival && one.metric == *metric && one.verdict.decision == decision
                    })
                    .count()
            };
            let (better, worse) = (of(Decision::Better), of(Decision::Worse));
            let emphasis = if worse > better { Emphasis::Loss } else { Emphasis::None };
            row.push(Cell { emphasis, ..Cell::text(format!("{better} : {worse}")) });
        }
        table.rows.push(row);
    }
    table
}

/// The other gateways, in the order of the run.
fn rivals(comparisons: &[Comparison]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for one in comparisons {
        if !names.contains(&one.rival.as_str()) {
            names.push(&one.rival);
        }
    }
    names
}

fn list(caption: &str, comparisons: &[&Comparison]) -> Table {
    let columns =
        ["figure", "case", "beside", "#yumen", "#the other", "#ratio", "#95 % interval", "#p", "effect"];
    let mut table = Table::with_columns(caption, &columns);
    for one in comparisons {
        let (verdict, unit) = (&one.verdict, one.metric.unit());
        let ratio = verdict.ratio.map_or_else(Cell::none, |ratio| Cell::text(Unit::Ratio.show(ratio)));
        let interval = verdict
            .ratio_interval
            .map_or_else(Cell::none, |ends| Cell::text(format!("{:.2} – {:.2}", ends.low, ends.high)));
        table.rows.push(vec![
            Cell::text(one.metric.name()),
            Cell::text(&one.case),
            Cell { flag: one.flagged.then_some('*'), ..Cell::text(&one.rival) },
            Cell::text(unit.show(verdict.first.median)),
            Cell::text(unit.show(verdict.second.median)),
            ratio,
            interval,
            Cell::text(p_value(verdict.p_value)),
            Cell::text(verdict.effect.as_str()),
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

/// A p-value with two digits that matter.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.0001 {
        "< 0.0001".to_owned()
    } else {
        format!("{p:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
