//! `yumen top`: usage of a running gateway, once or continuously.
//!
//! The gateway exports sums since its start; differences, sort order and layout are computed here.

mod frame;
mod screen;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::cli::TopArgs;
use crate::client::OperatorClient;
use crate::output::{self, OutputReader};
pub(crate) use frame::SortOrder;
use frame::TopFrame;

/// Shows the usage of the gateway at `args.status` until the user quits.
pub(crate) fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let client = OperatorClient::new(&args.status, None)?;
    let source = TopSource { client };
    let interval = Duration::from_secs_f64(args.interval);
    let is_live = !args.once && !args.json && std::io::stdout().is_terminal();
    if is_live {
        screen::show(&source, interval.max(Duration::from_millis(100)), args.sort)?;
        return Ok(ExitCode::SUCCESS);
    }
    let once = args.once || !args.json;
    let mut before = if interval.is_zero() { Value::Null } else { source.look()? };
    loop {
        std::thread::sleep(interval);
        let now = source.look()?;
        let frame = TopFrame::between(&before, &now, args.sort);
        let text = if args.json { format!("{}\n", frame.json()) } else { table::render(&frame, usize::MAX) };
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
        self.client.get("/yumen/v1/top")?.json().context("/yumen/v1/top")
    }
}
