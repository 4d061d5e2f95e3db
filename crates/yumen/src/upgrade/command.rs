//! `yumen upgrade`: requests an upgrade from a running gateway and prints its progress.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::predecessor::ENDING;
use super::upgrade_socket::{UpgradeProgress, UpgradeRequest};
use crate::cli::{GatewayRunArgs, UpgradeArgs};
use crate::{node, output};

/// Requests an upgrade; exit status 1 if the running process continues to serve.
pub(crate) fn upgrade(args: UpgradeArgs) -> anyhow::Result<ExitCode> {
    let UpgradeArgs { binary, force, config, data_dir } = args;
    let node = node::load(&GatewayRunArgs { config, data_dir, ..GatewayRunArgs::default() })?;
    let place = super::socket(&node);
    let mut gateway = UnixStream::connect(&place).with_context(|| {
        format!("no gateway answers at {}: give the --config or the --data-dir it runs with", place.display())
    })?;
    // The gateway's working directory may differ.
    let binary = binary.map(std::path::absolute).transpose()?;
    let asked = serde_json::to_string(&UpgradeRequest { binary, force })?;
    gateway.write_all(format!("{asked}\n").as_bytes())?;
    for line in BufReader::new(gateway).lines() {
        match serde_json::from_str(&line?).context("the gateway answers something else")? {
            UpgradeProgress::Step(step) => say(&step),
            UpgradeProgress::Done(pid) => {
                say(&format!("upgraded: process {pid} serves"));
                return Ok(ExitCode::SUCCESS);
            }
            UpgradeProgress::Failed(reason) if reason == ENDING => bail!("not upgraded: {ENDING}"),
            UpgradeProgress::Failed(reason) => {
                bail!("not upgraded, the running process continues to serve: {reason}")
            }
        }
    }
    bail!("the gateway ended in the middle of it")
}

/// A closed standard output does not change the exit status, which carries the result.
fn say(line: &str) {
    drop(output::print(&format!("{line}\n")));
}
