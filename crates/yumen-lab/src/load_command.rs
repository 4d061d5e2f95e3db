//! `yumen-bench load`: options to a plan, a plan to a result, the result to the reader.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// What `load` takes.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Where requests go: `URL`, or `WEIGHT@URL` for several.
    #[arg(required = true)]
    pub urls: Vec<String>,
}

/// Runs the load and shows what came of it.
pub fn run(args: &LoadArgs) -> Result<ExitCode> {
    anyhow::bail!("load of {} URLs: being written", args.urls.len())
}
