//! Both bodies of an exchange on their way, the request's rest and the answer's.
//!
//! Knows when either side has failed or taken too long, and whose fault it is; not what follows from it.

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::backlog::BacklogEntry;
use crate::client_wait::{Wait, WaitEnd};
use crate::clock;
use crate::connection::DownstreamConnection;
use crate::fault::FaultKind;
use crate::minimum_rate::RateWindow;
use crate::transfer::{Edit, Transfer, TransferFailure};
use crate::upstream::connection::UpstreamConnection;

/// Both bodies of an exchange, and the sides between which they move.
pub(super) struct BodyCopy<'a> {
    pub(super) conn: &'a mut DownstreamConnection,
    pub(super) connection: &'a mut UpstreamConnection,
    /// The request's body.
    pub(super) upload: &'a mut Transfer,
    /// The response's body.
    pub(super) download: &'a mut Transfer,
    /// Whether the client's connection lives on.
    pub(super) keeps: bool,
    pub(super) read_timeout_ms: u64,
}

impl BodyCopy<'_> {
    /// Moves both bodies on until the response's has ended or either side fails. What is rare has a copy of its own, so
    /// that what is not stays in one piece with its caller.
    pub(super) async fn run<const RARE: bool>(
        &mut self,
        edit: &mut Option<Edit<'_>>,
    ) -> Result<(), FaultKind> {
        let BodyCopy { conn, connection, upload, download, keeps, read_timeout_ms } = self;
        if let Err(broken) = download.take_buffered(&mut connection.inbox, edit) {
            return Err(upstream_kind(&broken));
        }
        // A client that sent a body may send more than it said, if only an empty line: see `linger`.
        let is_last = !*keeps && upload.read_bytes == 0 && upload.is_done() && conn.inbox.is_empty();
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

/// What has moved, as far as it bears on how long is waited.
#[derive(Clone, Copy, PartialEq)]
struct Progress {
    /// Where it is the client that is waited for.
    waits_for_client: bool,
    /// What the client has taken of the answer, and what has moved of the request unless the client is waited for: one
    /// that takes nothing owes that, whatever else it sends.
    of_client: (u64, bool),
    /// What the endpoint has sent.
    read_bytes: u64,
}

impl Progress {
    fn of(upload: &Transfer, download: &Transfer) -> Progress {
        let (waits_for_client, taken_bytes) = (download.waits_for_sink(), download.taken_bytes());
        let (up, up_held) = if waits_for_client { (0, false) } else { upload.progress() };
        let of_client = (taken_bytes + up, up_held);
        Progress { waits_for_client, of_client, read_bytes: download.read_bytes }
    }
}

struct Pump {
    pace: RateWindow,
    wait: Wait,
    /// What had moved when it was last waited for anew; `None` where nothing that was waited for goes on.
    progress: Option<Progress>,
    /// Nothing more of the request goes out.
    upload_broken: bool,
    read_timeout_ms: u64,
    backlog: Option<BacklogEntry>,
}

impl Pump {
    #[inline(always)]
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
            let source = (&mut conn.stream, &mut conn.inbox);
            if let Poll::Ready(Err(broken)) =
                upload.poll(cx, &worker.buffers, source, &mut connection.stream, &mut None)
            {
                self.upload_broken = true;
                client_fault = broken.of_client();
            }
        }
        let source = (&mut connection.stream, &mut connection.inbox);
        if let Poll::Ready(result) = download.poll(cx, &worker.buffers, source, &mut conn.stream, edit) {
            return Poll::Ready(result.map_err(|broken| upstream_kind(&broken)));
        }
        // An endpoint would wait in vain for the rest of a body that its client broke: its part ends, too (RFC 9113
        // §8.1.1, RFC 9114 §4.1.1). An answer that was read whole by then is still passed on.
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
            (worker.settings.send_timeout_ms, FaultKind::ClientStalled)
        } else {
            (self.read_timeout_ms, FaultKind::ReadTimeout)
        };
        if worker.settings.answer_rate.is_set() {
            match late {
                FaultKind::ClientStalled => {
                    // Whoever is waited for next is waited for anew.
                    self.progress = None;
                    let slow = conn.poll_slow_reader(cx, &mut self.pace, download.taken_bytes());
                    return slow.map(|()| Err(late));
                }
                _ => self.pace.rest(),
            }
        }
        self.note(conn, progress, timeout_ms);
        // A client that is waited for tells by itself that it has left.
        match self.wait.poll(cx, conn, matches!(late, FaultKind::ReadTimeout)) {
            None => Poll::Pending,
            Some(WaitEnd::Timeout) => Poll::Ready(Err(late)),
            Some(WaitEnd::ClientLeft) => Poll::Ready(Err(FaultKind::ClientGone)),
        }
    }

    /// Notes the memory that waits for either side. Returns the fault that ends the exchange where there is too much.
    #[inline(always)]
    fn overstays(&mut self, cx: &Context<'_>, bodies: &mut BodyCopy<'_>) -> Option<FaultKind> {
        let BodyCopy { upload, download, .. } = &*bodies;
        let waits = download.waits_for_sink() || (upload.waits_for_sink() && !self.upload_broken);
        if waits || self.backlog.is_some() { self.note_backlog(cx, bodies) } else { None }
    }

    #[inline(never)]
    fn note_backlog(&mut self, cx: &Context<'_>, bodies: &mut BodyCopy<'_>) -> Option<FaultKind> {
        let BodyCopy { conn, connection, upload, download, .. } = bodies;
        let down_bytes = download.backlog_bytes(&mut connection.stream, &connection.inbox, &conn.stream);
        let bytes = down_bytes + upload.backlog_bytes(&mut conn.stream, &conn.inbox, &connection.stream);
        let taken_bytes = download.taken_bytes() + upload.taken_bytes();
        let (backlog, now_ms) = (&conn.worker.buffers.backlog, clock::now().mono_ms());
        let is_over = backlog.note(&mut self.backlog, cx, (bytes, taken_bytes), now_ms);
        let late = if down_bytes > 0 { FaultKind::ClientStalled } else { FaultKind::SendTimeout };
        is_over.then_some(late)
    }

    /// Waits anew where something has moved.
    #[inline(always)]
    fn note(&mut self, conn: &DownstreamConnection, progress: Progress, timeout_ms: u64) {
        let Some(before) = self.progress.replace(progress) else {
            return self.wait.begin(conn, timeout_ms);
        };
        let only_read = Progress { read_bytes: progress.read_bytes, ..before };
        if progress == before {
            return;
        }
        if progress == only_read {
            self.wait.extend(conn, timeout_ms);
        } else {
            self.wait.begin(conn, timeout_ms);
        }
    }
}
