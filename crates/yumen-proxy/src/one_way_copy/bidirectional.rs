//! Both directions between a client and an endpoint, and how long they may be silent.
//!
//! A side that takes no more has broken off; what it said before still goes to the other. Knows no protocol.

use std::task::{Context, Poll};

use super::{CopyFailure, OneWayCopy, WatchedFrames};
use crate::backlog::BacklogEntry;
use crate::buffer::Inbox;
use crate::clock;
use crate::stream::TransportStream;
use crate::timers::Timer;
use crate::worker::Worker;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopySide {
    Client,
    Endpoint,
}

/// Two directions, one against the other.
pub(crate) struct BidirectionalCopy {
    pub(crate) up: OneWayCopy,
    pub(crate) down: OneWayCopy,
    /// Who broke off first.
    broken: Option<CopySide>,
    /// How long nothing may move while both sides are there, in milliseconds.
    idle_ms: u64,
    /// Bytes that went on, and whether one direction was over, when last something moved.
    progress: (u64, bool),
    backlog: Option<BacklogEntry>,
}

impl BidirectionalCopy {
    /// What waits was read of the client and of the endpoint, and goes first.
    pub(crate) fn new(from_client: Inbox, from_endpoint: Inbox, idle_ms: u64) -> BidirectionalCopy {
        let (up, down) = (OneWayCopy::new(from_client), OneWayCopy::new(from_endpoint));
        BidirectionalCopy { up, down, broken: None, idle_ms, progress: (u64::MAX, false), backlog: None }
    }

    /// Who broke off, if one did.
    pub(crate) fn broken(&self) -> Option<CopySide> {
        self.broken
    }

    /// Whether both sides have said all they had to say, and know it of each other.
    pub(crate) fn is_whole(&self) -> bool {
        self.broken.is_none() && self.up.is_shut() && self.down.is_shut()
    }

    /// Moves bytes both ways; ready when there is nothing more to move.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        (client, endpoint): (&mut TransportStream, &mut TransportStream),
        watched: Option<(WatchedFrames<'_>, WatchedFrames<'_>)>,
    ) -> Poll<()> {
        let (mut watched_up, mut watched_down) = watched.unzip();
        let up = match self.up.poll(cx, worker, (client, endpoint), &mut watched_up) {
            Poll::Ready(Err(CopyFailure::Source)) => return self.end_by(CopySide::Client),
            Poll::Ready(Err(CopyFailure::Sink)) => self.leave_out(worker, CopySide::Endpoint),
            polled => polled.is_ready(),
        };
        let down = match self.down.poll(cx, worker, (endpoint, client), &mut watched_down) {
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

    /// Ready when what waits for a side is to wait no longer.
    #[cold]
    fn poll_backlog(&mut self, cx: &Context<'_>, worker: &Worker, backlog_bytes: usize) -> Poll<()> {
        let (now_ms, moved_bytes) = (clock::now().mono_ms(), self.up.bytes() + self.down.bytes());
        let noted = (backlog_bytes, moved_bytes);
        if !worker.buffers.backlog.note(&mut self.backlog, cx, noted, now_ms) {
            return Poll::Pending;
        }
        let side = if self.down.waits_for_sink() { CopySide::Client } else { CopySide::Endpoint };
        self.end_by(side)
    }

    /// A side has broken off, and all it said before was passed on.
    #[cold]
    fn end_by(&mut self, side: CopySide) -> Poll<()> {
        self.broken.get_or_insert(side);
        Poll::Ready(())
    }

    /// A side takes no more: the direction to it is over.
    #[cold]
    fn leave_out(&mut self, worker: &Worker, side: CopySide) -> bool {
        self.broken.get_or_insert(side);
        match side {
            CopySide::Client => self.down.give_up(worker),
            CopySide::Endpoint => self.up.give_up(worker),
        }
        true
    }

    /// Ready when nothing has moved for too long.
    #[inline]
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>, worker: &Worker, timer: &Timer) -> Poll<()> {
        let is_half_closed = self.up.is_shut() || self.down.is_shut();
        let progress = (self.up.bytes() + self.down.bytes(), is_half_closed);
        if progress != self.progress {
            self.progress = progress;
            timer.set(if is_half_closed { self.half_closed_ms(worker) } else { self.idle_ms });
        }
        if timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// How long nothing may move once one direction is over: a side that has ended may be gone for good, and of one
    /// that has broken off nothing more comes than waits to be taken.
    #[cold]
    fn half_closed_ms(&self, worker: &Worker) -> u64 {
        let settings = &worker.settings;
        let bounds = [settings.stream_half_closed_ms, self.broken.map_or(0, |_| settings.send_timeout_ms)];
        bounds.into_iter().filter(|bound_ms| *bound_ms > 0).fold(self.idle_ms, u64::min)
    }

    /// Waits until the side that is there has what the other said before it broke off.
    pub(crate) async fn settle(
        &self,
        worker: &Worker,
        client: &mut TransportStream,
        endpoint: &mut TransportStream,
    ) {
        let there = match self.broken {
            Some(CopySide::Client) => endpoint,
            Some(CopySide::Endpoint) => client,
            None => return,
        };
        there.settle(&worker.timers, worker.settings.send_timeout_ms).await;
    }
}
