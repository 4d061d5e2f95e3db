//! Writes what a report computes as JSON: figures with their spread, comparisons, losses. The bare rounds stay in the
//! record of the run.
//!
//! Knows the record; not how pages look.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::standing::{Comparison, standings};
use crate::metric::{Metric, bottleneck};
use crate::record::{Case, Run, Target};
use crate::verdict::{Decision, Limits};

/// The version of this format.
const FORMAT: u32 = 1;

pub(crate) fn write(run: &Run) -> Result<String> {
    let context = Context::new(run);
    let limits = Limits::default();
    let comparisons = standings(run, limits);
    let losses: Vec<&Comparison> =
        comparisons.iter().filter(|one| one.verdict.decision == Decision::Worse).collect();
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
    });
    let mut text = serde_json::to_string_pretty(&report).context("writing the report as JSON")?;
    text.push('\n');
    Ok(text)
}

fn case_value(context: Context<'_>, case: &Case) -> Value {
    let results: Vec<Value> =
        context.run.targets.iter().filter_map(|target| result_value(context, case, target)).collect();
    json!({ "id": case.id, "label": case.label, "parameters": case.parameters, "results": results })
}

fn result_value(context: Context<'_>, case: &Case, target: &Target) -> Option<Value> {
    let recorded = case.results.iter().find(|result| result.target == target.name)?;
    let mut figures = Map::new();
    for metric in Metric::ALL {
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

fn unit_name(metric: Metric) -> &'static str {
    use crate::quantity::Unit;
    match metric.unit() {
        Unit::PerSecond => "per_second",
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Share => "share",
        _ => "count",
    }
}
