//! The phases of a stream: the plugins of its route that take part in them.

use std::future::poll_fn;

use yumen_plugin::{Exchange, ExchangeOutcome, PluginChain, PluginInstance, PrereadStep, Step};

use super::{Front, StreamFault};
use crate::timers::until;
use crate::worker::Worker;

/// How many first bytes plugins may look at.
const PREREAD_BYTES_MAX: usize = 16 * 1024;

/// Asks the plugins of the access phase, in order, whether the stream may go on.
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
                // A stream has no body to give.
                Step::NeedBody { .. } => return Err(StreamFault::Refused(503)),
                Step::Wait(later) => later.await,
            };
        }
    }
    Ok(())
}

/// Whether a plugin runs that may still refuse the stream, if that can be told.
fn admits(ex: &mut Exchange<'_>, instance: &PluginInstance) -> Result<bool, StreamFault> {
    let admits = ex.admits(instance);
    decided(ex).map(|()| admits)
}

/// Nothing is dialled for a stream of which a pattern left open what its guards would say.
pub(super) fn decided(ex: &Exchange<'_>) -> Result<(), StreamFault> {
    if ex.is_undecided() { Err(StreamFault::Refused(500)) } else { Ok(()) }
}

/// Shows plugins the first bytes until each has seen enough.
pub(super) async fn preread(
    worker: &Worker,
    front: &mut Front,
    chain: &PluginChain,
    ex: &mut Exchange<'_>,
) -> Result<(), StreamFault> {
    front.timer.set(worker.settings.head_timeout_ms);
    loop {
        if look(chain, ex, front.inbox.bytes())? {
            return Ok(());
        }
        if front.inbox.len() >= PREREAD_BYTES_MAX {
            return Err(StreamFault::Protocol);
        }
        fill(worker, front).await?;
    }
}

/// Whether all plugins have seen enough of a stream that begins with `bytes`.
pub(super) fn look(chain: &PluginChain, ex: &mut Exchange<'_>, bytes: &[u8]) -> Result<bool, StreamFault> {
    for instance in chain.preread() {
        if !admits(ex, instance)? {
            continue;
        }
        match instance.plugin.preread(ex, bytes) {
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

/// Reads more of what the client sends first; the caller has set the deadline.
pub(super) async fn fill(worker: &Worker, front: &mut Front) -> Result<(), StreamFault> {
    let Front { stream, inbox, timer } = front;
    let reading = std::pin::pin!(poll_fn(|cx| stream.poll_fill(cx, inbox, &worker.buffers)));
    let read = until(timer, reading).await;
    match read {
        None => Err(StreamFault::ClientTimeout),
        Some(Ok(0) | Err(_)) => Err(StreamFault::ClientGone),
        Some(Ok(_)) => Ok(()),
    }
}

/// Tells the plugins of the log phase how the stream ended.
pub(super) fn log(chain: &PluginChain, ex: &mut Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
    for instance in chain.log() {
        if ex.admits(instance) {
            instance.plugin.log(ex, outcome);
        }
    }
}
