//! Whether the first configuration is in force: listeners open and the node is ready by this, and by nothing else.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;

use super::ControlHandle;

/// The addresses that the first configuration names delay the listeners by at most this.
const FIRST_ADDRESSES_WITHIN: Duration = Duration::from_millis(1500);

/// How far a process has come with its first configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstPublication {
    /// The store is being read, or its content compiled.
    Awaited,
    /// The store has no configuration that can be used. A later one may still come.
    Absent,
    /// The content of the store is in force, and its problems are known.
    InForce,
}

impl ControlHandle {
    /// Whether the content of the store is in force; otherwise the reason.
    pub(crate) fn readiness(&self) -> Result<(), &'static str> {
        match *self.first.borrow() {
            FirstPublication::InForce => Ok(()),
            FirstPublication::Awaited => Err("the configuration has not been compiled yet"),
            FirstPublication::Absent => Err("no configuration that can be used has been found yet"),
        }
    }

    /// Blocks until the first configuration is in force, however long that takes, or it is certain that there is none;
    /// then for a bounded time until the addresses that it names are known.
    pub(crate) fn wait_for_first_publication(&self, runtime: &Runtime) -> anyhow::Result<()> {
        const LOOK_EVERY: Duration = Duration::from_micros(500);
        let mut first = self.first.clone();
        let decided = runtime
            .block_on(async { first.wait_for(|first| *first != FirstPublication::Awaited).await.map(drop) });
        decided.context("the control thread has ended before a configuration was in force")?;
        let published = Instant::now();
        while self.unresolved() > 0 && published.elapsed() < FIRST_ADDRESSES_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
