//! Bytes both ways between two streams, each way in bounded memory, until both have ended.
//!
//! What is at its end in one direction is ended there only; the other goes on.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::Fault;
use crate::buffer::Inbox;
use crate::direction::{Broken, Direction};
use crate::stream::Stream;
use crate::ties::Tie;
use crate::timers::Timer;
use crate::worker::Worker;

/// How long nothing may move, in milliseconds.
pub(super) struct Patience {
    pub(super) idle_ms: u64,
    /// Once one side has ended, which may be gone for good; 0 is as long as before.
    pub(super) half_closed_ms: u64,
}

impl Patience {
    fn ms(&self, is_half_closed: bool) -> u64 {
        let is_shorter = is_half_closed && self.half_closed_ms > 0;
        if is_shorter { self.idle_ms.min(self.half_closed_ms) } else { self.idle_ms }
    }
}

/// Both directions of a stream.
pub(super) struct Relay {
    up: Direction,
    down: Direction,
    patience: Patience,
    tie: Option<Rc<Tie>>,
    /// Bytes that went on, and whether one side had ended, when last something moved.
    progress: (u64, bool),
}

impl Relay {
    /// `waiting` was read of the client and goes to the endpoint first.
    pub(super) fn new(waiting: Inbox, patience: Patience, tie: Option<Rc<Tie>>) -> Relay {
        let (up, down) = (Direction::new(waiting), Direction::default());
        Relay { up, down, patience, tie, progress: (u64::MAX, false) }
    }

    /// Bytes from the client and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.up.bytes(), self.down.bytes())
    }

    /// Runs until both directions have ended, a side fails, nothing moves for too long, or what it is tied to
    /// changes.
    pub(super) async fn run(
        &mut self,
        worker: &Worker,
        timer: &Timer,
        client: &mut Stream,
        endpoint: &mut Stream,
    ) -> Result<(), Fault> {
        poll_fn(|cx| self.poll(cx, worker, timer, client, endpoint)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        timer: &Timer,
        client: &mut Stream,
        endpoint: &mut Stream,
    ) -> Poll<Result<(), Fault>> {
        let up = match self.up.poll(cx, worker, (client, endpoint), &mut None) {
            Poll::Ready(Err(Broken::Source)) => return Poll::Ready(Err(Fault::ClientReset)),
            Poll::Ready(Err(Broken::Sink)) => return Poll::Ready(Err(Fault::UpstreamReset)),
            up => up.is_ready(),
        };
        let down = match self.down.poll(cx, worker, (endpoint, client), &mut None) {
            Poll::Ready(Err(Broken::Source)) => return Poll::Ready(Err(Fault::UpstreamReset)),
            Poll::Ready(Err(Broken::Sink)) => return Poll::Ready(Err(Fault::ClientReset)),
            down => down.is_ready(),
        };
        if up && down {
            return Poll::Ready(Ok(()));
        }
        let progress = (self.up.bytes() + self.down.bytes(), up || down);
        if progress != self.progress {
            self.progress = progress;
            timer.set(self.patience.ms(progress.1));
        }
        if self.tie.as_ref().is_some_and(|tie| tie.is_over(cx)) {
            return Poll::Ready(Err(Fault::Changed));
        }
        if timer.is_over(cx) { Poll::Ready(Err(Fault::Idle)) } else { Poll::Pending }
    }
}
