//! Both directions between a client and an endpoint, with their idle timeouts.
//!
//! A side that takes no more bytes has failed; the bytes it sent earlier are still forwarded. This file must
//! not know protocols.

use std::task::{Context, Poll};

use super::{OneWayCopy, WatchedFrames};
use crate::copy::CopyContext;
use crate::copy::splice::CopyFailure;
use crate::runtime::backlog::{BacklogEntry, WaitingBytes};
use crate::runtime::buffer::Inbox;
use crate::runtime::clock;
use crate::runtime::timers::Timer;
use crate::transport::stream::TransportStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopySide {
    Client,
    Endpoint,
}

/// The copies of both directions.
pub(crate) struct BidirectionalCopy {
    pub(crate) up: OneWayCopy,
    pub(crate) down: OneWayCopy,
    /// The side that failed first.
    broken: Option<CopySide>,
    /// Idle timeout while both sides are open, in milliseconds.
    idle_ms: u64,
    /// The state at the last restart of the idle timeout; `None` before the first.
    progress: Option<CopyProgress>,
    backlog: Option<BacklogEntry>,
}

/// Progress of both directions, which restarts the idle timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyProgress {
    bytes: u64,
    /// Whether one direction has ended.
    is_half_closed: bool,
}

/// The frame trackers of both directions.
pub(crate) struct WatchedTunnel<'f> {
    pub(crate) up: WatchedFrames<'f>,
    pub(crate) down: WatchedFrames<'f>,
}

impl BidirectionalCopy {
    /// Creates the copies with the bytes already read from client and endpoint.
    pub(crate) fn new(from_client: Inbox, from_endpoint: Inbox, idle_ms: u64) -> BidirectionalCopy {
        let (up, down) = (OneWayCopy::new(from_client), OneWayCopy::new(from_endpoint));
        BidirectionalCopy { up, down, broken: None, idle_ms, progress: None, backlog: None }
    }

    /// Returns the side that failed first.
    pub(crate) fn broken(&self) -> Option<CopySide> {
        self.broken
    }

    /// Whether both directions have ended without a failure.
    pub(crate) fn is_whole(&self) -> bool {
        self.broken.is_none() && self.up.is_shut() && self.down.is_shut()
    }

    /// Copies in both directions; ready when no bytes are left to copy.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
        watched: Option<WatchedTunnel<'_>>,
    ) -> Poll<()> {
        let (mut watched_up, mut watched_down) = watched.map(|both| (both.up, both.down)).unzip();
        let up = match self.up.poll(cx, worker, client, endpoint, &mut watched_up) {
            Poll::Ready(Err(CopyFailure::Source)) => return self.end_by(CopySide::Client),
            // The endpoint takes no more bytes, but those that it has sent still reach the client (decision
            // 46).
            Poll::Ready(Err(CopyFailure::Sink)) => self.leave_out(worker, CopySide::Endpoint),
            polled => polled.is_ready(),
        };
        let down = match self.down.poll(cx, worker, endpoint, client, &mut watched_down) {
            Poll::Ready(Err(CopyFailure::Source)) => return self.end_by(CopySide::Endpoint),
            Poll::Ready(Err(CopyFailure::Sink)) => self.leave_out(worker, CopySide::Client),
            polled => polled.is_ready(),
        };
        if up && down {
            return Poll::Ready(());
        }
        let backlog_bytes =
            self.up.backlog_bytes(client, endpoint) + self.down.backlog_bytes(endpoint, client);
        if backlog_bytes == 0 && self.backlog.is_none() {
            return Poll::Pending;
        }
        self.poll_backlog(cx, worker, backlog_bytes)
    }

    /// Ready when the bytes that wait for a side exceed their limit.
    #[cold]
    fn poll_backlog(&mut self, cx: &Context<'_>, worker: CopyContext<'_>, backlog_bytes: usize) -> Poll<()> {
        let taken_bytes = self.up.bytes() + self.down.bytes();
        let waiting = WaitingBytes { bytes: backlog_bytes, taken_bytes };
        if !worker.buffers.backlog.note(&mut self.backlog, cx, waiting, clock::now().mono_ms()) {
            return Poll::Pending;
        }
        let side = if self.down.waits_for_sink() { CopySide::Client } else { CopySide::Endpoint };
        self.end_by(side)
    }

    /// Ends both directions after the failure of a side; its bytes have been forwarded.
    #[cold]
    fn end_by(&mut self, side: CopySide) -> Poll<()> {
        self.broken.get_or_insert(side);
        Poll::Ready(())
    }

    /// Ends the direction to a side that takes no more bytes.
    #[cold]
    fn leave_out(&mut self, worker: CopyContext<'_>, side: CopySide) -> bool {
        self.broken.get_or_insert(side);
        match side {
            CopySide::Client => self.down.give_up(worker),
            CopySide::Endpoint => self.up.give_up(worker),
        }
        true
    }

    /// Ready when the idle timeout has expired.
    #[inline]
    pub(crate) fn poll_silence(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        timer: &Timer,
    ) -> Poll<()> {
        let is_half_closed = self.up.is_shut() || self.down.is_shut();
        let progress = Some(CopyProgress { bytes: self.up.bytes() + self.down.bytes(), is_half_closed });
        if progress != self.progress {
            self.progress = progress;
            timer.set(if is_half_closed { self.half_closed_ms(worker) } else { self.idle_ms });
        }
        if timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the idle timeout after one direction has ended, in milliseconds. A side that has ended may
    /// never send again, and after a failure only buffered bytes are left.
    #[cold]
    fn half_closed_ms(&self, worker: CopyContext<'_>) -> u64 {
        let settings = worker.settings;
        let bounds = [settings.streams.half_closed_ms, self.broken.map_or(0, |_| settings.timeouts.send_ms)];
        bounds.into_iter().filter(|bound_ms| *bound_ms > 0).fold(self.idle_ms, u64::min)
    }

    /// Waits until the remaining side has acknowledged the bytes that the failed side sent.
    pub(crate) async fn settle(
        &self,
        worker: CopyContext<'_>,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
    ) {
        let remaining = match self.broken {
            Some(CopySide::Client) => endpoint,
            Some(CopySide::Endpoint) => client,
            None => return,
        };
        remaining.settle(worker.timers, worker.settings.timeouts.send_ms).await;
    }
}
