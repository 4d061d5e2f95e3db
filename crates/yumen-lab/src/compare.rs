//! `yumen-bench compare`: compares two records of the same scenario and reports regressions to CI by exit
//! code.
//!
//! A difference counts only if it exceeds the threshold and is significant.

mod text;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::metric::RoundMetric;
use crate::record::{RoundRecord, RunCase, RunRecord, TargetRole};
use crate::report_command::read_file;
use crate::verdict::{Verdict, VerdictDecision, VerdictLimits};

/// Arguments of `compare`. Exit codes: 0 without regressions, 1 with regressions, 2 on an error.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Record of the earlier run.
    pub earlier: PathBuf,
    /// Record of the later run of the same scenario.
    pub later: PathBuf,
    /// Largest difference of medians that counts as equal: `5%` or `0.05`.
    #[arg(long, default_value = "5%", value_parser = parse_share)]
    pub threshold: f64,
    /// Largest p-value of the rank test over the rounds that counts as significant.
    #[arg(long, default_value = "0.05", value_parser = parse_share)]
    pub alpha: f64,
    /// Targets to compare; by default all that both runs have.
    #[arg(long, value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Compare ratios to this target, round by round, so that changes common to both cancel.
    #[arg(long, value_name = "TARGET")]
    pub relative_to: Option<String>,
    /// List unchanged figures too.
    #[arg(long)]
    pub all: bool,
    /// Write the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Result of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonOutcome {
    /// Figures that both runs have, worst first.
    pub rows: Vec<ComparisonRow>,
    /// Differences that limit the comparability of the runs.
    pub warnings: Vec<String>,
    /// Threshold and significance level.
    pub limits: VerdictLimits,
    /// Target that figures are relative to.
    pub relative_to: Option<String>,
}

/// One figure of one target in one case.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonRow {
    /// Id of the case.
    pub case: String,
    /// Name of the target.
    pub target: String,
    /// Compared figure.
    pub metric: RoundMetric,
    /// Whether the figures are ratios to another target.
    pub relative: bool,
    /// The verdict; the later run is the first sample.
    pub verdict: Verdict,
}

impl ComparisonOutcome {
    /// Number of figures that got worse.
    pub fn regressions(&self) -> usize {
        self.count(VerdictDecision::Worse)
    }

    /// Number of figures with this decision.
    pub fn count(&self, decision: VerdictDecision) -> usize {
        self.rows.iter().filter(|row| row.verdict.decision == decision).count()
    }
}

/// Compares two files and prints the result.
pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    let (earlier, later) = (read_file(&args.earlier)?, read_file(&args.later)?);
    let limits = VerdictLimits { threshold: args.threshold, alpha: args.alpha };
    let outcome = compare(&earlier, &later, limits, &args.targets, args.relative_to.as_deref())?;
    let shown = if args.json {
        serde_json::to_string_pretty(&outcome).context("writing the comparison as JSON")? + "\n"
    } else {
        text::write(&outcome, args.all)
    };
    std::io::stdout().write_all(shown.as_bytes()).context("cannot write to standard output")?;
    // The code for CI: differences without significance do not fail a build.
    Ok(ExitCode::from(u8::from(outcome.regressions() > 0)))
}

/// Compares a later run with an earlier one of the same scenario.
pub fn compare(
    earlier: &RunRecord,
    later: &RunRecord,
    limits: VerdictLimits,
    targets: &[String],
    relative_to: Option<&str>,
) -> Result<ComparisonOutcome> {
    ensure!(
        earlier.scenario.name == later.scenario.name,
        "the runs are of different scenarios: `{}` and `{}`",
        earlier.scenario.name,
        later.scenario.name
    );
    for name in targets.iter().map(String::as_str).chain(relative_to) {
        let known = |run: &RunRecord| run.targets.iter().any(|target| target.name == name);
        ensure!(
            known(earlier) && known(later),
            "target `{name}` is not in both runs; they share {}",
            shared(earlier, later)
        );
    }
    // The reference compared with itself would always be the same.
    let is_selected = |name: &str| {
        relative_to != Some(name) && (targets.is_empty() || targets.iter().any(|target| target == name))
    };
    let mut rows = Vec::new();
    for case in &later.cases {
        // By id, because the order of cases may change between versions.
        let Some(before) = earlier.cases.iter().find(|before| before.id == case.id) else { continue };
        let gateways = later.targets.iter().filter(|target| target.role == TargetRole::Gateway);
        for target in gateways.filter(|target| is_selected(&target.name)) {
            for metric in RoundMetric::ALL {
                rows.extend(row(before, case, &target.name, metric, relative_to, limits));
            }
        }
    }
    if rows.is_empty() {
        bail!(
            "the runs have no case in which the same target was measured; they share {}",
            shared(earlier, later)
        );
    }
    // The worst first, so that the head of the text shows regressions.
    rows.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| size(b).total_cmp(&size(a))));
    let warnings = warnings(earlier, later);
    Ok(ComparisonOutcome { rows, warnings, limits, relative_to: relative_to.map(str::to_owned) })
}

fn row(
    before: &RunCase,
    after: &RunCase,
    target: &str,
    metric: RoundMetric,
    relative_to: Option<&str>,
    limits: VerdictLimits,
) -> Option<ComparisonRow> {
    // Error shares are compared directly: a ratio is useless because the reference mostly has none.
    let reference = relative_to.filter(|_| metric != RoundMetric::Errors);
    let values = |case: &RunCase| match reference {
        None => Some(metric.over(rounds(case, target)?)),
        Some(reference) => Some(ratios(metric, rounds(case, target)?, rounds(case, reference)?)),
    };
    let verdict = Verdict::of(metric, &values(after)?, &values(before)?, limits)?;
    Some(ComparisonRow {
        case: after.id.clone(),
        target: target.to_owned(),
        metric,
        relative: reference.is_some(),
        verdict,
    })
}

fn rounds<'a>(case: &'a RunCase, target: &str) -> Option<&'a [RoundRecord]> {
    let result = case.results.iter().find(|result| result.target == target)?;
    Some(&result.rounds)
}

/// Figures divided by those of another target in the same round.
fn ratios(metric: RoundMetric, rounds: &[RoundRecord], reference: &[RoundRecord]) -> Vec<f64> {
    let of_round = |round: &RoundRecord| Some((round.number, metric.of(round)?));
    // By number: a failed round of one target must not shift the pairs of the others.
    let reference: BTreeMap<usize, f64> = reference.iter().filter_map(of_round).collect();
    let ratio = |(number, value): (usize, f64)| {
        let below = reference.get(&number)?;
        // A ratio to zero has no meaning.
        (*below > 0.0).then(|| value / below)
    };
    rounds.iter().filter_map(of_round).filter_map(ratio).collect()
}

/// Sort key: regressions first, unchanged figures last.
fn rank(row: &ComparisonRow) -> u8 {
    match row.verdict.decision {
        VerdictDecision::Worse => 0,
        VerdictDecision::Undecided => 1,
        VerdictDecision::TooFew => 2,
        VerdictDecision::Better => 3,
        VerdictDecision::Same => 4,
    }
}

/// Distance of the runs in either direction, as a logarithm.
fn size(row: &ComparisonRow) -> f64 {
    // A logarithm, so that half and double are equally far. Figures without a ratio come first.
    row.verdict.ratio.filter(|ratio| *ratio > 0.0).map_or(f64::INFINITY, |ratio| ratio.ln().abs())
}

/// Names of targets that both runs have.
fn shared(earlier: &RunRecord, later: &RunRecord) -> String {
    let names = later.targets.iter().map(|target| target.name.as_str());
    let both = names.filter(|name| earlier.targets.iter().any(|target| target.name == *name));
    let both: Vec<&str> = both.collect();
    if both.is_empty() { "no target".to_owned() } else { both.join(", ") }
}

/// Differences between the runs other than the figures.
fn warnings(earlier: &RunRecord, later: &RunRecord) -> Vec<String> {
    let (a, b) = (&earlier.machine, &later.machine);
    let pairs = [
        ("processor", a.cpu.clone(), b.cpu.clone()),
        ("number of processors", a.cpus.to_string(), b.cpus.to_string()),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("pinning", format!("{:?}", a.pinning), format!("{:?}", b.pinning)),
        ("scale", format!("{:?}", earlier.scale), format!("{:?}", later.scale)),
        ("seconds of a round", earlier.scenario.seconds.to_string(), later.scenario.seconds.to_string()),
    ];
    let mut warnings: Vec<String> = pairs
        .into_iter()
        .filter(|(_, before, after)| before != after)
        .map(|(what, before, after)| format!("{what} differs: {before}, then {after}"))
        .collect();
    for target in &later.targets {
        let before = earlier.targets.iter().find(|before| before.name == target.name);
        // Also the text of the files, because a changed default is a cause that figures do not show.
        if let Some(before) = before.filter(|before| before.configuration != target.configuration) {
            warnings.push(format!("{} was configured differently", before.name));
        }
    }
    let removed = earlier.cases.iter().filter(|case| !later.cases.iter().any(|other| other.id == case.id));
    let removed: Vec<&str> = removed.map(|case| case.id.as_str()).collect();
    if !removed.is_empty() {
        warnings.push(format!("not in the later run: {}", removed.join("; ")));
    }
    let missing =
        earlier.targets.iter().filter(|target| !later.targets.iter().any(|other| other.name == target.name));
    warnings.extend(missing.map(|target| format!("{} is not in the later run", target.name)));
    warnings
}

/// Parses `5%` or `0.05`.
fn parse_share(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a share: write `5%` or `0.05`");
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().map_err(|_| wrong())? / whole;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}
