//! State of the first publication, which alone decides when listeners open and the node is ready.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;

use super::ControlHandle;

/// Maximum delay of the listeners for the addresses that the first configuration names.
const FIRST_ADDRESSES_WITHIN: Duration = Duration::from_millis(1500);
/// Maximum delay for the secrets: an object without its secret refuses requests.
const FIRST_SECRETS_WITHIN: Duration = Duration::from_secs(5);

/// Progress of the first publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstPublication {
    /// The store is being read, or its content is being compiled.
    Awaited,
    /// The store has no usable configuration. A later one may still arrive.
    Absent,
    /// The content of the store is published, with its problems.
    InForce,
}

impl ControlHandle {
    /// `Ok` once the content of the store is published; otherwise the reason.
    pub(crate) fn readiness(&self) -> Result<(), &'static str> {
        match *self.first.borrow() {
            FirstPublication::InForce => Ok(()),
            FirstPublication::Awaited => Err("the configuration has not been compiled yet"),
            FirstPublication::Absent => Err("no configuration that can be used has been found yet"),
        }
    }

    /// Blocks, without a bound, until the first configuration is published or known to be absent. Then waits
    /// at most `FIRST_ADDRESSES_WITHIN` for the addresses that it names, and `FIRST_SECRETS_WITHIN` for its secrets.
    pub(crate) fn wait_for_first_publication(&self, runtime: &Runtime) -> anyhow::Result<()> {
        const LOOK_EVERY: Duration = Duration::from_micros(500);
        let mut first = self.first.clone();
        let decided = runtime
            .block_on(async { first.wait_for(|first| *first != FirstPublication::Awaited).await.map(drop) });
        decided.context("the control thread has ended before a configuration was in force")?;
        let published = Instant::now();
        let waits = || {
            let elapsed = published.elapsed();
            self.unresolved() > 0 && elapsed < FIRST_ADDRESSES_WITHIN
                || self.awaited_secrets() > 0 && elapsed < FIRST_SECRETS_WITHIN
        };
        while waits() {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
