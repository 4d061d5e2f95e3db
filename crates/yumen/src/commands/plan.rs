//! `yumen plan`: effects of a change on a running gateway, or between two files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use hyper::Method;
use serde_json::Value;
use yumen_base::ProblemLevel;
use yumen_config::{Resource, json_text};
use yumen_snapshot::Question;
use yumen_snapshot::plan::{PlanContext, PlanLimits, plan};

use super::remote::RemoteArgs;
use super::{offline, output};
use crate::config::findings;
use crate::node::NodeFile;

/// Arguments of `yumen plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Resources after the change, in the APISIX standalone format
    after: PathBuf,
    /// Resources before the change [default: those of a running gateway]
    #[arg(long, value_name = "routes.yaml")]
    against: Option<PathBuf>,
    /// Treat objects missing from the file as deleted
    #[arg(long, conflicts_with = "against")]
    replace: bool,
    /// Sample requests, one JSON object per line: {"method": "GET", "url": "http://host/path"}
    #[arg(long, value_name = "requests.jsonl", requires = "against")]
    requests: Option<PathBuf>,
    /// Require confirmation if more than this share of requests would change
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    changed_max: f64,
    /// Require confirmation if more than this number of routes would be removed
    #[arg(long, value_name = "N", default_value_t = 10)]
    removed_max: usize,
    #[command(flatten)]
    node: NodeFile,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Rejects NaN, which compares with nothing and would disable the limit.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().map_err(|error| error.to_string())?;
    if percent >= 0.0 { Ok(percent) } else { Err("not a percentage".to_owned()) }
}

/// Exit status of a change that introduces errors.
const BRINGS_ERRORS: u8 = 1;
/// Exit status of a change that needs confirmation.
const NEEDS_CONFIRMATION: u8 = 2;

/// Plans the change and prints the plan.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let Some(against) = &args.against else { return ask_gateway(args) };
    let (before, after) = (read(against)?, read(&args.after)?);
    let node = args.node.read()?;
    let sample = args.requests.as_deref().map(sample).transpose()?.unwrap_or_default();
    let planned = plan(
        &before,
        &after,
        &sample,
        &PlanContext {
            compiler: &|| offline::compiler(&node),
            now: yumen_proxy::clock::exact(),
            certificate: &findings::certificate,
            // Offline, the health of endpoints is unknown.
            is_healthy: &|_| None,
            limits: PlanLimits {
                changed_share_max: args.changed_max / 100.0,
                deleted_routes_max: args.removed_max,
            },
        },
    );
    let text = match args.remote.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => planned.to_string(),
    };
    output::print(&text)?;
    Ok(match planned.needs_confirmation {
        _ if planned.introduces_errors() => ExitCode::FAILURE,
        Some(_) => ExitCode::from(NEEDS_CONFIRMATION),
        None => ExitCode::SUCCESS,
    })
}

/// Requests the plan from a running gateway, with its recent requests as a sample.
fn ask_gateway(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let text = std::fs::read(&args.after).with_context(|| format!("cannot read {}", args.after.display()))?;
    let client = args.remote.client()?;
    let ask = |format: &str| {
        let mode = if args.replace { "replace" } else { "merge" };
        let limits = format!("changed_max={}&removed_max={}", args.changed_max, args.removed_max);
        let path = format!("/yumen/v1/plan?mode={mode}&{limits}&format={format}");
        client.send(&Method::POST, &path, &[], Some(text.clone().into()))
    };
    let planned = ask("json")?.json()?;
    let shown = match args.remote.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => ask("text")?.text()?,
    };
    output::print(&shown)?;
    Ok(ExitCode::from(status(&planned)))
}

/// Exit status of a plan from the gateway. Errors that existed before the change do not count.
fn status(planned: &Value) -> u8 {
    let problems = planned["problems"].as_array().map_or(&[][..], Vec::as_slice);
    let is_brought = |problem: &Value| problem["level"] == "error" && problem["is_new"] != false;
    match planned["needs_confirmation"].is_string() {
        _ if problems.iter().any(is_brought) => BRINGS_ERRORS,
        true => NEEDS_CONFIRMATION,
        false => 0,
    }
}

/// Resources of a readable file. Problems of single objects are part of the plan.
fn read(file: &Path) -> anyhow::Result<Vec<Resource>> {
    let (resources, problems) = offline::read(file)?;
    if let Some(problem) = problems.iter().find(|problem| problem.level == ProblemLevel::Error) {
        bail!("{}: {problem}", file.display());
    }
    for problem in &problems {
        let _ = writeln!(std::io::stderr(), "{}: {problem}", file.display());
    }
    Ok(resources)
}

fn sample(file: &Path) -> anyhow::Result<Vec<Question>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let question = |(at, line): (usize, &str)| {
        json_text::from_slice(line.as_bytes()).with_context(|| format!("{} line {}", file.display(), at + 1))
    };
    lines.map(question).collect()
}

#[cfg(test)]
mod tests;
