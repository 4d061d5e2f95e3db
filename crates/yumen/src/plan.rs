//! `yumen plan`: what a change of a file would do.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use yumen_base::Level;
use yumen_config::Resource;
use yumen_snapshot::Question;
use yumen_snapshot::plan::{Limits, Workshop, plan};

use crate::{lint, offline};

/// The command line of `yumen plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The resources as they shall be, in the APISIX standalone format
    after: PathBuf,
    /// The resources as they are
    #[arg(long, value_name = "routes.yaml")]
    against: PathBuf,
    /// Requests to ask both, one JSON object a line: {"method": "GET", "url": "http://host/path"}
    #[arg(long, value_name = "requests.jsonl")]
    requests: Option<PathBuf>,
    /// Ask for confirmation where more than this share of the requests would change
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    changed_max: f64,
    /// Ask for confirmation where more routes than this would be removed
    #[arg(long, value_name = "N", default_value_t = 10)]
    removed_max: usize,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Exit status of a plan that somebody should confirm.
const NEEDS_CONFIRMATION: u8 = 2;

/// Thinks the change through and prints that.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let (before, after) = (read(&args.against)?, read(&args.after)?);
    let sample = args.requests.as_deref().map(sample).transpose()?.unwrap_or_default();
    let planned = plan(
        &before,
        &after,
        &sample,
        &Workshop {
            compiler: &offline::compiler,
            now: yumen_proxy::clock::exact(),
            certificate: &lint::certificate,
            // Nobody checks endpoints here.
            is_healthy: &|_| None,
            limits: Limits {
                changed_share_max: args.changed_max / 100.0,
                deleted_routes_max: args.removed_max,
            },
        },
    );
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => planned.to_string(),
    };
    // A reader that has gone (`| head`) is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(match planned.needs_confirmation {
        _ if planned.has_errors() => ExitCode::FAILURE,
        Some(_) => ExitCode::from(NEEDS_CONFIRMATION),
        None => ExitCode::SUCCESS,
    })
}

/// The resources of a file that can be taken apart; what is wrong with single objects the plan tells.
fn read(file: &Path) -> anyhow::Result<Vec<Resource>> {
    let (resources, problems) = offline::read(file)?;
    if let Some(problem) = problems.iter().find(|problem| problem.level == Level::Error) {
        bail!("{}: {problem}", file.display());
    }
    Ok(resources)
}

fn sample(file: &Path) -> anyhow::Result<Vec<Question>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let question = |(at, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{} line {}", file.display(), at + 1))
    };
    lines.map(question).collect()
}
