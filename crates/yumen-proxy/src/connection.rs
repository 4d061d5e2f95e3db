//! One client connection: handshake, then heads one after another until either side ends it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use yumen_http::parse::{self, Parsed};
use yumen_http::{BodyError, Framing, HeadError, RequestHead};
use yumen_plugin::{Client, Exchange, TlsInfo};

use crate::apart::apart;
use crate::buffer::Inbox;
use crate::desk::{Job, Seat};
use crate::fault::{Fault, Kind};
use crate::grpc;
use crate::http2;
use crate::pace::{Pace, Rate};
use crate::settings::Settings;
use crate::stream::{Stream, Tcp};
use crate::timers::{Timer, until};
use crate::tls::{self, Acceptor};
use crate::transfer::{Ending, Source};
use crate::worker::{Admitted, Worker};

/// How a connection goes on after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Another request may follow.
    Next,
    /// Everything was said and read.
    Close,
    /// The client may still be sending: its answer must not be destroyed by a reset.
    Linger,
    /// Only a reset tells the client that its answer is not whole.
    Reset,
    /// The client speaks HTTP/2.
    Http2,
}

enum Next {
    Request(Box<RequestHead>),
    Closed,
    Refuse(Kind),
}

/// A draining connection waits so long for a request that may be on its way, in milliseconds.
const DRAIN_GRACE_MS: u64 = 250;
/// Bounds of lingering: time between reads in milliseconds, and bytes thrown away.
const LINGER_MS: u64 = 1000;
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A body nobody wanted is read to its end if it is at most this long, so that the connection lives on.
const DISCARD_BYTES_MAX: u64 = 256 * 1024;

/// A client connection, or a stream of one that carries many, and what is known of it.
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: Rc<Peer>,
    pub(crate) stream: Stream,
    pub(crate) inbox: Inbox,
    pub(crate) timer: Timer,
}

/// Who is at the other end, and what endpoints are told of it.
pub(crate) struct Peer {
    pub(crate) client: Client,
    /// Whether the peer's forwarding fields are believed.
    pub(crate) trusted: bool,
    /// Forwarding fields that are the same for all its requests that nobody forwarded before.
    pub(crate) forwarding: Vec<u8>,
    /// Where the peer's address stands in them, as text.
    ip: Range<usize>,
    /// Where else it may connect, as answers tell it.
    pub(crate) alt_svc: Option<Arc<[u8]>>,
}

impl Peer {
    pub(crate) fn new(worker: &Worker, client: Client, alt_svc: Option<Arc<[u8]>>) -> Peer {
        let ip = client.peer.ip().to_canonical();
        let trusted = worker.settings.trusted.contains(ip);
        let (forwarding, ip) = forwarding_fields(ip, &client);
        Peer { client, trusted, forwarding, ip, alt_svc }
    }

    /// Its address as text.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.forwarding[self.ip.clone()]
    }
}

/// Serves a connection to its end.
///
/// What an idle connection holds is mostly this future, so nothing large may wait in it: who the peer is goes
/// behind its pointer before there is a future.
pub(crate) fn run(
    worker: Rc<Worker>,
    tcp: Tcp,
    mut client: Client,
    tls: Option<Rc<Acceptor>>,
    admitted: Admitted,
) -> impl Future<Output = ()> {
    // The scheme is known before the handshake, which tells the rest.
    client.tls = tls.as_ref().map(|_| TlsInfo::default());
    let alt_svc = tls.as_ref().and_then(|tls| tls.alt_svc());
    let peer = Rc::new(Peer::new(&worker, client, alt_svc));
    talk(worker, tcp, peer, tls, admitted)
}

async fn talk(
    worker: Rc<Worker>,
    tcp: Tcp,
    mut peer: Rc<Peer>,
    tls: Option<Rc<Acceptor>>,
    _admitted: Admitted,
) {
    let timer = worker.timers.timer();
    let stream = match tls {
        None => Stream::Tcp(tcp),
        Some(acceptor) => match handshake(&worker, &timer, tcp, &acceptor).await {
            Some((stream, info)) => {
                if let Some(peer) = Rc::get_mut(&mut peer) {
                    peer.client.tls = Some(info);
                }
                stream
            }
            None => return,
        },
    };
    let speaks_http2 = tls::speaks_http2(&stream);
    let conn = Box::new(Connection { worker, peer, stream, inbox: Inbox::default(), timer });
    if speaks_http2 {
        return apart(http2::run(*conn)).await;
    }
    let (conn, after) = converse(conn).await;
    match after {
        // TLS says goodbye; for TCP the drop does.
        After::Next | After::Close if matches!(conn.stream, Stream::Tcp(_)) => {}
        After::Next | After::Close => apart(conn.close()).await,
        After::Linger => apart(conn.linger()).await,
        After::Reset => conn.stream.tcp().into_iter().for_each(Tcp::reset_on_close),
        After::Http2 => apart(http2::run(*conn)).await,
    }
}

/// Serves one request after another. The only place that does: what is called once costs no call.
async fn converse(mut conn: Box<Connection>) -> (Box<Connection>, After) {
    let mut is_first = true;
    loop {
        let next = conn.next_request().await;
        let was_first = std::mem::replace(&mut is_first, false);
        let job = match next {
            Next::Request(head) => Job::Serve(head),
            Next::Refuse(_) if was_first && conn.begins_http2() => return (conn, After::Http2),
            Next::Refuse(Kind::Head(HeadError::Malformed(_))) if was_first && !conn.begins_http() => {
                return (conn, After::Close);
            }
            Next::Refuse(kind) => Job::Refuse(kind),
            Next::Closed => return (conn, After::Close),
        };
        let mut seat = Seat::take(conn, job);
        let after;
        (conn, after) = poll_fn(|cx| seat.poll(cx)).await;
        seat.leave(&conn.worker);
        if after != After::Next {
            return (conn, after);
        }
    }
}

async fn handshake(
    worker: &Rc<Worker>,
    timer: &Timer,
    tcp: Tcp,
    acceptor: &Acceptor,
) -> Option<(Stream, TlsInfo)> {
    timer.set(worker.settings.handshake_timeout_ms);
    // Boxed, so that what a handshake needs is not held as long as the connection.
    match until(timer, Box::pin(acceptor.accept(tcp)).as_mut()).await {
        Some(Ok((stream, info))) => {
            worker.counters.handshakes.add(1);
            Some((Stream::Accepted(Box::new(stream)), info))
        }
        Some(Err(error)) => {
            worker.counters.handshake_failures.add(1);
            tracing::debug!(%error, "tls handshake failed");
            None
        }
        None => {
            worker.counters.handshake_failures.add(1);
            None
        }
    }
}

/// The fields that tell an endpoint who asked and how, and where in them the address stands. A
/// connection may carry one request only, so this is no place for formatting machinery.
fn forwarding_fields(ip: IpAddr, client: &Client) -> (Vec<u8>, Range<usize>) {
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

impl Connection {
    /// A connection of a peer's, or a stream of one.
    pub(crate) fn of(worker: Rc<Worker>, peer: Rc<Peer>, stream: Stream) -> Connection {
        let timer = worker.timers.timer();
        Connection { worker, peer, stream, inbox: Inbox::default(), timer }
    }

    /// Waits for the next head. A connection that ends or idles between requests just ends.
    async fn next_request(&mut self) -> Next {
        let mut scanned = 0;
        let mut grace = false;
        // Taken once there is something to put in it.
        let mut head = None;
        let is_waiting = !self.inbox.is_empty();
        let settings = &self.worker.settings;
        self.timer.set(if is_waiting { settings.head_timeout_ms } else { settings.idle_timeout_ms });
        poll_fn(|cx| {
            loop {
                if self.inbox.len() > scanned {
                    let mut read = head.take().unwrap_or_else(|| self.worker.take_request());
                    let limits = &self.worker.settings.request_head;
                    match parse::request(self.inbox.bytes(), scanned, limits, &mut read) {
                        Ok(Parsed::Head(used)) => {
                            self.inbox.consume(used);
                            self.inbox.release(&self.worker.buffers);
                            return Poll::Ready(Next::Request(read));
                        }
                        Ok(Parsed::Partial) => {
                            head = Some(read);
                            if scanned == 0 {
                                self.timer.set(self.worker.settings.head_timeout_ms);
                            }
                            scanned = self.inbox.len();
                        }
                        Err(error) => return Poll::Ready(Next::Refuse(Kind::Head(error))),
                    }
                }
                match self.stream.poll_fill(cx, &mut self.inbox, &self.worker.buffers) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Closed),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => return self.wait_for_head(cx, &mut grace),
                }
            }
        })
        .await
    }

    fn wait_for_head(&mut self, cx: &mut Context<'_>, grace: &mut bool) -> Poll<Next> {
        self.inbox.park(&self.worker.buffers);
        let ends = self.worker.draining.get() && !self.worker.keeps_idle.get();
        if ends && !*grace && self.inbox.is_empty() {
            *grace = true;
            self.timer.set(DRAIN_GRACE_MS);
        }
        if !self.timer.is_over(cx) {
            return Poll::Pending;
        }
        Poll::Ready(if self.inbox.is_empty() { Next::Closed } else { Next::Refuse(Kind::ClientTimeout) })
    }

    /// The longest request body of an exchange.
    pub(crate) fn body_bytes_max(&self, ex: &Exchange<'_>) -> u64 {
        match ex.body_bytes_max.unwrap_or(self.worker.settings.body_bytes_max) {
            0 => u64::MAX,
            bytes_max => bytes_max,
        }
    }

    /// The slowest the client may send its body. Calls have streams, which may be silent for long.
    #[inline]
    pub(crate) fn body_rate(&self, ex: &Exchange<'_>) -> Rate {
        let Settings { body_rate, body_timeout_ms, .. } = &*self.worker.settings;
        if !body_rate.is_set() || grpc::is_call(ex) {
            return Rate::default();
        }
        Rate { window_ms: body_rate.window_ms.min(*body_timeout_ms), ..*body_rate }
    }

    /// Reads the whole request body into the exchange, for a plugin or a route that looks into it.
    pub(crate) async fn read_body(&mut self, ex: &mut Exchange<'_>, bytes_max: usize) -> Result<(), Fault> {
        if ex.body.is_some() {
            return Ok(());
        }
        if ex.request.expects_continue() && self.inbox.is_empty() {
            self.send_continue().await?;
        }
        ex.request.fields.remove("expect");
        let mut source = Source::from(self.stream.incoming(ex.request.framing));
        let bytes_max = self.body_bytes_max(ex).min(bytes_max as u64);
        if let Framing::Length(length) = ex.request.framing
            && length > bytes_max
        {
            return Err(Kind::BodyTooLarge.into());
        }
        let mut body = Vec::new();
        self.timer.set(self.worker.settings.body_timeout_ms);
        let (rate, mut pace) = (self.body_rate(ex), Pace::default());
        let read = poll_fn(|cx| {
            if rate.is_set() {
                // The end of a window is not yet the end of patience.
                self.timer.set(0);
            }
            let polled = self.poll_body(cx, &mut source, &mut body, bytes_max);
            if !rate.is_set() || polled.is_ready() {
                return polled;
            }
            let slow = pace.poll_slow(cx, &self.timer, rate, body.len() as u64);
            slow.map(|()| Err(Kind::ClientTimeout.into()))
        })
        .await;
        ex.request.framing = if source.is_done() { Framing::None } else { ex.request.framing };
        read?;
        ex.body = Some(body);
        Ok(())
    }

    async fn send_continue(&mut self) -> Result<(), Fault> {
        self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()).await
    }

    /// Sends the head of an interim answer.
    pub(crate) async fn send_interim(&mut self, mut text: Vec<u8>) -> Result<(), Fault> {
        self.stream.send_head(&mut text, false).map_err(|_| Kind::ClientGone)?;
        if text.is_empty() { Ok(()) } else { self.write_all(text).await }
    }

    /// Whether what came in place of a request is one of any version, if a broken one. Nothing else has an
    /// answer that its sender would understand.
    fn begins_http(&self) -> bool {
        let line = self.inbox.bytes().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        self.stream.is_shared()
            || words.next().is_none()
            || words.next().is_some_and(|target| matches!(target[0], b'/' | b'*'))
            || line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"))
    }

    /// Whether what came in place of a request says that HTTP/2 is spoken.
    fn begins_http2(&self) -> bool {
        self.worker.settings.http2.enabled && self.inbox.bytes().starts_with(http2::PREFACE_HEAD)
    }

    /// Writes bytes that belong to no body.
    async fn write_all(&mut self, bytes: Vec<u8>) -> Result<(), Fault> {
        let mut transfer = crate::transfer::Transfer::new(Framing::None, Ending::Known, bytes, 0);
        self.timer.set(self.worker.settings.send_timeout_ms);
        let mut nothing = Inbox::default();
        let (stream, timer) = (&mut self.stream, &self.timer);
        poll_fn(|cx| match transfer.poll_flush(cx, &mut nothing, stream) {
            Poll::Ready(Ok(())) => stream.poll_flush(cx).map_err(|_| Fault::from(Kind::ClientGone)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Kind::ClientGone.into())),
            Poll::Pending if timer.is_over(cx) => Poll::Ready(Err(Kind::ClientGone.into())),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source,
        body: &mut Vec<u8>,
        bytes_max: u64,
    ) -> Poll<Result<(), Fault>> {
        loop {
            let piece = source.decode(&mut self.inbox).map_err(|error: BodyError| Kind::Body(error))?;
            if body.len() as u64 + piece.data as u64 > bytes_max {
                return Poll::Ready(Err(Kind::BodyTooLarge.into()));
            }
            body.extend_from_slice(&self.inbox.bytes()[..piece.data]);
            self.inbox.consume(piece.data + piece.skip);
            if source.is_done() {
                self.inbox.release(&self.worker.buffers);
                return Poll::Ready(Ok(()));
            }
            match self.stream.poll_fill(cx, &mut self.inbox, &self.worker.buffers) {
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Kind::ClientGone.into())),
                Poll::Ready(Ok(0)) if !self.stream.is_shared() => {
                    return Poll::Ready(Err(Kind::ClientGone.into()));
                }
                Poll::Ready(Ok(count)) => {
                    if let Some(ended) = self.stream.end(count, self.inbox.len()) {
                        *source = ended;
                    }
                    self.timer.set(self.worker.settings.body_timeout_ms);
                }
                Poll::Pending => {
                    self.inbox.park(&self.worker.buffers);
                    if self.timer.is_over(cx) {
                        return Poll::Ready(Err(Kind::ClientTimeout.into()));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Throws away a request body that nobody read; says whether it ended soon enough.
    pub(crate) async fn discard_body(&mut self, framing: Framing) -> bool {
        let mut source = Source::from(framing);
        if source.is_done() {
            return true;
        }
        if matches!(framing, Framing::Length(length) if length > DISCARD_BYTES_MAX) {
            return false;
        }
        self.timer.set(self.worker.settings.body_timeout_ms);
        let mut read = 0;
        poll_fn(|cx| {
            // A vector that is emptied again and again only counts.
            let mut body = Vec::new();
            let polled = self.poll_body(cx, &mut source, &mut body, DISCARD_BYTES_MAX);
            read += body.len() as u64;
            if read > DISCARD_BYTES_MAX {
                return Poll::Ready(false);
            }
            polled.map(|result| result.is_ok())
        })
        .await
    }

    /// Ends a connection on which all was read.
    async fn close(mut self: Box<Self>) {
        self.timer.set(LINGER_MS);
        let (stream, timer) = (&mut self.stream, &self.timer);
        poll_fn(|cx| match stream.poll_shutdown(cx) {
            Poll::Pending if !timer.is_over(cx) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Ends a connection whose client may still be sending: says that nothing more will come, then
    /// reads for a while, since closing with unread data would reset the connection and could destroy
    /// the answer on its way (RFC 9112 §9.6).
    async fn linger(mut self: Box<Self>) {
        self.timer.set(LINGER_MS);
        self.inbox = Inbox::default();
        let mut read = 0;
        let mut is_shut = false;
        let worker = self.worker.clone();
        poll_fn(|cx| {
            loop {
                if !is_shut {
                    is_shut = self.stream.poll_shutdown(cx).is_ready();
                }
                match self.stream.poll_fill(cx, &mut self.inbox, &worker.buffers) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(count)) => {
                        read += count;
                        self.inbox.consume(self.inbox.len());
                    }
                    Poll::Pending => {
                        self.inbox.release(&worker.buffers);
                        return if self.timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending };
                    }
                }
                if read > LINGER_BYTES_MAX {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
}
