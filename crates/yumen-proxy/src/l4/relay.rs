//! Copies bytes between two streams in bounded memory until both directions have ended.
//!
//! The end of one direction does not end the other. This file must not know protocols.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::StreamFault;
use crate::copy::one_way_copy::{BidirectionalCopy, CopySide};
use crate::copy::tunnel_binding::TunnelBinding;
use crate::runtime::timers::Timer;
use crate::transport::stream::TransportStream;
use crate::worker::Worker;

/// Both directions of a TCP stream, and the route binding that may end it.
pub(super) struct Relay {
    pub(super) pair: BidirectionalCopy,
    pub(super) tie: Option<Rc<TunnelBinding>>,
}

impl Relay {
    /// Returns the bytes from the client and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.pair.up.bytes(), self.pair.down.bytes())
    }

    /// Copies until both directions have ended, a side fails, the idle timeout expires, or the bound
    /// configuration changes. The bytes that a side sent before its failure have reached the other by then.
    pub(super) async fn run(
        &mut self,
        worker: &Worker,
        timer: &Timer,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
    ) -> Result<(), StreamFault> {
        let ended = poll_fn(|cx| self.poll(cx, worker, timer, client, endpoint)).await;
        // A reset discards bytes that the kernel has yet to send, so their acknowledgement comes first
        // (decision 46).
        self.pair.settle(worker.copy_context(), client, endpoint).await;
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
        if self.pair.poll(cx, worker.copy_context(), client, endpoint, None).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.tie.as_ref().is_some_and(|tie| tie.is_over(cx)) {
            return Poll::Ready(Err(StreamFault::Changed));
        }
        self.pair.poll_silence(cx, worker.copy_context(), timer).map(|()| Err(StreamFault::Idle))
    }
}
