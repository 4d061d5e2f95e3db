//! After a change of protocol: bytes both ways until both sides have ended.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::Framing;

use crate::connection::Connection;
use crate::relay::Link;
use crate::ties::Tie;
use crate::transfer::{Ending, Transfer};

/// Bytes from the client and to the client.
type Bytes = (u64, u64);

/// Runs until both sides have ended, either fails, nothing moved for `idle_timeout_ms`, or what it is tied to
/// has changed.
/// `opening` holds the head that tells the client of the change.
pub(crate) async fn run(
    conn: &mut Connection,
    link: &mut Link,
    opening: Transfer,
    idle_timeout_ms: u64,
    tie: Option<Rc<Tie>>,
) -> Bytes {
    let mut tunnel = Tunnel {
        opening,
        up: Transfer::new(Framing::Close, Ending::Known, Vec::new(), 0),
        down: Transfer::new(Framing::Close, Ending::Known, Vec::new(), 0),
        up_shut: false,
        down_shut: false,
        progress: u64::MAX,
        idle_timeout_ms,
        tie,
    };
    poll_fn(|cx| tunnel.poll(cx, conn, link)).await;
    (tunnel.up.read_bytes, tunnel.down.sent_bytes + tunnel.opening.sent_bytes)
}

struct Tunnel {
    opening: Transfer,
    up: Transfer,
    down: Transfer,
    up_shut: bool,
    down_shut: bool,
    progress: u64,
    idle_timeout_ms: u64,
    tie: Option<Rc<Tie>>,
}

impl Tunnel {
    fn poll(&mut self, cx: &mut Context<'_>, conn: &mut Connection, link: &mut Link) -> Poll<()> {
        let buffers = &conn.worker.buffers;
        match self.opening.poll_flush(cx, &mut link.inbox, &mut conn.stream) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => return self.wait(cx, conn),
        }
        if !self.up_shut {
            let source = (&mut conn.stream, &mut conn.inbox);
            match self.up.poll(cx, buffers, source, &mut link.stream, &mut None) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.up_shut = link.stream.poll_shutdown(cx).is_ready(),
                Poll::Pending => {}
            }
        }
        if !self.down_shut {
            let source = (&mut link.stream, &mut link.inbox);
            match self.down.poll(cx, buffers, source, &mut conn.stream, &mut None) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.down_shut = conn.stream.poll_shutdown(cx).is_ready(),
                Poll::Pending => {}
            }
        }
        if self.up_shut && self.down_shut {
            return Poll::Ready(());
        }
        self.wait(cx, conn)
    }

    fn wait(&mut self, cx: &mut Context<'_>, conn: &mut Connection) -> Poll<()> {
        if conn.stream.given_up(cx).is_some() {
            return Poll::Ready(());
        }
        let progress = self.up.sent_bytes + self.down.sent_bytes;
        if progress != self.progress {
            self.progress = progress;
            conn.timer.set(self.idle_timeout_ms);
        }
        let is_untied = self.tie.as_ref().is_some_and(|tie| tie.is_over(cx));
        if is_untied || conn.timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}
