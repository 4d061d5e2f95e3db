//! `yumen plan`: effects of a change on a running gateway, or between two files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use hyper::Method;
use serde_json::Value;
use yumen_base::{Problem, ProblemLevel};
use yumen_config::{Resource, json_text};
use yumen_snapshot::Question;
use yumen_snapshot::plan::{PlanContext, PlanLimits, plan};

use super::remote::{self, RemoteArgs};
use super::{confirmation, offline, output};
use crate::config::findings;
use crate::diagnostics::{ExitStatus, SourceText, has_colors, render};

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
    /// Accept a large change without the question
    #[arg(long, short = 'y', visible_alias = "confirm")]
    yes: bool,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Rejects NaN, which compares with nothing and would disable the limit.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().map_err(|error| error.to_string())?;
    if percent >= 0.0 { Ok(percent) } else { Err("not a percentage".to_owned()) }
}

/// Plans the change and prints the plan.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let Some(against) = &args.against else { return ask_gateway(args) };
    let ((_, before), (source, after)) = (read(against)?, read(&args.after)?);
    let node = args.remote.node.read()?;
    let sample = args.requests.as_deref().map(sample).transpose()?.unwrap_or_default();
    let mut planned = plan(
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
    let mut problems: Vec<Problem> = planned.problems.iter().map(|one| one.problem.clone()).collect();
    source.locate(&mut problems);
    for (planned, located) in planned.problems.iter_mut().zip(problems) {
        planned.problem = located;
    }
    let text = match args.remote.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => planned.to_string(),
    };
    output::print(&text)?;
    let status = status(planned.introduces_errors(), planned.needs_confirmation.is_some());
    Ok(args.settled(status, planned.needs_confirmation.as_deref()).into())
}

impl PlanArgs {
    /// The exit status after the question that a large change raises.
    fn settled(&self, status: ExitStatus, reason: Option<&str>) -> ExitStatus {
        let (ExitStatus::Unconfirmed, Some(reason)) = (status, reason) else { return status };
        if self.yes || confirmation::ask(reason, "Accept this change?") {
            return ExitStatus::Done;
        }
        let line =
            format!("yumen: the change needs a confirmation: {reason}; repeat with --yes to accept it\n");
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
        ExitStatus::Unconfirmed
    }
}

/// Requests the plan from a running gateway, with its recent requests as a sample.
fn ask_gateway(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let source = SourceText::read(&args.after)?;
    remote::refuse_broken(&source)?;
    let text = source.text;
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
    let reason = planned["needs_confirmation"].as_str();
    Ok(args.settled(status(brings_errors(&planned), reason.is_some()), reason).into())
}

/// Whether a plan from the gateway introduces errors. Errors that existed before the change do not count.
fn brings_errors(planned: &Value) -> bool {
    let problems = planned["problems"].as_array().map_or(&[][..], Vec::as_slice);
    problems.iter().any(|problem| problem["level"] == "error" && problem["is_new"] != false)
}

fn status(brings_errors: bool, needs_confirmation: bool) -> ExitStatus {
    match needs_confirmation {
        _ if brings_errors => ExitStatus::Problems,
        true => ExitStatus::Unconfirmed,
        false => ExitStatus::Done,
    }
}

/// Resources of a readable file. Problems of single objects are part of the plan.
fn read(file: &Path) -> anyhow::Result<(SourceText, Vec<Resource>)> {
    let (source, resources, problems) = offline::read(file)?;
    if problems.iter().any(|problem| problem.level == ProblemLevel::Error) {
        bail!(source.refuse(&problems));
    }
    let shown = render(&problems, Some(&source), has_colors(&std::io::stderr()));
    let _ = std::io::stderr().write_all(shown.as_bytes());
    Ok((source, resources))
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
