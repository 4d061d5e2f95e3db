//! `yumen upgrade`: requests an upgrade from a running gateway and prints its progress.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::client::unreachable_socket;
use super::output;
use crate::node::{self, GatewayRunArgs};
use crate::upgrade::{self, UpgradeProgress, UpgradeRequest};

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Binary of the successor [default: the path from which the running process was started]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Upgrade even if objects that work now would break or be lost
    #[arg(long)]
    force: bool,
    /// End the drain of an earlier upgrade within timeouts.drain_ms instead of refusing this one
    #[arg(long)]
    end_drain: bool,
    /// Node configuration
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    config: Option<PathBuf>,
    /// Data directory of the gateway [default: data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Requests an upgrade; exit status 1 if the running process continues to serve.
pub(crate) fn run(args: UpgradeArgs) -> anyhow::Result<ExitCode> {
    let UpgradeArgs { binary, force, end_drain, config, data_dir } = args;
    let node = node::load(&GatewayRunArgs { config, data_dir, ..GatewayRunArgs::default() })?;
    let path = upgrade::socket(&node);
    let mut gateway = UnixStream::connect(&path).map_err(|error| unreachable_socket(&path, error))?;
    // The gateway's working directory may differ.
    let binary = binary.map(std::path::absolute).transpose()?;
    let request = serde_json::to_string(&UpgradeRequest { binary, force, end_drain })?;
    gateway.write_all(format!("{request}\n").as_bytes())?;
    for line in BufReader::new(gateway).lines() {
        match serde_json::from_str(&line?).context("invalid response of the gateway")? {
            UpgradeProgress::Step(step) => print(&step),
            UpgradeProgress::Done(pid) => {
                print(&format!("upgraded: process {pid} serves"));
                return Ok(ExitCode::SUCCESS);
            }
            UpgradeProgress::Ending(reason) => bail!("not upgraded: {reason}"),
            UpgradeProgress::Failed(reason) => {
                bail!("not upgraded, the running process continues to serve: {reason}")
            }
        }
    }
    bail!("the gateway exited during the upgrade")
}

/// A closed standard output does not change the exit status, which carries the result.
fn print(line: &str) {
    drop(output::print(&format!("{line}\n")));
}
