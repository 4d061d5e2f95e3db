//! Bytes both ways between two streams, each way in bounded memory, until both have ended.
//!
//! What is at its end in one direction is ended there only; the other goes on.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::StreamFault;
use crate::one_way_copy::{BidirectionalCopy, CopySide};
use crate::stream::TransportStream;
use crate::timers::Timer;
use crate::tunnel_binding::TunnelBinding;
use crate::worker::Worker;

/// Both directions of a stream, and what ends it beside its two sides.
pub(super) struct Relay {
    pub(super) pair: BidirectionalCopy,
    pub(super) tie: Option<Rc<TunnelBinding>>,
}

impl Relay {
    /// Bytes from the client and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.pair.up.bytes(), self.pair.down.bytes())
    }

    /// Runs until both directions have ended, a side fails, nothing moves for too long, or what it is tied to
    /// changes. What one side said before it failed is with the other by then.
    pub(super) async fn run(
        &mut self,
        worker: &Worker,
        timer: &Timer,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
    ) -> Result<(), StreamFault> {
        let ended = poll_fn(|cx| self.poll(cx, worker, timer, client, endpoint)).await;
        self.pair.settle(worker, client, endpoint).await;
        match self.pair.broken() {
            Some(CopySide::Client) => Err(StreamFault::ClientReset),
            Some(CopySide::Endpoint) => Err(StreamFault::UpstreamReset),
            None => ended,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        timer: &Timer,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
    ) -> Poll<Result<(), StreamFault>> {
        if self.pair.poll(cx, worker, (client, endpoint), None).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.tie.as_ref().is_some_and(|tie| tie.is_over(cx)) {
            return Poll::Ready(Err(StreamFault::Changed));
        }
        self.pair.poll_silence(cx, worker, timer).map(|()| Err(StreamFault::Idle))
    }
}
