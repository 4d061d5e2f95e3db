//! `yumen-bench upstream`: the server behind the gateways.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// What `upstream` takes.
#[derive(Debug, Args)]
pub struct UpstreamArgs {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:9000")]
    pub listen: String,
}

/// Serves until it is ended.
pub fn run(args: &UpstreamArgs) -> Result<ExitCode> {
    anyhow::bail!("upstream on {}: being written", args.listen)
}
