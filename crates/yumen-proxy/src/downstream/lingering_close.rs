//! Lingering close: the end of a connection whose client may still be sending.
//!
//! The gateway shuts down its side, then reads and discards. A close with unread data would reset the
//! connection and could destroy the response in flight (RFC 9112 §9.6). Many clients read the response only
//! after they have sent the whole body.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::exchange::connection::DownstreamConnection;
use crate::runtime::clock;
use crate::worker::Worker;

/// Longest silence of the client, in milliseconds; NGINX `lingering_timeout`.
const SILENCE_MS_MAX: u64 = 5000;
/// Longest lingering close, in milliseconds; NGINX `lingering_time`.
const ALL_MS_MAX: u64 = 30_000;
/// Lingering connections of a worker that get the full time. Further ones, and those of a draining worker,
/// get [`SHORT_MS`].
const LINGERING_MAX: usize = 1024;
const SHORT_MS: u64 = 1000;
/// Bytes that are discarded per turn, before other connections are served.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// Discards input until the client closes or a time limit expires.
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
    /// Whether the gateway's side is shut down.
    is_shut: bool,
}

impl LingerWait {
    /// Restarts the silence timer, bounded by the end of the lingering close.
    fn go_on(&self, conn: &DownstreamConnection) {
        let left_ms = self.ends_ms.saturating_sub(clock::now().mono_ms());
        // A timer of 0 ms would be unset and never expire.
        conn.timer.set(left_ms.clamp(1, SILENCE_MS_MAX));
    }

    fn shorten(&mut self) {
        self.is_short = true;
        self.ends_ms = self.ends_ms.min(clock::now().mono_ms() + SHORT_MS);
    }

    fn poll(&mut self, cx: &mut Context<'_>, conn: &mut DownstreamConnection) -> Poll<()> {
        let worker = conn.worker.clone();
        if worker.admission.is_draining() && !self.is_short {
            self.shorten();
            self.go_on(conn);
        }
        let mut read = 0;
        while read < TURN_BYTES_MAX {
            // RFC 9112 §9.6: half-close first, then read.
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
        // The timer is not polled while input is available, so the end is checked per turn.
        if clock::now().mono_ms() >= self.ends_ms {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Counts a lingering connection of the worker until it is dropped.
struct LingerGuard(Rc<Worker>);

impl LingerGuard {
    fn enter(worker: &Rc<Worker>) -> LingerGuard {
        worker.admission.begin_lingering();
        LingerGuard(worker.clone())
    }

    fn is_one_of_many(&self) -> bool {
        self.0.admission.lingering() > LINGERING_MAX
    }
}

impl Drop for LingerGuard {
    fn drop(&mut self) {
        self.0.admission.end_lingering();
    }
}
