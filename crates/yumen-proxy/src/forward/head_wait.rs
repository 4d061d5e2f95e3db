//! Waiting for the head of an endpoint's answer, while the request's body may still be going out.
//!
//! Knows connections and transfers; which endpoint is asked, and whether another is, is decided elsewhere.

use std::task::{Context, Poll};

use yumen_http::ResponseHead;
use yumen_http::parse::{self, Parsed};
use yumen_snapshot::Timeouts;

use crate::connection::Connection;
use crate::fault::{Fault, Kind};
use crate::pace::{Pace, Rate};
use crate::stream::Stream;
use crate::tcp::Tcp;
use crate::transfer::Transfer;
use crate::upstream::connection::UpstreamConnection;
use crate::upstream::replay::RequestReplay;
use crate::wait::{End, Wait};

/// What is read of an answer at once where the rest of a long one can go from socket to socket: most are shorter, and
/// what is read is copied.
const FIRST_BYTES_MAX: usize = 16 * 1024;

/// Waiting for an answer while the body may still be going out.
pub(super) struct HeadWait<'a> {
    pub(super) replay: &'a mut RequestReplay,
    pub(super) timeouts: Timeouts,
    /// How long the client may send nothing of its body.
    pub(super) body_ms: u64,
    pub(super) progress: Option<(u64, bool)>,
    /// Whether some of the head has come since.
    pub(super) heard: bool,
    pub(super) wait: Wait,
    pub(super) scanned: usize,
    pub(super) upload_broken: bool,
    /// Whether the client has been waited for.
    pub(super) awaits_client: bool,
    /// The slowest the client may send.
    pub(super) rate: Rate,
    pub(super) pace: Pace,
}

impl HeadWait<'_> {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Connection,
        link: &mut UpstreamConnection,
        upload: &mut Transfer,
        asked: yumen_http::Method,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Fault>> {
        if let Err(fault) = self.push_body(cx, conn, link, upload) {
            return Poll::Ready(Err(fault));
        }
        if let Stream::Http2(duplex) = &mut link.stream {
            let limits = &conn.worker.settings.response_head;
            let polled = duplex.poll_head(cx, (limits, asked, head));
            if polled.is_ready() {
                // What has come of the body leaves with the head. What fails now fails again when it is read.
                let _ = duplex.poll_fill(cx, &mut link.inbox, &conn.worker.buffers);
                return polled;
            }
        }
        while !link.stream.is_shared() {
            if link.inbox.len() > self.scanned {
                let limits = &conn.worker.settings.response_head;
                match parse::response(link.inbox.bytes(), self.scanned, limits, asked, head) {
                    Ok(Parsed::Head(used)) => {
                        link.inbox.consume(used);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(Parsed::Partial) => self.scanned = link.inbox.len(),
                    Err(error) => return Poll::Ready(Err(Kind::UpstreamHead(error).into())),
                }
            }
            let bytes_max = if conn.stream.is_socket() { FIRST_BYTES_MAX } else { usize::MAX };
            match link.stream.poll_fill_some(cx, &mut link.inbox, &conn.worker.buffers, bytes_max) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    let unsent = upload.sent_bytes == 0;
                    return Poll::Ready(Err(Fault { kind: Kind::UpstreamClosed, unsent }));
                }
                Poll::Ready(Ok(_)) => self.heard = true,
                Poll::Pending => {
                    link.inbox.park(&conn.worker.buffers);
                    break;
                }
            }
        }
        self.wait(cx, conn, upload)
    }

    /// Sends what there is of the request. An endpoint that stops reading may still have answered, so
    /// its end is left for the read to find.
    fn push_body(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Connection,
        link: &mut UpstreamConnection,
        upload: &mut Transfer,
    ) -> Result<(), Fault> {
        if self.upload_broken || upload.is_done() {
            return Ok(());
        }
        let source = (&mut conn.stream, &mut conn.inbox);
        let (buffers, sink) = (&conn.worker.buffers, &mut link.stream);
        let pushed = match &mut *self.replay {
            RequestReplay::Off => upload.poll(cx, buffers, source, sink, &mut None),
            replay => replay.poll(cx, buffers, source, sink, upload),
        };
        match pushed {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                // The next head is written where this one still lies in the processor's cache.
                upload.recycle(&conn.worker.buffers);
                Ok(())
            }
            Poll::Ready(Err(broken)) => {
                self.upload_broken = true;
                broken.of_client().map_or(Ok(()), |kind| Err(kind.into()))
            }
        }
    }

    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Connection,
        upload: &Transfer,
    ) -> Poll<Result<(), Fault>> {
        if let Some(kind) = conn.stream.given_up(cx) {
            return Poll::Ready(Err(kind.into()));
        }
        let (timeout_ms, late) = if upload.is_done() || self.upload_broken {
            (self.timeouts.read_ms, Kind::ReadTimeout)
        } else if upload.waits_for_sink() {
            (self.timeouts.send_ms, Kind::SendTimeout)
        } else {
            if !self.awaits_client {
                self.awaits_client = true;
                conn.stream.tcp().into_iter().for_each(Tcp::acknowledge);
            }
            (self.body_ms, Kind::ClientTimeout)
        };
        if self.rate.is_set() {
            match late {
                Kind::ClientTimeout => return self.wait_at_pace(cx, conn, upload),
                _ => self.pace.rest(),
            }
        }
        let progress = Some(upload.progress());
        if progress != self.progress {
            self.progress = progress;
            self.wait.begin(conn, timeout_ms);
        } else if std::mem::take(&mut self.heard) {
            self.wait.prolong(conn, timeout_ms);
        }
        // A client that is waited for tells by itself that it has left.
        match self.wait.poll(cx, conn, matches!(late, Kind::ReadTimeout)) {
            None => Poll::Pending,
            Some(End::Late) => Poll::Ready(Err(late.into())),
            Some(End::ClientLeft) => Poll::Ready(Err(Kind::ClientGone.into())),
        }
    }

    /// Waits for a client that must keep up a rate; one that sends nothing does not.
    #[cold]
    fn wait_at_pace(
        &mut self,
        cx: &mut Context<'_>,
        conn: &Connection,
        upload: &Transfer,
    ) -> Poll<Result<(), Fault>> {
        // Whoever is waited for next is waited for anew.
        self.progress = None;
        let slow = self.pace.poll_slow(cx, &conn.timer, self.rate, upload.read_bytes as i64);
        slow.map(|()| Err(Kind::ClientTimeout.into()))
    }
}
