//! The wait for a response head, while the request body may still be sent.
//!
//! Owns the choice of the timeout: the client has to send, or the endpoint has to read or to respond.

use std::task::{Context, Poll};

use yumen_http::Framing;
use yumen_plugin::Exchange;
use yumen_snapshot::AttemptTimeouts;

use crate::copy::transfer::{BodySource, Transfer, TransferProgress};
use crate::exchange::client_wait::{Wait, WaitEnd};
use crate::exchange::connection::DownstreamConnection;
use crate::fault::{Fault, FaultKind};
use crate::grpc;
use crate::runtime::backlog::{BacklogEntry, WaitingBytes};
use crate::runtime::clock;
use crate::runtime::minimum_rate::{MinimumRate, RateWindow};
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::upstream::attempt::{Attempt, RequestSent};
use crate::upstream::connection::HeadRead;
use crate::upstream::upload::RequestUpload;

/// Upper bound of the first receive, in bytes, where a long response can be spliced: most responses are
/// shorter, and bytes that are read must be copied.
const FIRST_BYTES_MAX: usize = 16 * 1024;

/// The wait for a response head.
pub(super) struct HeadWait {
    timeouts: AttemptTimeouts,
    /// Longest pause of the client within its body, in milliseconds.
    body_ms: u64,
    /// Minimum rate of the request body.
    rate: MinimumRate,
    pace: RateWindow,
    read: HeadRead,
    wait: Wait,
    progress: Option<TransferProgress>,
    /// Whether the endpoint has stopped reading the body.
    upload_broken: bool,
    /// Whether a wait for the client has begun.
    awaits_client: bool,
    /// Request bytes that wait for the endpoint, once they count against the worker's backlog.
    backlog: Option<BacklogEntry>,
}

impl HeadWait {
    pub(super) fn new(conn: &DownstreamConnection, ex: &Exchange<'_>, timeouts: AttemptTimeouts) -> HeadWait {
        // gRPC clients may pause between messages, so the read timeout of the endpoint applies to them too.
        let has_pauses = ex.request.framing != Framing::None && grpc::is_call(ex);
        let body_ms = if has_pauses { timeouts.read_ms } else { conn.worker.settings.timeouts.body_ms };
        let bytes_max = if conn.stream.is_socket() { FIRST_BYTES_MAX } else { usize::MAX };
        HeadWait {
            timeouts,
            body_ms,
            rate: conn.body_rate(ex),
            pace: RateWindow::default(),
            read: HeadRead::new(ex.request.method(), bytes_max),
            wait: Wait::new(),
            progress: None,
            upload_broken: false,
            awaits_client: false,
            backlog: None,
        }
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut DownstreamConnection,
        upload: &mut RequestUpload,
        sent: &mut Attempt<'_, RequestSent>,
    ) -> Poll<Result<(), Fault>> {
        if let Err(fault) = self.push_body(cx, conn, upload, &mut sent.connection().stream) {
            return Poll::Ready(Err(fault));
        }
        match sent.poll_head(cx, &conn.worker.upstream, &mut self.read) {
            Poll::Pending => self.wait(cx, conn, upload, &sent.connection().stream),
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(Fault { kind, unsent })) => {
                let is_unsent = unsent || is_unsent(kind, upload, &sent.connection().stream);
                Poll::Ready(Err(Fault { kind, unsent: is_unsent }))
            }
        }
    }

    /// Sends more of the request. A write error is not final: the endpoint may have responded before it
    /// stopped reading, and the read finds the response (RFC 9112 §9.5).
    fn push_body(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut DownstreamConnection,
        upload: &mut RequestUpload,
        sink: &mut TransportStream,
    ) -> Result<(), Fault> {
        if self.upload_broken || upload.transfer.is_done() {
            return Ok(());
        }
        let source = BodySource { stream: &mut conn.stream, inbox: &mut conn.inbox };
        match upload.poll(cx, &conn.worker.buffers, source, sink) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                // The next head reuses this buffer, which is still in the CPU cache.
                upload.transfer.recycle(&conn.worker.buffers);
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
        conn: &mut DownstreamConnection,
        upload: &RequestUpload,
        sink: &TransportStream,
    ) -> Poll<Result<(), Fault>> {
        let transfer = &upload.transfer;
        if let Some(kind) = conn.stream.client_gone(cx) {
            return Poll::Ready(Err(kind.into()));
        }
        let is_held_up = transfer.waits_for_sink() && !self.upload_broken;
        // An entry exists until the endpoint has taken all, so it is updated even while nothing waits
        // (decision 54).
        if (is_held_up || self.backlog.is_some()) && self.overstays(cx, conn, transfer, sink) {
            return Poll::Ready(Err(FaultKind::SendTimeout.into()));
        }
        let (timeout_ms, late) = if transfer.is_done() || self.upload_broken {
            (self.timeouts.read_ms, FaultKind::ReadTimeout)
        } else if transfer.waits_for_sink() {
            (self.timeouts.send_ms, FaultKind::SendTimeout)
        } else {
            // The client may wait for an acknowledgement before it sends more.
            if !self.awaits_client {
                self.awaits_client = true;
                conn.stream.tcp().into_iter().for_each(TcpConnection::acknowledge);
            }
            (self.body_ms, FaultKind::ClientTimeout)
        };
        if self.rate.is_set() {
            match late {
                FaultKind::ClientTimeout => return self.wait_at_pace(cx, conn, transfer.read_bytes()),
                // Time in which the client need not send does not count towards its rate.
                _ => self.pace.rest(),
            }
        }
        let progress = Some(transfer.progress());
        if progress != self.progress {
            self.progress = progress;
            self.wait.begin(conn, timeout_ms);
        } else if std::mem::take(&mut self.read.has_received) {
            self.wait.extend(conn, timeout_ms);
        }
        // While the client has to send, a read on its connection detects the close.
        match self.wait.poll(cx, conn, matches!(late, FaultKind::ReadTimeout)) {
            None => Poll::Pending,
            Some(WaitEnd::Timeout) => Poll::Ready(Err(late.into())),
            Some(WaitEnd::ClientLeft) => Poll::Ready(Err(FaultKind::ClientGone.into())),
        }
    }

    /// Records the bytes that wait for the endpoint; true if the worker buffers too much and the exchange
    /// must end.
    #[cold]
    fn overstays(
        &mut self,
        cx: &Context<'_>,
        conn: &mut DownstreamConnection,
        transfer: &Transfer,
        sink: &TransportStream,
    ) -> bool {
        let bytes = transfer.backlog_bytes(&mut conn.stream, &conn.inbox, sink);
        let waiting = WaitingBytes { bytes, taken_bytes: transfer.taken_bytes() };
        conn.worker.buffers.backlog.note(&mut self.backlog, cx, waiting, clock::now().mono_ms())
    }

    /// Waits for a client that must keep a minimum rate. A client that sends nothing is below it.
    #[cold]
    fn wait_at_pace(
        &mut self,
        cx: &mut Context<'_>,
        conn: &DownstreamConnection,
        read_bytes: u64,
    ) -> Poll<Result<(), Fault>> {
        // The next wait starts its timer anew.
        self.progress = None;
        let slow = self.pace.poll_slow(cx, &conn.timer, self.rate, read_bytes as i64);
        slow.map(|()| Err(FaultKind::ClientTimeout.into()))
    }
}

/// Whether the endpoint closed the connection before any byte of the request was sent.
#[cold]
fn is_unsent(kind: FaultKind, upload: &RequestUpload, stream: &TransportStream) -> bool {
    kind == FaultKind::UpstreamClosed && !stream.is_shared() && upload.transfer.sent_bytes() == 0
}
