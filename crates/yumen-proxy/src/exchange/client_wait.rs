//! The wait for an endpoint on behalf of a client that may leave meanwhile.
//!
//! A closed and a half-closed TCP connection of a client look alike: both have sent FIN. The wait checks
//! every `half_closed_ms`, so a half-closed client is not waited for longer than that either.

use std::task::{Context, Poll};

use crate::exchange::connection::DownstreamConnection;
use crate::fault::FaultKind;
use crate::runtime::clock;
use crate::upstream::wait::AttemptWait;

/// State of a wait.
pub(crate) struct Wait {
    until_ms: u64,
    /// Time of the next check of the client.
    look_at_ms: u64,
}

/// Reason that a wait ended.
pub(crate) enum WaitEnd {
    /// The timeout expired.
    Timeout,
    /// The client closed its connection.
    ClientLeft,
}

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait { until_ms: u64::MAX, look_at_ms: u64::MAX }
    }

    /// Creates a wait and begins it.
    pub(crate) fn begun(conn: &DownstreamConnection, timeout_ms: u64) -> Wait {
        let mut wait = Wait::new();
        wait.begin(conn, timeout_ms);
        wait
    }

    /// Begins to wait for `timeout_ms` milliseconds; 0 means no timeout.
    #[inline]
    pub(crate) fn begin(&mut self, conn: &DownstreamConnection, timeout_ms: u64) {
        let now_ms = clock::now().mono_ms();
        self.look_at_ms = next_look_ms(conn, now_ms);
        self.extend_from(conn, timeout_ms, now_ms);
    }

    /// Restarts the timeout when the endpoint has sent bytes of which the client received none. The check of
    /// the client is not postponed: no write could have detected its close.
    #[inline]
    pub(crate) fn extend(&mut self, conn: &DownstreamConnection, timeout_ms: u64) {
        self.extend_from(conn, timeout_ms, clock::now().mono_ms());
    }

    fn extend_from(&mut self, conn: &DownstreamConnection, timeout_ms: u64, now_ms: u64) {
        self.until_ms = if timeout_ms == 0 { u64::MAX } else { now_ms.saturating_add(timeout_ms) };
        // A check that is due runs at the next poll, on the timer that was set for it.
        if now_ms < self.look_at_ms {
            self.set_timer(conn, now_ms);
        }
    }

    /// Reason that the wait has ended, if so; otherwise the task is registered. `looks` enables the check of
    /// the client.
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

    /// Ready with a fault when the timeout or the client ends the wait; `late` is the fault of a timeout.
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

    /// Sets the timer to the next check or the end of the wait.
    fn set_timer(&self, conn: &DownstreamConnection, now_ms: u64) {
        let left_ms = self.until_ms.min(self.look_at_ms).saturating_sub(now_ms);
        // 0 unsets the timer: without timeout and checks the wait has no end.
        conn.timer.set(Some(left_ms).filter(|ms| *ms < u64::MAX / 2).unwrap_or(0));
    }
}

fn next_look_ms(conn: &DownstreamConnection, now_ms: u64) -> u64 {
    match conn.worker.settings.timeouts.half_closed_ms {
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

    fn extend(&mut self, timeout_ms: u64) {
        self.wait.extend(self.conn, timeout_ms);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, late: FaultKind) -> Poll<FaultKind> {
        self.wait.poll_end(cx, self.conn, late)
    }
}
