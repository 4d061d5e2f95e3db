//! The phases of a stream: the plugins of its route that take part in them.

use std::future::poll_fn;

use yumen_plugin::{Chain, Exchange, Instance, Outcome, Preread, Step};

use super::{Fault, Front};
use crate::timers::until;
use crate::worker::Worker;

/// How many first bytes plugins may look at.
const PREREAD_BYTES_MAX: usize = 16 * 1024;

/// Asks the plugins of the access phase, in order, whether the stream may go on.
pub(super) async fn access(chain: &Chain, ex: &mut Exchange<'_>) -> Result<(), Fault> {
    for instance in chain.access() {
        if !admits(ex, instance)? {
            continue;
        }
        let mut step = instance.plugin.access(ex);
        loop {
            step = match step {
                Step::Continue => break,
                Step::Respond(response) => return Err(Fault::Refused(response.status)),
                // A stream has no body to give.
                Step::NeedBody { .. } => return Err(Fault::Refused(503)),
                Step::Wait(later) => later.await,
            };
        }
    }
    Ok(())
}

/// Whether a plugin runs that may still refuse the stream, if that can be told.
fn admits(ex: &mut Exchange<'_>, instance: &Instance) -> Result<bool, Fault> {
    let admits = ex.admits(instance);
    decided(ex).map(|()| admits)
}

/// Nothing is dialled for a stream of which a pattern left open what its guards would say.
pub(super) fn decided(ex: &Exchange<'_>) -> Result<(), Fault> {
    if ex.is_undecided() { Err(Fault::Refused(500)) } else { Ok(()) }
}

/// Shows plugins the first bytes until each has seen enough.
pub(super) async fn preread(
    worker: &Worker,
    front: &mut Front,
    chain: &Chain,
    ex: &mut Exchange<'_>,
) -> Result<(), Fault> {
    front.timer.set(worker.settings.head_timeout_ms);
    loop {
        if look(chain, ex, front.inbox.bytes())? {
            return Ok(());
        }
        if front.inbox.len() >= PREREAD_BYTES_MAX {
            return Err(Fault::Protocol);
        }
        fill(worker, front).await?;
    }
}

/// Whether all plugins have seen enough of a stream that begins with `bytes`.
pub(super) fn look(chain: &Chain, ex: &mut Exchange<'_>, bytes: &[u8]) -> Result<bool, Fault> {
    for instance in chain.preread() {
        if !admits(ex, instance)? {
            continue;
        }
        match instance.plugin.preread(ex, bytes) {
            Preread::Continue => {}
            Preread::NeedMore => return Ok(false),
            Preread::Refuse(reason) => {
                tracing::debug!(plugin = instance.name, reason, "stream refused by its first bytes");
                return Err(Fault::Protocol);
            }
        }
    }
    Ok(true)
}

/// Reads more of what the client sends first; the caller has set the deadline.
pub(super) async fn fill(worker: &Worker, front: &mut Front) -> Result<(), Fault> {
    let Front { stream, inbox, timer } = front;
    let reading = std::pin::pin!(poll_fn(|cx| stream.poll_fill(cx, inbox, &worker.buffers)));
    let read = until(timer, reading).await;
    match read {
        None => Err(Fault::ClientTimeout),
        Some(Ok(0) | Err(_)) => Err(Fault::ClientGone),
        Some(Ok(_)) => Ok(()),
    }
}

/// Tells the plugins of the log phase how the stream ended.
pub(super) fn log(chain: &Chain, ex: &mut Exchange<'_>, outcome: &Outcome<'_>) {
    for instance in chain.log() {
        if ex.admits(instance) {
            instance.plugin.log(ex, outcome);
        }
    }
}
