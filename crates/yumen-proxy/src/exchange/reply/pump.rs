//! The transfers of both bodies of an exchange: the rest of the request, and the response.
//!
//! This file detects failures and timeouts and attributes them to a side. It must not decide their
//! consequences.

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::copy::transfer::{BodySource, Edit, Transfer, TransferFailure, TransferProgress};
use crate::exchange::client_wait::{Wait, WaitEnd};
use crate::exchange::connection::DownstreamConnection;
use crate::fault::FaultKind;
use crate::runtime::backlog::{BacklogEntry, WaitingBytes};
use crate::runtime::clock;
use crate::runtime::minimum_rate::RateWindow;
use crate::upstream::connection::UpstreamConnection;

/// Both body transfers of an exchange, with their connections.
pub(super) struct BodyCopy<'a> {
    pub(super) conn: &'a mut DownstreamConnection,
    pub(super) connection: &'a mut UpstreamConnection,
    /// The request body.
    pub(super) upload: &'a mut Transfer,
    /// The response body.
    pub(super) download: &'a mut Transfer,
    /// Whether the client connection stays open.
    pub(super) keeps: bool,
    pub(super) read_timeout_ms: u64,
}

impl BodyCopy<'_> {
    /// Moves both bodies until the response body ends or either side fails.
    pub(super) async fn run(&mut self, edit: &mut Option<Edit<'_>>) -> Result<(), FaultKind> {
        let BodyCopy { conn, connection, upload, download, keeps, read_timeout_ms } = self;
        if let Err(broken) = download.take_buffered(&mut connection.inbox, edit) {
            return Err(upstream_kind(&broken));
        }
        // A client may send more than its framed body, such as an empty line, so its connection closes by
        // lingering: see `linger`.
        let is_last = !*keeps && upload.read_bytes() == 0 && upload.is_done() && conn.inbox.is_empty();
        if is_last && download.write_last(&mut connection.inbox, &mut conn.stream) {
            return Ok(());
        }
        let (pace, wait) = (RateWindow::default(), Wait::new());
        let read_timeout_ms = *read_timeout_ms;
        let mut pump =
            Pump { pace, wait, progress: None, upload_broken: false, read_timeout_ms, backlog: None };
        poll_fn(|cx| pump.poll(cx, self, edit)).await
    }
}

fn upstream_kind(broken: &TransferFailure) -> FaultKind {
    match broken {
        TransferFailure::Framing(error) => FaultKind::UpstreamBody(*error),
        TransferFailure::Read | TransferFailure::TooLarge => FaultKind::UpstreamClosed,
        TransferFailure::Write => FaultKind::ClientGone,
    }
}

/// Progress of both transfers, which restarts the timeouts.
#[derive(Clone, Copy, PartialEq)]
struct Progress {
    /// Whether the transfer waits for the client.
    waits_for_client: bool,
    /// Bytes of the response that the client took, plus the progress of the request. The latter does not
    /// count while the response waits for the client: sending does not excuse a client that does not read.
    of_client: TransferProgress,
    /// Bytes that the endpoint has sent.
    read_bytes: u64,
}

impl Progress {
    fn of(upload: &Transfer, download: &Transfer) -> Progress {
        let (waits_for_client, taken_bytes) = (download.waits_for_sink(), download.taken_bytes());
        // While the client does not read, its own upload must not restart the send timeout.
        let of_upload = if waits_for_client { TransferProgress::default() } else { upload.progress() };
        Progress {
            waits_for_client,
            of_client: of_upload.plus(taken_bytes),
            read_bytes: download.read_bytes(),
        }
    }
}

struct Pump {
    pace: RateWindow,
    wait: Wait,
    /// Progress at the last restart of the timeout; `None` if no timeout runs.
    progress: Option<Progress>,
    /// The rest of the request body is not sent any more.
    upload_broken: bool,
    read_timeout_ms: u64,
    backlog: Option<BacklogEntry>,
}

impl Pump {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        bodies: &mut BodyCopy<'_>,
        edit: &mut Option<Edit<'_>>,
    ) -> Poll<Result<(), FaultKind>> {
        let BodyCopy { conn, connection, upload, download, .. } = bodies;
        let worker = &conn.worker;
        let mut client_fault = None;
        if !upload.is_done() && !self.upload_broken {
            let source = BodySource { stream: &mut conn.stream, inbox: &mut conn.inbox };
            if let Poll::Ready(Err(broken)) =
                upload.poll(cx, &worker.buffers, source, &mut connection.stream, &mut None)
            {
                self.upload_broken = true;
                client_fault = broken.of_client();
            }
        }
        let source = BodySource { stream: &mut connection.stream, inbox: &mut connection.inbox };
        if let Poll::Ready(result) = download.poll(cx, &worker.buffers, source, &mut conn.stream, edit) {
            return Poll::Ready(result.map_err(|broken| upstream_kind(&broken)));
        }
        // The endpoint would wait for the rest of an aborted request body, so its stream ends as well (RFC
        // 9113 §8.1.1, RFC 9114 §4.1.1). A response that was complete by then is still sent.
        if let Some(kind) = client_fault
            && !download.is_read()
        {
            return Poll::Ready(Err(kind));
        }
        if let Some(kind) = conn.stream.client_gone(cx) {
            return Poll::Ready(Err(kind));
        }
        if let Some(late) = self.overstays(cx, bodies) {
            return Poll::Ready(Err(late));
        }
        let BodyCopy { conn, upload, download, .. } = bodies;
        let worker = &conn.worker;
        let progress = Progress::of(upload, download);
        let (timeout_ms, late) = if progress.waits_for_client {
            (worker.settings.timeouts.send_ms, FaultKind::ClientStalled)
        } else {
            (self.read_timeout_ms, FaultKind::ReadTimeout)
        };
        if worker.settings.limits.response_rate.is_set() {
            match late {
                FaultKind::ClientStalled => {
                    // The next wait starts with a full timeout.
                    self.progress = None;
                    let slow = conn.poll_slow_reader(cx, &mut self.pace, download.taken_bytes());
                    return slow.map(|()| Err(late));
                }
                _ => self.pace.rest(),
            }
        }
        self.note(conn, progress, timeout_ms);
        // The write to the client fails when the client disconnects, so no separate watch is needed.
        match self.wait.poll(cx, conn, matches!(late, FaultKind::ReadTimeout)) {
            None => Poll::Pending,
            Some(WaitEnd::Timeout) => Poll::Ready(Err(late)),
            Some(WaitEnd::ClientLeft) => Poll::Ready(Err(FaultKind::ClientGone)),
        }
    }

    /// Records the bytes that wait for either side. Returns the fault if they exceed the limit.
    fn overstays(&mut self, cx: &Context<'_>, bodies: &mut BodyCopy<'_>) -> Option<FaultKind> {
        let BodyCopy { upload, download, .. } = &*bodies;
        let waits = download.waits_for_sink() || (upload.waits_for_sink() && !self.upload_broken);
        if waits || self.backlog.is_some() { self.note_backlog(cx, bodies) } else { None }
    }

    #[cold]
    fn note_backlog(&mut self, cx: &Context<'_>, bodies: &mut BodyCopy<'_>) -> Option<FaultKind> {
        let BodyCopy { conn, connection, upload, download, .. } = bodies;
        let down_bytes = download.backlog_bytes(&mut connection.stream, &connection.inbox, &conn.stream);
        let up_bytes = upload.backlog_bytes(&mut conn.stream, &conn.inbox, &connection.stream);
        let waiting = WaitingBytes {
            bytes: down_bytes + up_bytes,
            taken_bytes: download.taken_bytes() + upload.taken_bytes(),
        };
        let (backlog, now_ms) = (&conn.worker.buffers.backlog, clock::now().mono_ms());
        let is_over = backlog.note(&mut self.backlog, cx, waiting, now_ms);
        let late = if down_bytes > 0 { FaultKind::ClientStalled } else { FaultKind::SendTimeout };
        is_over.then_some(late)
    }

    /// Restarts the timeout after progress.
    fn note(&mut self, conn: &DownstreamConnection, progress: Progress, timeout_ms: u64) {
        let Some(before) = self.progress.replace(progress) else {
            return self.wait.begin(conn, timeout_ms);
        };
        let only_read = Progress { read_bytes: progress.read_bytes, ..before };
        if progress == before {
            return;
        }
        // The client received none of the data, so the next check whether it is still connected stays due.
        if progress == only_read {
            self.wait.extend(conn, timeout_ms);
        } else {
            self.wait.begin(conn, timeout_ms);
        }
    }
}
