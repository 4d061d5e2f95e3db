//! Assembles a report: conclusions first, details last.
//!
//! Depends on the sections and their order, but not on their content.

use super::context::ReportContext;
use super::document::{ReportDocument, ReportSection};
use super::{flame, headline, rivals, sections, views};
use crate::record::{RunRecord, RunScale};
use crate::verdict::VerdictLimits;

/// Builds the report of a run as data.
pub fn build(run: &RunRecord) -> ReportDocument {
    let context = ReportContext::new(run);
    let limits = VerdictLimits::default();
    let comparisons = rivals::standings(run, limits);
    let mut all = vec![section("in-short", "In short", sections::in_short(context, &comparisons, limits))];
    all.extend(views::sections(context));
    all.push(section("losses", "Where yumen loses", rivals::blocks(&comparisons, limits)));
    all.push(section("thresholds", "Thresholds", sections::thresholds(run)));
    all.push(section("limits", "Who was at the limit", sections::usage::blocks(context)));
    all.push(section("flames", "Where the processor time goes", flame::blocks(context)));
    all.push(section("about", "What the scenario is about", sections::about(run)));
    all.push(section("traps", "Traps of the original", sections::traps(context)));
    all.push(section("setup", "What was measured, and where", sections::setup::blocks(context)));
    all.push(section("configurations", "Configurations", sections::setup::configurations(context)));
    all.push(section("rounds", "Every round", sections::rounds(context)));
    all.push(section("repeat", "Repeat it", sections::repeat(context)));
    all.retain(|section| !section.blocks.is_empty());
    ReportDocument {
        title: title(run),
        subtitle: run.scenario.title.clone(),
        headline: headline::blocks(context, &comparisons, limits),
        facts: facts(run),
        sections: all,
    }
}

fn section(id: &str, title: &str, blocks: Vec<super::document::ReportBlock>) -> ReportSection {
    ReportSection { id: id.to_owned(), title: title.to_owned(), blocks }
}

fn title(run: &RunRecord) -> String {
    let names: Vec<&str> = sections::gateways(run).map(|target| target.name.as_str()).collect();
    match names.as_slice() {
        [] => run.scenario.name.clone(),
        [one] => format!("{}: {one}", run.scenario.name),
        [first, others @ ..] => format!("{}: {first} beside {}", run.scenario.name, listed(others)),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Number of planned rounds.
pub(crate) fn rounds(run: &RunRecord) -> String {
    format!("{} round{}", run.scenario.rounds, if run.scenario.rounds == 1 { "" } else { "s" })
}

fn facts(run: &RunRecord) -> Vec<(String, String)> {
    let scale = match run.scale {
        RunScale::Quick => "quick: fewer points, seconds each",
        RunScale::Normal => "normal: fitted to one machine",
        RunScale::Full => "full: as the original",
    };
    let machine = &run.machine;
    let mut facts = vec![
        ("Measured".to_owned(), format!("{}, by yumen-bench {}", run.started, run.lab_version)),
        ("On".to_owned(), format!("{} × {}, {}", machine.cpus, machine.cpu, machine.kernel)),
        ("Scale".to_owned(), format!("{scale}; {} of {} s, interleaved", rounds(run), run.scenario.seconds)),
    ];
    if let Some(report) = &run.scenario.report {
        facts.push(("Repeats".to_owned(), format!("report {report}")));
    }
    facts
}
