//! The plugin phases of a stream: access, preread and log.

use std::future::poll_fn;

use yumen_plugin::{Exchange, ExchangeOutcome, PluginChain, PluginInstance, PrereadPhase, PrereadStep, Step};

use super::{L4Downstream, StreamFault};
use crate::runtime::timers::until;
use crate::worker::Worker;

/// Maximum number of first bytes that preread plugins can inspect.
const PREREAD_BYTES_MAX: usize = 16 * 1024;

/// Runs the access plugins in order; each may refuse the stream.
pub(super) async fn access(chain: &PluginChain, ex: &mut Exchange<'_>) -> Result<(), StreamFault> {
    for instance in chain.access() {
        if !admits(ex, instance)? {
            continue;
        }
        let mut step = instance.plugin.access(ex);
        loop {
            step = match step {
                Step::Continue => break,
                Step::Respond(response) => return Err(StreamFault::Refused(response.status)),
                // A TCP stream has no request body.
                Step::NeedBody { .. } => return Err(StreamFault::Refused(503)),
                Step::Wait(later) => later.await,
            };
        }
    }
    Ok(())
}

/// Whether the filter of a plugin admits the stream.
///
/// # Errors
///
/// [`StreamFault::Refused`] if a match was aborted: the decision of a guard is then unknown.
fn admits(ex: &mut Exchange<'_>, instance: &PluginInstance) -> Result<bool, StreamFault> {
    let admits = ex.admits(instance);
    decided(ex).map(|()| admits)
}

/// Refuses a stream after an aborted match, before any endpoint is dialled.
pub(super) fn decided(ex: &Exchange<'_>) -> Result<(), StreamFault> {
    if ex.is_undecided() { Err(StreamFault::Refused(500)) } else { Ok(()) }
}

/// Passes the first bytes to the preread plugins until none needs more.
pub(super) async fn preread(
    worker: &Worker,
    downstream: &mut L4Downstream,
    chain: &PluginChain,
    ex: &mut Exchange<'_>,
) -> Result<(), StreamFault> {
    downstream.timer.set(worker.settings.timeouts.head_ms);
    loop {
        if look(chain, ex, downstream.inbox.bytes())? {
            return Ok(());
        }
        if downstream.inbox.len() >= PREREAD_BYTES_MAX {
            return Err(StreamFault::Protocol);
        }
        fill(worker, downstream).await?;
    }
}

/// Runs the preread plugins on the first bytes; false if one needs more.
pub(super) fn look(chain: &PluginChain, ex: &mut Exchange<'_>, bytes: &[u8]) -> Result<bool, StreamFault> {
    for instance in chain.preread() {
        if !admits(ex, instance)? {
            continue;
        }
        match instance.plugin.preread(&mut PrereadPhase::new(ex), bytes) {
            PrereadStep::Continue => {}
            PrereadStep::NeedMore => return Ok(false),
            PrereadStep::Refuse(reason) => {
                tracing::debug!(plugin = instance.name, reason, "stream refused: unexpected first bytes");
                return Err(StreamFault::Protocol);
            }
        }
    }
    Ok(true)
}

/// Reads more of the client's first bytes. The caller has set the timer.
pub(super) async fn fill(worker: &Worker, downstream: &mut L4Downstream) -> Result<(), StreamFault> {
    let L4Downstream { stream, inbox, timer } = downstream;
    let reading = std::pin::pin!(poll_fn(|cx| stream.poll_fill(cx, inbox, &worker.buffers)));
    let read = until(timer, reading).await;
    match read {
        None => Err(StreamFault::ClientTimeout),
        Some(Ok(0) | Err(_)) => Err(StreamFault::ClientGone),
        Some(Ok(_)) => Ok(()),
    }
}

/// Runs the log plugins with the outcome of the stream.
pub(super) fn log(chain: &PluginChain, ex: &mut Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
    for instance in chain.log() {
        if ex.admits(instance) {
            instance.plugin.log(ex, outcome);
        }
    }
}
