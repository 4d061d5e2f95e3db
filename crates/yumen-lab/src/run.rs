//! `yumen-bench run`, `list` and `doctor`: the command line. The modules below are the steps of a run.

mod ceilings;
mod certificate;
mod changes;
mod config_check;
mod evidence;
mod flame;
mod gateway;
mod group;
mod http;
mod interrupt;
mod lab;
mod load;
mod order;
mod pinning;
mod process;
mod progress;
mod round;
mod run_targets;
mod steps;
mod upstreams;
mod usage;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::doctor::{self, MachineFacts, facts};
use crate::record::{DoctorFinding, FindingLevel, RunScale};
use crate::report::render_summary;
use crate::scenario::{self, CaseLoad, SHIPPED};
use crate::targets;
use crate::threshold::{self, FigureThreshold};
use crate::units::parse_count;
use lab::{FlamePlan, LabContext, Say};
use run_targets::RunTarget;

/// Options of `run`.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// Names of scenarios (see `list`), or files ending in .yaml
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    #[command(flatten)]
    targets: LabTargetArgs,
    #[command(flatten)]
    scale: RunScaleArgs,
    #[command(flatten)]
    overrides: ScenarioOverrideArgs,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    /// Output directory, one JSON file per scenario
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Seed of the order of rounds
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Port of the first upstream of the lab, for gateways given by --url
    #[arg(long, value_name = "PORT")]
    upstream_port: Option<u16>,
    #[command(flatten)]
    artifacts: LabArtifactArgs,
}

/// The targets.
#[derive(Debug, Args)]
struct LabTargetArgs {
    /// Gateways to measure; by default those of the scenario
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    targets: Vec<String>,
    /// Running gateway whose upstream you configured; repeatable
    #[arg(long, value_name = "NAME=URL")]
    url: Vec<String>,
    /// Process of a gateway given by --url, to measure its processor time and memory; repeatable
    #[arg(long, value_name = "NAME=PID")]
    pid: Vec<String>,
}

/// The scale.
#[derive(Debug, Args)]
struct RunScaleArgs {
    /// Run fewer points, seconds each, for a first impression
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Use durations and concurrency of the original reports
    #[arg(long)]
    full: bool,
}

/// Settings that replace those of the scenario.
#[derive(Debug, Args)]
struct ScenarioOverrideArgs {
    /// Rounds per point and target, instead of the scenario's
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// Seconds per round, instead of the scenario's
    #[arg(long, value_name = "SECONDS", value_parser = round_seconds)]
    seconds: Option<f64>,
    /// Requests per second of scenarios with a constant rate (30000, 30k), instead of a share of the slowest
    /// target's rate
    #[arg(long, value_name = "N", value_parser = constant_rate)]
    rate: Option<f64>,
}

/// Thresholds.
#[derive(Debug, Args)]
struct ThresholdArgs {
    /// Threshold that makes the command fail with exit code 1: 'p99>5ms', 'nginx:errors>0.1%'; repeatable
    #[arg(long, value_name = "THRESHOLD", value_parser = clap::value_parser!(FigureThreshold))]
    fail_if: Vec<FigureThreshold>,
}

/// Further files of a run.
#[derive(Debug, Args)]
struct LabArtifactArgs {
    /// Add a flame graph of each gateway to the report, under the load of the most connections (needs perf)
    #[arg(long)]
    flame: bool,
    /// Keep configurations and logs of the gateways
    #[arg(long)]
    keep: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Maximum concurrent connections of the planned run
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: u64,
    /// Gateways whose installation and configuration are checked; all by default
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    targets: Vec<String>,
}

/// Observation time of the processors.
const WATCHED: Duration = Duration::from_secs(1);

/// Lists scenarios and targets.
pub fn list() -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "scenarios")?;
    for (name, _) in SHIPPED {
        let scenario = scenario::load(name, RunScale::Normal)?;
        let report = scenario.report.unwrap_or_default();
        writeln!(out, "  {name:<18} {report:<3} {}", scenario.title)?;
    }
    writeln!(out, "\ntargets")?;
    for adapter in targets::all() {
        match run_targets::program(*adapter) {
            Some(program) => {
                let version =
                    run_targets::version(*adapter, &program).unwrap_or_else(|| "unknown version".to_owned());
                writeln!(out, "  {:<9} {version:<18} {}", adapter.name(), program.display())?;
            }
            None => writeln!(out, "  {:<9} not installed: {}", adapter.name(), adapter.how_to_get())?,
        }
    }
    writeln!(out, "  {:<9} anything that runs already: --url NAME=URL", "url")?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the machine and the gateways; exit code 1 if a run cannot work.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let needs = doctor::MachineNeeds { connections: args.connections, short_connections: true };
    // Short connections are assumed: they need the most of the machine.
    let mut findings = doctor::examine(&MachineFacts::gather(WATCHED), needs);
    let folder = lab::work_folder(&std::env::temp_dir())?;
    findings.push(perf_finding(&folder));
    let adapters: Vec<_> = match args.targets.as_slice() {
        [] => targets::all().to_vec(),
        names => names.iter().map(|name| run_targets::adapter(name)).collect::<Result<_>>()?,
    };
    let certificate = certificate::make(&folder)?;
    findings.extend(config_check::findings(&adapters, &folder, &certificate));
    // Only for the checks, which have ended.
    let _ = std::fs::remove_dir_all(&folder);
    let mut out = std::io::stdout().lock();
    findings.iter().try_for_each(|finding| show(&mut out, finding))?;
    let worst = findings.iter().map(|finding| finding.level).max();
    Ok(if worst == Some(FindingLevel::Problem) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether flame graphs are possible.
fn perf_finding(folder: &Path) -> DoctorFinding {
    let obstacle = flame::obstacle(folder);
    DoctorFinding {
        name: "flame graphs".to_owned(),
        level: if obstacle.is_some() { FindingLevel::Unknown } else { FindingLevel::Ok },
        found: obstacle.unwrap_or_else(|| "perf can sample".to_owned()),
        wanted: "perf, for `run --flame`".to_owned(),
        hint: None,
    }
}

fn show(out: &mut dyn Write, finding: &DoctorFinding) -> std::io::Result<()> {
    let mark = match finding.level {
        FindingLevel::Ok => "ok",
        FindingLevel::Unknown => "?",
        FindingLevel::Warning => "warning",
        FindingLevel::Problem => "PROBLEM",
    };
    writeln!(out, "{mark:<8} {:<30} {}; wanted: {}", finding.name, finding.found, finding.wanted)?;
    let lines = finding.hint.iter().flat_map(|hint| hint.lines());
    lines.into_iter().try_for_each(|line| writeln!(out, "{:<8} {line}", ""))
}

/// Runs scenarios and writes their records.
pub fn run(args: &LabRunArgs) -> Result<ExitCode> {
    let scale = match (args.scale.quick, args.scale.full) {
        (true, _) => RunScale::Quick,
        (_, true) => RunScale::Full,
        _ => RunScale::Normal,
    };
    // Before any process starts, so that every one is ended on an interrupt.
    interrupt::listen()?;
    // The gateways inherit the limit.
    facts::raise_file_limit();
    let folder = lab::work_folder(&std::env::temp_dir())?;
    let print = |line: &str| {
        // A closed terminal must not end a run of hours.
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    let cpus = facts::allowed_cpus();
    let measuring = pinning::split(&cpus, pinning::workers_max(cpus.len()));
    // The lab itself must not use the gateway's processors.
    process::pin_this_thread(&measuring.generator)?;
    let mut facts = MachineFacts::gather(WATCHED);
    // The facts were gathered on a pinned thread, which sees its own processors only.
    facts.cpus = cpus.len();
    let lab = LabContext {
        bench: std::env::current_exe()?,
        certificate: certificate::make(&folder)?,
        folder: folder.clone(),
        cpus,
        facts,
        scale,
        seed: args.seed,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        upstream_port: args.upstream_port,
        rate: args.overrides.rate,
        flame: flame_plan(args.artifacts.flame, &folder, &print),
        print: &print,
    };
    let outcome = run_all(args, scale, &lab);
    if !args.artifacts.keep {
        // The files of a failed run are kept only with `--keep`.
        let _ = std::fs::remove_dir_all(&folder);
    }
    outcome
}

/// Finds out before the first round whether the requested flame graphs are possible.
fn flame_plan(is_requested: bool, folder: &Path, print: Say<'_>) -> FlamePlan {
    if !is_requested {
        return FlamePlan::Off;
    }
    let Some(reason) = flame::obstacle(folder) else { return FlamePlan::Sample };
    print(&format!("no flame graphs: {reason}"));
    FlamePlan::Impossible(reason)
}

/// Parses a rate in requests per second, which must be positive.
fn constant_rate(text: &str) -> Result<f64, String> {
    let rate = parse_count(text)?;
    if rate > 0.0 { Ok(rate) } else { Err("more than 0 requests per second".to_owned()) }
}

/// Parses the duration of a round in seconds, which must be positive and finite.
fn round_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 2.5".to_owned())?;
    match seconds.is_finite() && seconds > 0.0 {
        true => Ok(seconds),
        false => Err("more than 0 seconds".to_owned()),
    }
}

fn run_all(args: &LabRunArgs, scale: RunScale, lab: &LabContext<'_>) -> Result<ExitCode> {
    // Before the first scenario: a wrong directory must not surface after an hour of measurement.
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    let mut crossed = 0;
    for name in &args.scenarios {
        let mut scenario = scenario::load(name, scale)?;
        scenario.rounds = args.overrides.rounds.map_or(scenario.rounds, NonZeroUsize::get);
        scenario.seconds = args.overrides.seconds.unwrap_or(scenario.seconds);
        scenario.fail_if.extend(args.thresholds.fail_if.iter().map(|threshold| threshold.text.clone()));
        if args.overrides.rate.is_some() {
            ensure_constant_rate(&scenario)?;
        }
        let (entrants, skipped) = run_targets_for(args, &scenario)?;
        for skipped in &skipped {
            (lab.print)(&format!("{} is skipped, {}: {}", skipped.name, skipped.reason, skipped.hint));
        }
        ensure_judged_targets(&scenario, &entrants)?;
        (lab.print)(&format!("{}: {}", scenario.name, scenario.title));
        // Each record is written at the end of its scenario, so that a later failure costs no earlier result.
        let run = lab.run(&scenario, &entrants, &skipped)?;
        let file = args.out.join(format!("{}.json", scenario.name));
        std::fs::write(&file, serde_json::to_string(&run)?).with_context(|| format!("{}", file.display()))?;
        // A closed pipe must not cost the record of the next scenario.
        let _ = std::io::stdout().write_all(render_summary(&run).as_bytes());
        crossed += threshold::judge(&run).iter().filter(|outcome| outcome.crossed).count();
        (lab.print)(&format!(
            "\nwritten: {0}; the page: yumen-bench report {0} --out {1}",
            file.display(),
            file.with_extension("html").display()
        ));
    }
    if crossed > 0 {
        (lab.print)(&format!("thresholds crossed: {crossed}"));
    }
    Ok(if crossed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Refuses `--rate` for a scenario that offers no constant rate, where it would have no effect.
fn ensure_constant_rate(scenario: &scenario::Scenario) -> Result<()> {
    let points = scenario.points(usize::MAX)?;
    let is_open = |point: &scenario::ParameterPoint| matches!(point.settings.load, CaseLoad::Open(_));
    anyhow::ensure!(
        points.iter().any(is_open),
        "--rate: scenario {} has no case with a constant rate (`load: open`); those that have one: {}",
        scenario.name,
        constant_rate_scenarios().join(", ")
    );
    Ok(())
}

/// Built-in scenarios with a constant rate.
fn constant_rate_scenarios() -> Vec<&'static str> {
    let is_open = |name: &str| {
        let points = scenario::load(name, RunScale::Normal).and_then(|scenario| scenario.points(usize::MAX));
        points.is_ok_and(|points| points.iter().any(|point| matches!(point.settings.load, CaseLoad::Open(_))))
    };
    SHIPPED.iter().map(|(name, _)| *name).filter(|name| is_open(name)).collect()
}

/// Refuses thresholds on targets that do not take part, before any measurement.
fn ensure_judged_targets(scenario: &scenario::Scenario, entrants: &[RunTarget]) -> Result<()> {
    for text in &scenario.fail_if {
        let threshold: FigureThreshold = text.parse().map_err(anyhow::Error::msg)?;
        let Some(target) = &threshold.target else { continue };
        anyhow::ensure!(
            entrants.iter().any(|entrant| entrant.name == *target),
            "threshold `{text}`: target {target} does not take part in {}; there are {}",
            scenario.name,
            entrants.iter().map(|entrant| entrant.name.as_str()).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

/// Targets of a scenario, the baseline first.
fn run_targets_for(
    args: &LabRunArgs,
    scenario: &scenario::Scenario,
) -> Result<(Vec<RunTarget>, Vec<crate::record::SkippedTarget>)> {
    let all_targets = || targets::all().iter().map(|adapter| adapter.name().to_owned()).collect();
    let (named, by_url): (Vec<String>, Vec<String>) =
        (args.targets.targets.clone(), args.targets.url.clone());
    let names: Vec<String> = match (named.is_empty(), by_url.is_empty(), scenario.targets.is_empty()) {
        (false, ..) => named,
        // With `--url` alone, only the given gateways are wanted.
        (true, false, _) => Vec::new(),
        (true, true, false) => scenario.targets.clone(),
        (true, true, true) => all_targets(),
    };
    let (installed, skipped) = run_targets::installed(&names)?;
    let mut all: Vec<RunTarget> = scenario.direct.then(run_targets::direct).into_iter().collect();
    all.extend(installed);
    all.extend(run_targets::by_url(&args.targets.url, &args.targets.pid)?);
    // The baseline alone compares nothing.
    anyhow::ensure!(
        all.iter().any(|entrant| entrant.name != run_targets::DIRECT),
        "no target is installed or named"
    );
    Ok((all, skipped))
}
