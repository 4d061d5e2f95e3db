//! `yumen health`: whether a gateway is ready, for the health checks of containers.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use yumen_config::NodeConfig;

use super::client::{OperatorClient, OperatorTarget};
use super::output;
use crate::node::{NodeFile, listen_address};

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// URL of the status listener [default: that of the node configuration]
    #[arg(long, value_name = "URL")]
    status: Option<String>,
    #[command(flatten)]
    node: NodeFile,
}

/// Prints the readiness. Exit status 1 means not ready: Docker reserves 2.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    match ask(args) {
        Ok(()) => output::print("ready\n").map(|_| ExitCode::SUCCESS),
        Err(error) => {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("yumen: not ready: {error:#}\n").as_bytes(),
            );
            Ok(ExitCode::from(1))
        }
    }
}

fn ask(args: &HealthArgs) -> anyhow::Result<()> {
    let url = match &args.status {
        Some(url) => url.clone(),
        None => status_url(&args.node.read()?)?,
    };
    let response = OperatorClient::new(OperatorTarget::url(&url)?, None)?.get("/status/ready")?;
    match response.status {
        200 => Ok(()),
        status => bail!("status {status}: {}", String::from_utf8_lossy(&response.body).trim()),
    }
}

fn status_url(node: &NodeConfig) -> anyhow::Result<String> {
    if node.status.listen.is_empty() {
        bail!("status.listen is empty: without that listener there is nothing to ask");
    }
    let mut address = listen_address(&node.status.listen)
        .map_err(|error| anyhow::anyhow!("status.listen: {}: {error}", node.status.listen))?;
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Ok(format!("http://{address}"))
}
