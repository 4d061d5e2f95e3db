//! `yumen top`: usage of a running gateway, once or continuously.
//!
//! The gateway exports sums since its start; differences, sort order and layout are computed here.

mod frame;
mod screen;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::client::{OperatorClient, OperatorTarget};
use super::output::{self, OutputReader};
use super::remote::RemoteArgs;
use frame::{SortOrder, TopFrame};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// URL of the status listener, which needs no key [default: the gateway of --admin or --data-dir, else
    /// http://127.0.0.1:9091]
    #[arg(long, value_name = "URL")]
    status: Option<String>,
    /// Seconds between updates; with --once, 0 means since the start
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    interval: f64,
    /// Print one table and exit
    #[arg(long)]
    once: bool,
    /// Sort by rate, latency, cpu or errors
    #[arg(long, value_enum, default_value_t = SortOrder::Rate)]
    sort: SortOrder,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const DEFAULT_STATUS: &str = "http://127.0.0.1:9091";

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 0.5".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0 to 3600 seconds".to_owned()) }
}

/// Shows the usage of the gateway at `args.status` until the user quits.
pub(crate) fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let by_status = |url: &str| OperatorClient::new(OperatorTarget::url(url)?, None);
    let client = match &args.status {
        Some(url) => by_status(url)?,
        None => args.remote.named_client()?.map_or_else(|| by_status(DEFAULT_STATUS), Ok)?,
    };
    let source = TopSource { client };
    let interval = Duration::from_secs_f64(args.interval);
    let is_live = !args.once && !args.remote.json && std::io::stdout().is_terminal();
    if is_live {
        screen::show(&source, interval.max(Duration::from_millis(100)), args.sort)?;
        return Ok(ExitCode::SUCCESS);
    }
    let once = args.once || !args.remote.json;
    let mut before = if interval.is_zero() { Value::Null } else { source.look()? };
    loop {
        std::thread::sleep(interval);
        let now = source.look()?;
        let frame = TopFrame::between(&before, &now, args.sort);
        let text =
            if args.remote.json { format!("{}\n", frame.json()) } else { table::render(&frame, usize::MAX) };
        let reader = output::print(&text)?;
        if once || interval.is_zero() || reader == OutputReader::Gone {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
    }
}

/// Source of the sums.
struct TopSource {
    client: OperatorClient,
}

impl TopSource {
    fn look(&self) -> anyhow::Result<Value> {
        let document = self.client.get("/yumen/v1/top")?.json().context("/yumen/v1/top")?;
        // Another server may answer every path in JSON.
        if !document["uptime_ms"].is_number() {
            bail!(
                "no status listener of yumen answers at {}: give its URL by --status",
                self.client.target()
            );
        }
        Ok(document)
    }
}
