//! Waiting for an endpoint on behalf of a client, who may leave meanwhile.
//!
//! On a connection of its own, a client that leaves and one that has only no more to say look alike: both have
//! sent their end. The first is waited for no longer than the setting says, so the second is, too.

use std::task::{Context, Poll};

use crate::clock;
use crate::connection::DownstreamConnection;
use crate::fault::FaultKind;
use crate::upstream::wait::AttemptWait;

/// Until when is waited.
pub(crate) struct Wait {
    until_ms: u64,
    /// When the client is looked at next.
    look_at_ms: u64,
}

/// What a wait may end with.
pub(crate) enum WaitEnd {
    /// It took too long.
    Timeout,
    /// Nobody waits for the answer any more.
    ClientLeft,
}

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait { until_ms: u64::MAX, look_at_ms: u64::MAX }
    }

    /// One that has begun.
    pub(crate) fn begun(conn: &DownstreamConnection, timeout_ms: u64) -> Wait {
        let mut wait = Wait::new();
        wait.begin(conn, timeout_ms);
        wait
    }

    /// Waits so many milliseconds from now; 0 is without end.
    #[inline]
    pub(crate) fn begin(&mut self, conn: &DownstreamConnection, timeout_ms: u64) {
        let now_ms = clock::now().mono_ms();
        self.look_at_ms = next_look_ms(conn, now_ms);
        self.extend_from(conn, timeout_ms, now_ms);
    }

    /// The same for an endpoint that has said something of which the client got nothing: a client that has left would
    /// not have noticed, and is looked at no later for it.
    #[inline]
    pub(crate) fn extend(&mut self, conn: &DownstreamConnection, timeout_ms: u64) {
        self.extend_from(conn, timeout_ms, clock::now().mono_ms());
    }

    fn extend_from(&mut self, conn: &DownstreamConnection, timeout_ms: u64, now_ms: u64) {
        self.until_ms = if timeout_ms == 0 { u64::MAX } else { now_ms.saturating_add(timeout_ms) };
        // A look that is due happens when this wait is polled, by the time that was set for it.
        if now_ms < self.look_at_ms {
            self.set_timer(conn, now_ms);
        }
    }

    /// What the wait has ended with, if it has; otherwise the task is woken to ask again. `looks` says that the
    /// client may leave unnoticed.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &DownstreamConnection,
        looks: bool,
    ) -> Option<WaitEnd> {
        if conn.timer.is_over(cx) { self.look(cx, conn, looks) } else { None }
    }

    #[cold]
    fn look(&mut self, cx: &mut Context<'_>, conn: &DownstreamConnection, looks: bool) -> Option<WaitEnd> {
        loop {
            let now_ms = clock::now().mono_ms();
            let until_ms = conn.timer.cap_ms().map_or(self.until_ms, |cap_ms| self.until_ms.min(cap_ms));
            if now_ms >= until_ms {
                return Some(WaitEnd::Timeout);
            }
            if looks && conn.stream.has_left() {
                return Some(WaitEnd::ClientLeft);
            }
            self.look_at_ms = next_look_ms(conn, now_ms);
            self.set_timer(conn, now_ms);
            if !conn.timer.is_over(cx) {
                return None;
            }
        }
    }

    /// Ready where the time or the client ends the wait, with what to call that; `late` is what to call the first.
    pub(crate) fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut DownstreamConnection,
        late: FaultKind,
    ) -> Poll<FaultKind> {
        if let Some(kind) = conn.stream.client_gone(cx) {
            return Poll::Ready(kind);
        }
        match self.poll(cx, conn, true) {
            None => Poll::Pending,
            Some(WaitEnd::Timeout) => Poll::Ready(late),
            Some(WaitEnd::ClientLeft) => Poll::Ready(FaultKind::ClientGone),
        }
    }

    /// Has the task woken for the next look, or the end of the wait.
    fn set_timer(&self, conn: &DownstreamConnection, now_ms: u64) {
        let left_ms = self.until_ms.min(self.look_at_ms).saturating_sub(now_ms);
        // Without either it is never.
        conn.timer.set(Some(left_ms).filter(|ms| *ms < u64::MAX / 2).unwrap_or(0));
    }
}

fn next_look_ms(conn: &DownstreamConnection, now_ms: u64) -> u64 {
    match conn.worker.settings.half_closed_ms {
        0 => u64::MAX,
        period_ms => now_ms.saturating_add(period_ms),
    }
}

/// The wait of an attempt on behalf of a client.
pub(crate) struct ClientWait<'a> {
    conn: &'a mut DownstreamConnection,
    wait: Wait,
}

impl ClientWait<'_> {
    pub(crate) fn new(conn: &mut DownstreamConnection) -> ClientWait<'_> {
        ClientWait { conn, wait: Wait::new() }
    }
}

impl AttemptWait for ClientWait<'_> {
    fn start(&mut self, timeout_ms: u64) {
        self.wait.begin(self.conn, timeout_ms);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, late: FaultKind) -> Poll<FaultKind> {
        self.wait.poll_end(cx, self.conn, late)
    }
}
