//! `yumen plan`: effects of a change on a running gateway, or between two files or sets of Kubernetes manifests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use hyper::Method;
use serde_json::Value;
use yumen_base::{Problem, ProblemLevel};
use yumen_config::{NodeConfig, Resource, json_text};
use yumen_snapshot::Question;
use yumen_snapshot::plan::{PlanContext, PlanLimits, plan};

use super::manifest_args::ManifestArgs;
use super::remote::{self, RemoteArgs};
use super::{confirmation, offline, output};
use crate::config::findings;
use crate::diagnostics::{ExitStatus, SourceText, has_colors, render};
use crate::kubernetes::{ManifestObjects, ManifestTranslator, TranslatedManifests};

/// Arguments of `yumen plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Resources after the change, in the APISIX standalone format
    #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    after: Option<PathBuf>,
    /// Resources before the change, or manifests, then repeatable [default: the resources of a running gateway]
    #[arg(long, value_name = "routes.yaml|DIR", required_if_eq("kubernetes", "true"))]
    against: Vec<PathBuf>,
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
    manifests: ManifestArgs,
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
    let after = args.after.as_deref().unwrap_or(Path::new(""));
    let node = args.remote.node.read()?;
    let states = match (args.manifests.paths(), &args.against[..]) {
        (Some(paths), before) => PlannedStates::of_manifests(before, paths, &node)?,
        (None, [before]) => PlannedStates::of_files(before, after)?,
        (None, []) => return ask_gateway(args, after),
        (None, _) => bail!("--against takes one file of resources; several paths are for --kubernetes"),
    };
    let sample = args.requests.as_deref().map(sample).transpose()?.unwrap_or_default();
    let mut planned = plan(
        &states.before,
        &states.after,
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
            simulates: true,
        },
    );
    let mut problems: Vec<Problem> = planned.problems.iter().map(|one| one.problem.clone()).collect();
    states.source.locate(&mut problems);
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

/// The two states of a plan.
struct PlannedStates {
    before: Vec<Resource>,
    after: Vec<Resource>,
    source: PlanSource,
}

/// The source of the state after the change, where problems are located.
enum PlanSource {
    File(SourceText),
    Manifests(Box<(ManifestObjects, TranslatedManifests)>),
}

impl PlannedStates {
    fn of_files(before: &Path, after: &Path) -> anyhow::Result<PlannedStates> {
        let ((_, before), (source, after)) = (read(before)?, read(after)?);
        Ok(PlannedStates { before, after, source: PlanSource::File(source) })
    }

    fn of_manifests(
        before: &[PathBuf],
        after: &[PathBuf],
        node: &NodeConfig,
    ) -> anyhow::Result<PlannedStates> {
        let mut translator = ManifestTranslator::new(node);
        let before = translator.translate(&ManifestObjects::read(before)?).resources;
        let manifests = ManifestObjects::read(after)?;
        let translated = translator.translate(&manifests);
        let shown = render(&translated.problems, None, has_colors(&std::io::stderr()));
        let _ = std::io::stderr().write_all(shown.as_bytes());
        let after = translated.resources.clone();
        Ok(PlannedStates { before, after, source: PlanSource::Manifests(Box::new((manifests, translated))) })
    }
}

impl PlanSource {
    fn locate(&self, problems: &mut [Problem]) {
        match self {
            PlanSource::File(source) => source.locate(problems),
            PlanSource::Manifests(manifests) => manifests.1.attribute(problems, &manifests.0),
        }
    }
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
fn ask_gateway(args: &PlanArgs, after: &Path) -> anyhow::Result<ExitCode> {
    let source = SourceText::read(after)?;
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
