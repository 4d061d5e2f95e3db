//! The end of a connection whose client may still be sending.
//!
//! It is told that nothing more will come, then read from for a while: closing with unread data would reset the
//! connection and could destroy the answer on its way (RFC 9112 §9.6). Many clients read it only when all of their
//! body has left.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::clock;
use crate::connection::DownstreamConnection;
use crate::worker::Worker;

/// So long a client may send nothing, in milliseconds, as with NGINX (`lingering_timeout`).
const SILENCE_MS_MAX: u64 = 5000;
/// So long it may send, in milliseconds (`lingering_time`).
const ALL_MS_MAX: u64 = 30_000;
/// How many connections of a worker are waited for like that; further ones, and those of a worker that drains, have
/// [`SHORT_MS`] in all.
const LINGERING_MAX: usize = 1024;
const SHORT_MS: u64 = 1000;
/// What is thrown away before others have their turn.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// Ends a connection whose client may still be sending.
pub(super) async fn linger(mut conn: Box<DownstreamConnection>) {
    let worker = conn.worker.clone();
    let lingering = LingerGuard::enter(&worker);
    conn.inbox.consume(conn.inbox.len());
    let ends_ms = clock::now().mono_ms() + ALL_MS_MAX;
    let mut wait = LingerWait { ends_ms, is_short: false, is_shut: false };
    if lingering.is_one_of_many() {
        wait.shorten();
    }
    wait.go_on(&conn);
    poll_fn(|cx| wait.poll(cx, &mut conn)).await;
    conn.inbox.consume(conn.inbox.len());
    conn.inbox.release(&worker.buffers);
}

struct LingerWait {
    ends_ms: u64,
    is_short: bool,
    /// The client was told that nothing more will come.
    is_shut: bool,
}

impl LingerWait {
    /// Waits for more; at most to the end of its time.
    fn go_on(&self, conn: &DownstreamConnection) {
        let left_ms = self.ends_ms.saturating_sub(clock::now().mono_ms());
        // None would be for ever.
        conn.timer.set(left_ms.clamp(1, SILENCE_MS_MAX));
    }

    fn shorten(&mut self) {
        self.is_short = true;
        self.ends_ms = self.ends_ms.min(clock::now().mono_ms() + SHORT_MS);
    }

    fn poll(&mut self, cx: &mut Context<'_>, conn: &mut DownstreamConnection) -> Poll<()> {
        let worker = conn.worker.clone();
        if worker.draining.get() && !self.is_short {
            self.shorten();
            self.go_on(conn);
        }
        let mut read = 0;
        while read < TURN_BYTES_MAX {
            if !self.is_shut {
                self.is_shut = conn.stream.poll_shutdown(cx).is_ready();
            }
            match conn.stream.poll_fill(cx, &mut conn.inbox, &worker.buffers) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(count)) => {
                    read += count;
                    conn.inbox.consume(conn.inbox.len());
                }
                Poll::Pending => {
                    conn.inbox.release(&worker.buffers);
                    if read > 0 {
                        self.go_on(conn);
                    }
                    return if conn.timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending };
                }
            }
        }
        if clock::now().mono_ms() >= self.ends_ms {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Counts a connection among those that linger.
struct LingerGuard(Rc<Worker>);

impl LingerGuard {
    fn enter(worker: &Rc<Worker>) -> LingerGuard {
        worker.lingering.set(worker.lingering.get() + 1);
        LingerGuard(worker.clone())
    }

    fn is_one_of_many(&self) -> bool {
        self.0.lingering.get() > LINGERING_MAX
    }
}

impl Drop for LingerGuard {
    fn drop(&mut self) {
        self.0.lingering.set(self.0.lingering.get() - 1);
    }
}
