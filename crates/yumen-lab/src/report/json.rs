//! Writes the computed content of a report as JSON: figures with their spread, comparisons, losses. Single
//! rounds remain in the record of the run.
//!
//! Depends on the record, but not on page layout.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::context::ReportContext;
use super::rivals::{RivalComparison, standings};
use crate::metric::{RoundMetric, bottleneck};
use crate::record::{MeasuredTarget, RunCase, RunRecord};
use crate::threshold::judge;
use crate::verdict::{VerdictDecision, VerdictLimits};

/// Version of this format.
const FORMAT: u32 = 1;

pub(crate) fn write(run: &RunRecord) -> Result<String> {
    let context = ReportContext::new(run);
    let limits = VerdictLimits::default();
    let comparisons = standings(run, limits);
    let losses: Vec<&RivalComparison> =
        comparisons.iter().filter(|one| one.verdict.decision == VerdictDecision::Worse).collect();
    let cases: Vec<Value> = run.cases.iter().map(|case| case_value(context, case)).collect();
    let report = json!({
        "format": FORMAT,
        "scenario": run.scenario.name,
        "repeats": run.scenario.report,
        "started": run.started,
        "command": run.command,
        "seed": run.seed,
        "scale": run.scale,
        "lab_version": run.lab_version,
        "machine": run.machine,
        "doctor": run.doctor,
        "ceilings": run.ceilings,
        "targets": run.targets,
        "skipped": run.skipped,
        "traps": run.scenario.traps,
        "cases": cases,
        "limits": limits,
        "losses": losses,
        "comparisons": comparisons,
        "thresholds": judge(run),
    });
    let mut text = serde_json::to_string_pretty(&report).context("writing the report as JSON")?;
    text.push('\n');
    Ok(text)
}

fn case_value(context: ReportContext<'_>, case: &RunCase) -> Value {
    let results: Vec<Value> =
        context.run.targets.iter().filter_map(|target| result_value(context, case, target)).collect();
    json!({ "id": case.id, "label": case.label, "parameters": case.parameters, "results": results })
}

fn result_value(context: ReportContext<'_>, case: &RunCase, target: &MeasuredTarget) -> Option<Value> {
    let recorded = case.results.iter().find(|result| result.target == target.name)?;
    let mut figures = Map::new();
    for metric in RoundMetric::ALL.into_iter().chain([RoundMetric::LatencyP95]) {
        if let Some(spread) = context.spread(case, target, metric) {
            let name = serde_json::to_value(metric).ok()?;
            figures.insert(name.as_str()?.to_owned(), json!({ "unit": unit_name(metric), "spread": spread }));
        }
    }
    Some(json!({
        "target": target.name,
        "rounds": recorded.rounds.len(),
        "missing": recorded.missing,
        "bottleneck": bottleneck(recorded),
        "flagged": context.doubt(case, target).is_some(),
        "connections": recorded.rounds.iter().map(|round| round.connections).collect::<Vec<_>>(),
        "figures": figures,
    }))
}

fn unit_name(metric: RoundMetric) -> &'static str {
    use crate::quantity::QuantityUnit;
    match metric.unit() {
        QuantityUnit::PerSecond => "per_second",
        QuantityUnit::Nanoseconds => "nanoseconds",
        QuantityUnit::Bytes => "bytes",
        QuantityUnit::Share => "share",
        _ => "count",
    }
}
