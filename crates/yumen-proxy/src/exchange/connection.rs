//! Downstream connection, or one stream of a multiplexed one: the transport of an exchange.
//!
//! Owns the peer's identity, the reading of request bodies and the writing of text. Must not depend on
//! routes, plugins or the serving loop.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use yumen_http::{BodyError, Framing};
use yumen_plugin::{ClientInfo, Exchange};

use crate::copy::transfer::Transfer;
use crate::exchange::disposition::After;
use crate::fault::{Fault, FaultKind};
use crate::grpc;
use crate::runtime::backlog::{BacklogEntry, WaitingBytes};
use crate::runtime::buffer::Inbox;
use crate::runtime::clock;
use crate::runtime::minimum_rate::{MinimumRate, RateWindow};
use crate::runtime::timers::Timer;
use crate::runtime::turn_budget::TurnBudget;
use crate::settings::WorkerSettings;
use crate::transport::body::BodyDecoder;
use crate::transport::http2::heads::CachedFields;
use crate::transport::stream::{HeadSent, TransportStream};
use crate::transport::tcp::TcpConnection;
use crate::worker::Worker;

/// Longest unread request body, in bytes, that is discarded so that the connection can be reused.
const DISCARD_BYTES_MAX: u64 = 256 * 1024;
/// Longest time for discarding an unread body, in milliseconds: beyond it a new connection costs the client
/// less.
const DISCARD_MS: u64 = 5000;

/// A downstream connection, or one stream of a multiplexed one, with its peer, buffer and timer.
pub(crate) struct DownstreamConnection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: Rc<DownstreamPeer>,
    pub(crate) stream: TransportStream,
    pub(crate) inbox: Inbox,
    pub(crate) timer: Timer,
}

/// The peer of a connection, and the fields that describe it to endpoints.
pub(crate) struct DownstreamPeer {
    pub(crate) client: ClientInfo,
    /// Whether forwarding fields from this peer are trusted.
    pub(crate) trusted: bool,
    /// Serialized forwarding fields, shared by all requests of the peer that carry none of their own.
    pub(crate) forwarding: Vec<u8>,
    /// Range of the peer's IP address, as text, in `forwarding`.
    ip: Range<usize>,
    /// `Alt-Svc` value for responses to this peer (RFC 7838).
    pub(crate) alt_svc: Option<Arc<[u8]>>,
    /// Encoded fields of the peer's last request to an HTTP/2 endpoint.
    pub(crate) last_fields: RefCell<Option<Box<CachedFields>>>,
}

impl DownstreamPeer {
    pub(crate) fn new(worker: &Worker, client: ClientInfo) -> DownstreamPeer {
        // A dual-stack socket reports an IPv4 client by its mapped address (RFC 4291 §2.5.5.2).
        let ip = client.peer.ip().to_canonical();
        let trusted = worker.settings.forwarding.trusted.contains(ip);
        let (forwarding, ip) = forwarding_fields(ip, &client);
        DownstreamPeer { client, trusted, forwarding, ip, alt_svc: None, last_fields: RefCell::default() }
    }

    /// The peer's IP address as text.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.forwarding[self.ip.clone()]
    }
}

/// Serializes the forwarding fields and returns the range of the IP address in them. A connection may carry a
/// single request, so IPv4 addresses are written without `fmt`.
fn forwarding_fields(ip: IpAddr, client: &ClientInfo) -> (Vec<u8>, Range<usize>) {
    let mut out = Vec::with_capacity(160);
    out.extend_from_slice(b"X-Forwarded-For: ");
    let start = out.len();
    match ip {
        IpAddr::V4(ip) => {
            for (at, octet) in ip.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
    }
    let peer_ip = start..out.len();
    out.extend_from_slice(b"\r\nX-Real-IP: ");
    out.extend_from_within(peer_ip.clone());
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    out.extend_from_slice(client.scheme().as_bytes());
    out.extend_from_slice(b"\r\nX-Forwarded-Port: ");
    out.extend_from_slice(itoa::Buffer::new().format(client.local.port()).as_bytes());
    out.extend_from_slice(b"\r\n");
    (out, peer_ip)
}

/// Whether the rest of an unread body is discarded to keep the connection: false for a length above
/// [`DISCARD_BYTES_MAX`].
pub(crate) fn is_discarded(framing: Framing) -> bool {
    !matches!(framing, Framing::Length(length) if length > DISCARD_BYTES_MAX)
}

impl DownstreamConnection {
    /// Wraps a stream of `peer`'s connection with an empty inbox and a new timer.
    pub(crate) fn of(
        worker: Rc<Worker>,
        peer: Rc<DownstreamPeer>,
        stream: TransportStream,
    ) -> DownstreamConnection {
        let timer = worker.timers.timer();
        DownstreamConnection { worker, peer, stream, inbox: Inbox::default(), timer }
    }

    /// Longest request body of the exchange, in bytes; the route's limit takes precedence over the node's,
    /// and 0 means no limit.
    pub(crate) fn body_bytes_max(&self, ex: &Exchange<'_>) -> u64 {
        match ex.body.bytes_max.unwrap_or(self.worker.settings.limits.body_bytes_max) {
            0 => u64::MAX,
            bytes_max => bytes_max,
        }
    }

    /// Minimum rate of the request body. gRPC calls have none: their streams may be silent for long.
    #[inline]
    pub(crate) fn body_rate(&self, ex: &Exchange<'_>) -> MinimumRate {
        if !self.worker.settings.limits.body_rate.is_set() || grpc::is_call(ex) {
            return MinimumRate::default();
        }
        self.client_rate()
    }

    fn client_rate(&self) -> MinimumRate {
        let WorkerSettings { limits, timeouts, .. } = &*self.worker.settings;
        MinimumRate { window_ms: limits.body_rate.window_ms.min(timeouts.body_ms), ..limits.body_rate }
    }

    /// Reads the whole request body into the exchange, for a plugin or a route that inspects it.
    ///
    /// Fails if the body exceeds `bytes_max` or the limit of the exchange, is malformed, or arrives too
    /// slowly.
    pub(crate) async fn read_body(&mut self, ex: &mut Exchange<'_>, bytes_max: usize) -> Result<(), Fault> {
        let bytes_max = self.body_bytes_max(ex).min(bytes_max as u64);
        if let Some(body) = &ex.body.buffered {
            let fits = body.len() as u64 <= bytes_max;
            return if fits { Ok(()) } else { Err(FaultKind::BodyTooLarge.into()) };
        }
        if let Framing::Length(length) = ex.request.framing
            && length > bytes_max
        {
            return Err(FaultKind::BodyTooLarge.into());
        }
        // A client that has sent a part of the body does not wait for 100 (RFC 9110 §10.1.1).
        if ex.request.expects_continue() && self.inbox.is_empty() {
            self.send_continue().await?;
        }
        // The gateway reads the body, so it does not forward the expectation (RFC 9110 §10.1.1).
        ex.request.fields.remove("expect");
        let mut rest = BodyDecoder::from(self.stream.incoming(ex.request.framing));
        let mut body = Vec::new();
        self.timer.set(self.worker.settings.timeouts.body_ms);
        let (rate, mut pace) = (self.body_rate(ex), RateWindow::default());
        let mut is_awaited = false;
        let read = poll_fn(|cx| {
            if rate.is_set() {
                // A rate window that ends is not yet a timeout, so the timer covers the window only.
                self.timer.set(0);
            }
            let polled = self.poll_body(cx, &mut rest, &mut body, bytes_max);
            if polled.is_pending() && !std::mem::replace(&mut is_awaited, true) {
                // A delayed acknowledgement would hold back a client that waits for it before it sends the
                // body.
                self.stream.tcp().into_iter().for_each(TcpConnection::acknowledge);
            }
            if !rate.is_set() || polled.is_ready() {
                return polled;
            }
            let slow = pace.poll_slow(cx, &self.timer, rate, body.len() as i64);
            slow.map(|()| Err(FaultKind::ClientTimeout.into()))
        })
        .await;
        ex.body.received_bytes += body.len() as u64;
        // Without framing, a body that is completely read is not discarded again after the response.
        ex.request.framing = if rest.is_done() { Framing::None } else { ex.request.framing };
        read?;
        ex.body.buffered = Some(body.into());
        Ok(())
    }

    async fn send_continue(&mut self) -> Result<(), Fault> {
        self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()).await
    }

    /// Sends the head of an interim response (1xx).
    pub(crate) async fn send_interim(&mut self, text: Vec<u8>) -> Result<(), Fault> {
        match self.stream.send_head(&text, false).map_err(|_| FaultKind::ClientGone)? {
            HeadSent::Separately => Ok(()),
            HeadSent::InBand => self.write_text(text, Bytes::new()).await.1.map_err(Fault::from),
        }
    }

    /// Writes `text` and then `body`; returns the number of bytes sent and the result.
    ///
    /// The client has `send_timeout_ms` between two writes. The body is copied in chunks because many slow
    /// clients may receive the same one.
    pub(crate) async fn write_text(
        &mut self,
        text: Vec<u8>,
        mut body: Bytes,
    ) -> (u64, Result<(), FaultKind>) {
        let ending = self.stream.ending(false);
        let mut transfer = Transfer::new(Framing::None, ending, text, 0);
        transfer.refill(&mut body);
        let mut backlog = None;
        let has_rate = self.worker.settings.limits.response_rate.is_set();
        // The initial count equals no real one, so the first wait sets the timer.
        let (mut pace, mut taken_bytes) = (RateWindow::default(), u64::MAX);
        let result = poll_fn(|cx| {
            let mut turn = TurnBudget::default();
            let mut flushed = transfer.poll_flush_through(cx, &mut self.inbox, &mut self.stream);
            while matches!(flushed, Poll::Ready(Ok(()))) && !body.is_empty() {
                if turn.is_over(cx) {
                    // Nothing waits. An older entry would make a client that reads without pause look stalled.
                    backlog = None;
                    return Poll::Pending;
                }
                turn.copied(transfer.refill(&mut body));
                flushed = transfer.poll_flush_through(cx, &mut self.inbox, &mut self.stream);
            }
            match flushed {
                Poll::Ready(result) => return Poll::Ready(result.map_err(|_| FaultKind::ClientGone)),
                Poll::Pending if self.overstays(cx, &mut backlog, &transfer) => {
                    return Poll::Ready(Err(FaultKind::ClientStalled));
                }
                Poll::Pending if has_rate => {
                    let slow = self.poll_slow_reader(cx, &mut pace, transfer.taken_bytes());
                    return slow.map(|()| Err(FaultKind::ClientStalled));
                }
                Poll::Pending => {}
            }
            // Only bytes that the client took restart the send timeout.
            if std::mem::replace(&mut taken_bytes, transfer.taken_bytes()) != taken_bytes {
                self.timer.set(self.worker.settings.timeouts.send_ms);
            }
            if self.timer.is_over(cx) { Poll::Ready(Err(FaultKind::ClientStalled)) } else { Poll::Pending }
        })
        .await;
        transfer.recycle(&self.worker.buffers);
        (transfer.sent_bytes(), result)
    }

    /// Records the buffered bytes in the backlog; true if the worker buffers too much and this connection
    /// must end.
    #[cold]
    fn overstays(&mut self, cx: &Context<'_>, entry: &mut Option<BacklogEntry>, transfer: &Transfer) -> bool {
        let bytes = transfer.prefix_bytes() + self.stream.session_bytes();
        let waiting = WaitingBytes { bytes, taken_bytes: transfer.taken_bytes() };
        self.worker.buffers.backlog.note(entry, cx, waiting, clock::now().mono_ms())
    }

    /// Ready when the client reads its response below the minimum rate. `taken_bytes` is the number of bytes
    /// that the connection has accepted so far.
    #[cold]
    pub(crate) fn poll_slow_reader(
        &self,
        cx: &mut Context<'_>,
        pace: &mut RateWindow,
        taken_bytes: u64,
    ) -> Poll<()> {
        let settings = &self.worker.settings;
        let window_ms = settings.limits.response_rate.window_ms.min(settings.timeouts.send_ms);
        let rate = MinimumRate { window_ms, ..settings.limits.response_rate };
        // A socket buffers much and accepts more only in large steps. Bytes that TCP has not acknowledged are
        // not received.
        let held_bytes = self.stream.tcp().map_or(0, TcpConnection::unacknowledged_bytes);
        pace.poll_slow(cx, &self.timer, rate, taken_bytes as i64 - held_bytes as i64)
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        rest: &mut BodyDecoder,
        body: &mut Vec<u8>,
        bytes_max: u64,
    ) -> Poll<Result<(), Fault>> {
        let mut turn = TurnBudget::default();
        loop {
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            let piece = rest.decode(&mut self.inbox).map_err(|error: BodyError| FaultKind::Body(error))?;
            if body.len() as u64 + piece.data as u64 > bytes_max {
                return Poll::Ready(Err(FaultKind::BodyTooLarge.into()));
            }
            body.extend_from_slice(&self.inbox.bytes()[..piece.data]);
            self.inbox.consume(piece.data + piece.skip);
            turn.copied(piece.data + piece.skip);
            if rest.is_done() {
                self.inbox.release(&self.worker.buffers);
                return Poll::Ready(Ok(()));
            }
            if piece.data > 0 && !self.inbox.is_empty() {
                // Data ahead of a malformed chunk is delivered first; the next call reports the error.
                continue;
            }
            match self.stream.poll_fill(cx, &mut self.inbox, &self.worker.buffers) {
                Poll::Ready(Err(_)) => return Poll::Ready(Err(FaultKind::ClientGone.into())),
                // End of file is the normal end of a stream's body, but truncates the body of an HTTP/1
                // request.
                Poll::Ready(Ok(0)) if !self.stream.is_shared() => {
                    return Poll::Ready(Err(FaultKind::ClientGone.into()));
                }
                Poll::Ready(Ok(count)) => {
                    if let Some(ended) = self.stream.end(count, self.inbox.len()) {
                        *rest = ended;
                    }
                    self.timer.set(self.worker.settings.timeouts.body_ms);
                }
                Poll::Pending => {
                    self.inbox.park(&self.worker.buffers);
                    if self.timer.is_over(cx) {
                        return Poll::Ready(Err(FaultKind::ClientTimeout.into()));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Discards the rest of the request body after the response; returns how the connection continues.
    pub(crate) async fn discard_body(&mut self, framing: Framing) -> After {
        if !is_discarded(framing) {
            return After::Linger;
        }
        let mut rest = BodyDecoder::from(framing);
        let (rate, mut pace, mut read) = (self.client_rate(), RateWindow::default(), 0);
        // The cap bounds the discarding as a whole, the timer each wait.
        self.timer.cap(clock::now().mono_ms() + DISCARD_MS);
        self.timer.set(self.worker.settings.timeouts.body_ms);
        let is_whole = poll_fn(|cx| {
            if rate.is_set() {
                // As in `read_body`: the timer covers one rate window.
                self.timer.set(0);
            }
            // A new vector for each poll bounds memory: only its length counts.
            let mut body = Vec::new();
            let polled = self.poll_body(cx, &mut rest, &mut body, DISCARD_BYTES_MAX - read);
            read += body.len() as u64;
            if !rate.is_set() || polled.is_ready() {
                return polled.map(|result| result.is_ok());
            }
            pace.poll_slow(cx, &self.timer, rate, read as i64).map(|()| false)
        })
        .await;
        // The cap would also end the next request.
        self.timer.uncap();
        if is_whole { After::Next } else { After::Linger }
    }
}

#[cfg(test)]
mod tests;
