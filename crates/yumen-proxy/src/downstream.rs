//! One downstream connection from the handshake to its close: TLS, protocol detection, the HTTP/1 request
//! loop, the drivers of HTTP/2 and HTTP/3, the tasks that run exchanges.
//!
//! Must not depend on listeners, or on the steps of an exchange.

mod exchange_handle;
mod exchange_task;
mod http2;
mod http3;
mod lingering_close;
mod shared;
mod streams;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::parse::{self, ParsedHead};
use yumen_http::{HeadError, RequestHead};
use yumen_plugin::{ClientInfo, TlsInfo};

use crate::downstream::exchange_handle::ExchangeHandle;
use crate::downstream::exchange_task::ExchangeJob;
use crate::exchange::connection::{DownstreamConnection, DownstreamPeer};
use crate::exchange::disposition::After;
use crate::fault::FaultKind;
use crate::runtime::buffer::Inbox;
use crate::runtime::cold_future::box_cold;
use crate::runtime::timers::{Timer, until};
use crate::runtime::turn_budget;
use crate::tls::{self, AcceptedTls, DownstreamTlsAcceptor, HandshakeRefusal};
use crate::transport::http2::PREFACE_HEAD;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::worker::{ConnectionGuard, Worker};

pub(crate) use http3::open as open_http3;

/// Time that a draining connection waits for a request that may be in flight, in milliseconds.
const DRAIN_GRACE_MS: u64 = 250;
/// Time for the client to accept the TLS `close_notify`, in milliseconds.
const CLOSE_MS: u64 = 1000;

/// Continuation of a connection after the HTTP/1 loop.
enum ConnectionNext {
    /// The HTTP/1 connection ends as the last exchange requires.
    After(After),
    /// The client sent the HTTP/2 preface (RFC 9113 §3.4).
    Http2,
}

enum NextRequest {
    Request(Box<RequestHead>),
    Closed,
    Refuse(FaultKind),
}

/// Serves a connection until it is closed.
///
/// An idle connection consists mostly of this future, so no large value may live across its await points. The
/// peer is therefore allocated before the future exists.
pub(crate) fn run(
    worker: Rc<Worker>,
    tcp: TcpConnection,
    mut client: ClientInfo,
    tls: Option<Rc<DownstreamTlsAcceptor>>,
    admitted: ConnectionGuard,
) -> impl Future<Output = ()> {
    // The scheme is known before the handshake; the handshake fills in the other values.
    client.tls = tls.as_ref().map(|_| TlsInfo::default());
    let peer = Rc::new(DownstreamPeer::new(&worker, client));
    talk(worker, tcp, peer, tls, admitted)
}

async fn talk(
    worker: Rc<Worker>,
    tcp: TcpConnection,
    mut peer: Rc<DownstreamPeer>,
    tls: Option<Rc<DownstreamTlsAcceptor>>,
    _admitted: ConnectionGuard,
) {
    let timer = worker.timers.timer();
    let mut is_plain = false;
    let stream = match tls {
        None => TransportStream::Tcp(tcp),
        // No await inside the match: values of the handshake would stay in the future as long as the
        // connection.
        Some(acceptor) => match handshake(&worker, &timer, tcp, &acceptor).await {
            Ok(accepted) => {
                // No exchange has started, so nothing else holds the peer.
                if let Some(peer) = Rc::get_mut(&mut peer) {
                    peer.client.tls = Some(accepted.info);
                    peer.alt_svc = accepted.alt_svc;
                }
                TransportStream::Accepted(Box::new(accepted.stream))
            }
            Err(HandshakeRefusal::NotTls(tcp)) => {
                is_plain = true;
                TransportStream::Tcp(tcp)
            }
            Err(HandshakeRefusal::UnknownName(_) | HandshakeRefusal::Failed(_)) => return,
        },
    };
    let speaks_http2 = stream.alpn() == Some(tls::HTTP2);
    // Boxed once: exchange tasks then receive a pointer instead of the whole connection.
    let conn = Box::new(DownstreamConnection { worker, peer, stream, inbox: Inbox::default(), timer });
    if is_plain {
        return box_cold(refuse_plain(conn)).await;
    }
    if speaks_http2 {
        return box_cold(http2::run(*conn)).await;
    }
    let (mut conn, end) = serve_http1(conn).await;
    conn.inbox.release(&conn.worker.buffers);
    match end {
        // TLS needs a `close_notify` (RFC 8446 §6.1); a plain TCP socket closes on drop.
        ConnectionNext::After(After::Next | After::Leave | After::Close)
            if matches!(conn.stream, TransportStream::Tcp(_)) => {}
        ConnectionNext::After(After::Next | After::Leave | After::Close) => box_cold(conn.close()).await,
        ConnectionNext::After(After::Linger | After::Unread(_)) => {
            box_cold(lingering_close::linger(conn)).await
        }
        ConnectionNext::After(After::Reset) => {
            conn.stream.tcp().into_iter().for_each(TcpConnection::reset_on_close)
        }
        ConnectionNext::Http2 => box_cold(http2::run(*conn)).await,
    }
}

/// Serves requests one after another. `talk` is the only caller, so the compiler can inline the future.
async fn serve_http1(mut conn: Box<DownstreamConnection>) -> (Box<DownstreamConnection>, ConnectionNext) {
    let mut is_first = true;
    loop {
        // Pipelined requests take turns with other connections of the worker.
        if !conn.inbox.is_empty() {
            poll_fn(turn_budget::poll_request).await;
        }
        let next = conn.next_request().await;
        let was_first = std::mem::replace(&mut is_first, false);
        let job = match next {
            NextRequest::Request(head) => ExchangeJob::Serve(head),
            // Only the first bytes of a connection can be the HTTP/2 preface.
            NextRequest::Refuse(_) if was_first && conn.begins_http2() => {
                return (conn, ConnectionNext::Http2);
            }
            NextRequest::Refuse(FaultKind::Head(HeadError::Malformed(_)))
                if was_first && !conn.begins_http() =>
            {
                conn.count_unknown_protocol();
                return (conn, ConnectionNext::After(After::Close));
            }
            NextRequest::Refuse(kind) => ExchangeJob::Refuse(kind, None),
            NextRequest::Closed => return (conn, ConnectionNext::After(After::Close)),
        };
        let mut handle = ExchangeHandle::take(conn, job);
        let mut after;
        (conn, after) = poll_fn(|cx| handle.poll(cx)).await;
        handle.leave();
        // The task returns to the pool before the body is discarded, which may take seconds.
        if let After::Unread(framing) = after {
            after = box_cold(conn.discard_body(framing)).await;
        }
        if after != After::Next {
            return (conn, ConnectionNext::After(after));
        }
    }
}

async fn handshake(
    worker: &Rc<Worker>,
    timer: &Timer,
    tcp: TcpConnection,
    acceptor: &DownstreamTlsAcceptor,
) -> Result<AcceptedTls, HandshakeRefusal> {
    timer.set(worker.settings.timeouts.handshake_ms);
    // Boxed, so that the handshake state is freed before the connection is served.
    let shaken = until(timer, Box::pin(acceptor.accept(tcp)).as_mut()).await;
    let shaken = shaken.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    let counted = if shaken.is_ok() {
        &worker.counters.connections.handshakes
    } else {
        &worker.counters.connections.handshake_failures
    };
    counted.add(1);
    if let Err(HandshakeRefusal::Failed(error)) = &shaken {
        tracing::debug!(%error, "tls handshake failed");
    }
    shaken
}

/// Responds to plain HTTP on a TLS listener with an HTTP error; other protocols are closed without a
/// response.
async fn refuse_plain(mut conn: Box<DownstreamConnection>) {
    // The acceptor has consumed nothing; the first bytes decide between HTTP and an unknown protocol.
    let worker = conn.worker.clone();
    let read = {
        let DownstreamConnection { stream, inbox, .. } = &mut *conn;
        poll_fn(|cx| stream.poll_fill(cx, inbox, &worker.buffers)).await
    };
    if read.is_err() || !conn.begins_http() {
        conn.count_unknown_protocol();
        let waiting = conn.inbox.len();
        conn.inbox.consume(waiting);
        return conn.inbox.release(&worker.buffers);
    }
    let mut handle = ExchangeHandle::take(conn, ExchangeJob::Refuse(FaultKind::NotTls, None));
    let (conn, _) = poll_fn(|cx| handle.poll(cx)).await;
    handle.leave();
    lingering_close::linger(conn).await;
}

impl DownstreamConnection {
    /// Waits for the next request head. A close or an idle timeout between requests is not an error.
    async fn next_request(&mut self) -> NextRequest {
        let mut scanned = 0;
        let mut grace = false;
        // Allocated when the first bytes arrive, so that an idle connection holds no request.
        let mut head = None;
        let is_waiting = !self.inbox.is_empty();
        let settings = &self.worker.settings;
        self.timer.set(if is_waiting { settings.timeouts.head_ms } else { settings.timeouts.idle_ms });
        poll_fn(|cx| {
            loop {
                if self.inbox.len() > scanned {
                    let mut read = head.take().unwrap_or_else(|| self.worker.take_request());
                    let limits = &self.worker.settings.limits.request_head;
                    // The parser continues behind `scanned`, so that a head in many segments is not searched
                    // repeatedly.
                    match parse::request(self.inbox.bytes(), scanned, limits, &mut read) {
                        Ok(ParsedHead::Head(used)) => {
                            self.inbox.consume(used);
                            self.inbox.release(&self.worker.buffers);
                            // From here on the connection is not ended to free capacity.
                            self.timer.set_idle(false);
                            return Poll::Ready(NextRequest::Request(read));
                        }
                        Ok(ParsedHead::Partial) => {
                            head = Some(read);
                            if scanned == 0 {
                                // Set once per head: later bytes do not extend the timeout, so a client that
                                // sends single bytes cannot hold the connection (Slowloris).
                                self.timer.set(self.worker.settings.timeouts.head_ms);
                                // A client with delayed acknowledgements may wait before it sends the rest of
                                // the head.
                                self.stream.tcp().into_iter().for_each(TcpConnection::acknowledge);
                            }
                            scanned = self.inbox.len();
                        }
                        Err(error) => return Poll::Ready(NextRequest::Refuse(FaultKind::Head(error))),
                    }
                }
                match self.stream.poll_fill(cx, &mut self.inbox, &self.worker.buffers) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(NextRequest::Closed),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => return self.wait_for_head(cx, &mut grace),
                }
            }
        })
        .await
    }

    fn wait_for_head(&mut self, cx: &mut Context<'_>, grace: &mut bool) -> Poll<NextRequest> {
        self.inbox.park(&self.worker.buffers);
        // During a handover, idle connections keep their idle timeout; other drains close them.
        let ends = self.worker.admission.ends_idle();
        if ends && !*grace && self.inbox.is_empty() {
            *grace = true;
            self.timer.set(DRAIN_GRACE_MS);
        }
        self.timer.set_idle(self.inbox.is_empty());
        if !self.timer.is_over(cx) {
            let is_reclaimed = self.worker.is_ending_idle() && self.inbox.is_empty();
            let ends = is_reclaimed && self.worker.takes_room(self.idle_ms());
            return if ends { Poll::Ready(NextRequest::Closed) } else { Poll::Pending };
        }
        Poll::Ready(if self.inbox.is_empty() {
            NextRequest::Closed
        } else {
            NextRequest::Refuse(FaultKind::ClientTimeout)
        })
    }

    /// Time since the connection became idle, in milliseconds.
    fn idle_ms(&self) -> u64 {
        let left_ms = self.timer.left_ms().unwrap_or(0);
        self.worker.settings.timeouts.idle_ms.saturating_sub(left_ms)
    }

    /// Whether the malformed first line resembles an HTTP request of any version. Other protocols would not
    /// understand a response.
    fn begins_http(&self) -> bool {
        let line = self.inbox.bytes().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        // An empty line may precede a request line (RFC 9112 §2.2).
        words.next().is_none()
            || words.next().is_some_and(|target| matches!(target[0], b'/' | b'*'))
            || line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"))
    }

    /// Counts a connection of an unknown protocol, which gets no response and no access log line.
    fn count_unknown_protocol(&self) {
        self.worker.counters.connections.unknown_protocols.add(1);
        tracing::debug!(client = %self.peer.client.peer, "unknown protocol: the first bytes are not HTTP");
    }

    /// Whether the inbox begins with the HTTP/2 preface (RFC 9113 §3.4).
    fn begins_http2(&self) -> bool {
        self.worker.settings.http2.enabled && self.inbox.bytes().starts_with(PREFACE_HEAD)
    }

    /// Shuts the connection down after all input was read; waits at most [`CLOSE_MS`].
    async fn close(mut self: Box<Self>) {
        self.timer.set(CLOSE_MS);
        let (stream, timer) = (&mut self.stream, &self.timer);
        poll_fn(|cx| match stream.poll_shutdown(cx) {
            Poll::Pending if !timer.is_over(cx) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }
}
