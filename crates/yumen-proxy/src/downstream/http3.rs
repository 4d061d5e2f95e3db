//! Downstream HTTP/3 connection: turns its streams into exchanges and ends it with GOAWAY (RFC 9114 §5.2).
//!
//! Owns handshake, drain and idle timeout. Must not depend on the serving of exchanges.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::server::Connection as Library;
use http::{HeaderValue, Method, Request};
use quinn::{VarInt, ZeroRttAccepted};
use tokio::sync::Notify;
use yumen_http::HttpVersion;
use yumen_plugin::ClientInfo;

use super::shared;
use super::streams::{DrainStage, StreamSet};
use crate::exchange::connection::{DownstreamConnection, DownstreamPeer};
use crate::exchange::serve;
use crate::fault::FaultKind;
use crate::runtime::backlog::SendQueue;
use crate::runtime::clock;
use crate::runtime::timers::{Timer, until};
use crate::tls;
use crate::transport::http2::heads;
use crate::transport::http3::{
    HeadReadFailure, Http3Duplex, Http3SendQueue, Incoming, QuicConnection, Resolver, is_too_long, resolved,
    send_all, silence_ms,
};
use crate::transport::stream::TransportStream;
use crate::worker::{ConnectionGuard, Worker};

/// H3_EXCESSIVE_LOAD: the code that closes a connection whose client exceeds a limit (RFC 9114 §8.1).
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
/// Time for the client to close a connection after the last response, in milliseconds.
const LINGER_MS: u64 = 1000;
/// Interval at which an ending connection checks whether it is done, in milliseconds.
const LOOK_MS: u64 = 50;
/// Time for which requests may come from another IP address than the one that the handshake validated, in
/// milliseconds. The library usually abandons an address that fails path validation earlier, after about
/// three seconds.
const AWAY_MS: u64 = 4000;
/// Time for the library to send CONNECTION_CLOSE, in milliseconds.
const GOODBYE_MS: u64 = 20;

/// Serves a connection from the client's first datagram to its close. `shaking` is dropped when the handshake
/// ends.
pub(crate) async fn open(
    worker: Rc<Worker>,
    incoming: quinn::Incoming,
    mut client: ClientInfo,
    shaking: impl Sized + 'static,
    admitted: ConnectionGuard,
) {
    let timer = worker.timers.timer();
    timer.set(worker.settings.timeouts.handshake_ms);
    let Some((quic, library, over)) = until(&timer, pin!(handshake(&worker, incoming))).await.flatten()
    else {
        return worker.counters.connections.handshake_failures.add(1);
    };
    worker.counters.connections.handshakes.add(1);
    worker.counters.http3.connections.add(1);
    if let Some(ip) = quic.local_ip() {
        // Only the datagrams have the address that the client dialed.
        client.local.set_ip(ip);
    }
    client.tls = Some(tls::quic_info(&quic));
    let shared = Rc::new(Http3Shared {
        peer: RefCell::new(Rc::new(DownstreamPeer::new(&worker, client))),
        streams: StreamSet::new(&worker, timer),
        queue: worker.buffers.backlog.client_queue(),
        abandoned: Cell::new(0),
        is_early: Cell::new(over.is_some()),
        handshake_over: Notify::new(),
        quic,
        worker: worker.clone(),
    });
    if let Some(over) = over {
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            over.await;
            // The future also completes when the connection is lost. Then no handshake has ruled out a
            // replay, and requests stay early.
            shared.is_early.set(shared.quic.close_reason().is_some());
            shared.handshake_over.notify_waiters();
            drop(shaking);
        });
    } else {
        drop(shaking);
    }
    let stage = DrainStage::Serving;
    let driver = Http3Driver {
        library,
        shared,
        stage,
        has_accepted: false,
        away_since_ms: None,
        frees_capacity: false,
        silence: None,
    };
    driver.run().await;
    // A task of the library sends CONNECTION_CLOSE; the worker must not end before it.
    worker.timers.clone().sleep(GOODBYE_MS).await;
    drop(admitted);
}

/// A connection, and the end of its handshake if requests are accepted as early data.
type AcceptedQuic = (quinn::Connection, Library<QuicConnection, Bytes>, Option<ZeroRttAccepted>);

async fn handshake(worker: &Worker, incoming: quinn::Incoming) -> Option<AcceptedQuic> {
    let shaken = connect(incoming, worker.settings.http3.early_data).await;
    let (quic, over) = shaken.inspect_err(|error| tracing::debug!(%error, "http3 handshake failed")).ok()?;
    let head_bytes_max = worker.settings.limits.request_head.head_bytes_max as u64;
    let library = h3::server::builder()
        .max_field_section_size(head_bytes_max)
        .send_grease(false)
        .enable_extended_connect(true)
        .build(QuicConnection::new(quic.clone(), head_bytes_max))
        .await
        .ok()?;
    Some((quic, library, over))
}

async fn connect(
    incoming: quinn::Incoming,
    takes_early: bool,
) -> Result<(quinn::Connection, Option<ZeroRttAccepted>), quinn::ConnectionError> {
    let mut connecting = incoming.accept()?;
    if !takes_early {
        return Ok((connecting.await?, None));
    }
    let handshake = connecting.handshake_data().await?;
    // The client certificate is not known before the handshake ends, so such a connection takes no early
    // data.
    if tls::requests_client_certificate(&*handshake) {
        return Ok((connecting.await?, None));
    }
    match connecting.into_0rtt() {
        Ok((quic, over)) => Ok((quic, Some(over))),
        Err(connecting) => Ok((connecting.await?, None)),
    }
}

/// State shared by the streams of a connection.
struct Http3Shared {
    worker: Rc<Worker>,
    quic: quinn::Connection,
    peer: RefCell<Rc<DownstreamPeer>>,
    streams: Rc<StreamSet>,
    queue: SendQueue,
    /// Requests that the client canceled, minus those that it did not; never below 0.
    abandoned: Cell<u32>,
    /// Whether the handshake is in progress: early data may be a replay (RFC 8470 §2).
    is_early: Cell<bool>,
    handshake_over: Notify,
}

impl Http3Shared {
    /// The peer, at the IP address that the handshake validated and the newest port at that address. Any host
    /// can forge the source of a datagram (RFC 9000 §9.3.1).
    fn peer(&self) -> Rc<DownstreamPeer> {
        let mut peer = self.peer.borrow_mut();
        let address = self.quic.remote_address();
        if peer.client.peer != address && peer.client.peer.ip() == address.ip() {
            let client = ClientInfo { peer: address, ..peer.client.clone() };
            *peer = Rc::new(DownstreamPeer::new(&self.worker, client));
        }
        peer.clone()
    }

    /// Whether datagrams come from another IP address than the validated one.
    fn is_away(&self) -> bool {
        self.quic.remote_address().ip() != self.peer.borrow().client.peer.ip()
    }

    /// Admits early data at once if the method is safe, and otherwise waits for the end of the handshake
    /// (RFC 8470 §3). False if the connection is lost first.
    async fn admit(&self, request: &mut Request<()>) -> bool {
        if self.is_early.get() && request.method().is_safe() {
            request.headers_mut().insert("early-data", HeaderValue::from_static("1"));
            return true;
        }
        while self.is_early.get() {
            if self.quic.close_reason().is_some() {
                return false;
            }
            self.handshake_over.notified().await;
        }
        true
    }

    /// Counts a flood and closes the connection with H3_EXCESSIVE_LOAD.
    fn refuse_flood(&self, why: &[u8]) {
        self.worker.counters.http3.floods.add(1);
        self.quic.close(EXCESSIVE_LOAD, why);
    }

    fn ended(&self, is_abandoned: bool) {
        // Finished requests count down, so the limit is reached only by a client that cancels most of its
        // requests (rapid reset).
        let abandoned = self.abandoned.get();
        self.abandoned.set(if is_abandoned { abandoned + 1 } else { abandoned.saturating_sub(1) });
    }
}

struct Http3Driver {
    library: Library<QuicConnection, Bytes>,
    shared: Rc<Http3Shared>,
    stage: DrainStage,
    /// Whether the client has sent a request.
    has_accepted: bool,
    /// Time of the first request from another address. It stays set when the client returns; otherwise a
    /// client that alternates between two addresses would never be drained.
    away_since_ms: Option<u64>,
    /// Whether the connection ends to free capacity for other connections.
    frees_capacity: bool,
    /// Set while all streams only wait for acknowledgements.
    silence: Option<AckSilence>,
}

/// A wait for acknowledgements.
#[derive(Debug, Clone, Copy)]
struct AckSilence {
    /// ACK frames received so far.
    ack_frames: u64,
    /// Time of the last change of `ack_frames`.
    since_ms: u64,
}

enum Http3Event {
    Stream(Box<Resolver>),
    Over(Option<ConnectionError>),
    /// The timer expired.
    CheckIdle,
    /// The worker drains or a response ended the connection: send GOAWAY.
    Drain,
    /// The worker needs capacity and this connection is idle: send GOAWAY.
    EndIdle,
    /// The client does not read responses, and the worker's backlog is too large.
    Stalled,
}

impl Http3Driver {
    async fn run(mut self) {
        let worker = self.shared.worker.clone();
        self.shared.streams.timer.set(worker.settings.timeouts.idle_ms);
        loop {
            match self.next().await {
                Http3Event::Stream(resolver) => self.serve(*resolver),
                Http3Event::Over(error) => {
                    if error.as_ref().is_some_and(is_too_long) {
                        return self.shared.refuse_flood(b"a frame is too long");
                    }
                    return error.iter().for_each(|error| note(&worker, error));
                }
                Http3Event::Stalled => {
                    return self.shared.quic.close(EXCESSIVE_LOAD, b"answers are not read");
                }
                Http3Event::CheckIdle if self.look().await => return,
                Http3Event::EndIdle if self.leave_for_capacity().await => return,
                Http3Event::Drain if self.leave().await => return,
                Http3Event::CheckIdle | Http3Event::EndIdle | Http3Event::Drain => {}
            }
            // Cancelled requests share the limit of HTTP/2 control frames (decision 25).
            if self.shared.abandoned.get() > worker.settings.http2.patience {
                return self.shared.refuse_flood(b"too many requests taken back");
            }
        }
    }

    async fn next(&mut self) -> Http3Event {
        let Http3Driver { library, shared, stage, .. } = self;
        let (streams, queue, stage) = (&shared.streams, &shared.queue, *stage);
        let mut accepting = pin!(library.accept());
        poll_fn(|cx| {
            if let Poll::Ready(accepted) = accepting.as_mut().poll(cx) {
                return Poll::Ready(match accepted {
                    Ok(Some(resolver)) => Http3Event::Stream(Box::new(resolver)),
                    Ok(None) => Http3Event::Over(None),
                    Err(error) => Http3Event::Over(Some(error)),
                });
            }
            if queue.is_over(cx) {
                return Poll::Ready(Http3Event::Stalled);
            }
            if streams.should_leave(cx) && stage == DrainStage::Serving {
                return Poll::Ready(Http3Event::Drain);
            }
            if streams.should_free_capacity(stage, clock::now().mono_ms()) {
                return Poll::Ready(Http3Event::EndIdle);
            }
            if streams.timer.is_over(cx) { Poll::Ready(Http3Event::CheckIdle) } else { Poll::Pending }
        })
        .await
    }

    /// Time until the connection is drained if nothing happens, in milliseconds. A client at another address
    /// gets at most [`AWAY_MS`]: its next connection validates that address.
    fn left_ms(&self, now_ms: u64) -> u64 {
        let idle_ms = self.shared.streams.idle_ms(now_ms);
        let left_ms = self.shared.worker.settings.timeouts.idle_ms.saturating_sub(idle_ms);
        match self.away_since_ms {
            Some(since_ms) if self.shared.is_away() => {
                left_ms.min((since_ms + AWAY_MS).saturating_sub(now_ms))
            }
            _ => left_ms,
        }
    }

    /// Sends the first GOAWAY; true if the connection has failed.
    async fn leave(&mut self) -> bool {
        self.stage = DrainStage::GoawaySent { goaway_ms: clock::now().mono_ms() };
        self.shared.streams.timer.set(LOOK_MS);
        // Before the first request the library could only send a GOAWAY that refuses every stream.
        self.has_accepted && self.library.shutdown(usize::MAX).await.is_err()
    }

    /// Sends the first GOAWAY to free capacity for other connections; true if the connection has failed.
    async fn leave_for_capacity(&mut self) -> bool {
        self.frees_capacity = true;
        self.leave().await
    }

    /// Handles an expired timer; true if the connection is to be closed.
    async fn look(&mut self) -> bool {
        let now_ms = clock::now().mono_ms();
        let idle_ms = self.shared.streams.idle_ms(now_ms);
        if self.stage != DrainStage::Serving && self.is_unresponsive(now_ms) {
            return true;
        }
        match self.stage {
            DrainStage::Serving => {
                let left_ms = self.left_ms(now_ms);
                if left_ms == 0 {
                    return self.leave().await;
                }
                self.shared.streams.timer.set(left_ms);
                false
            }
            DrainStage::GoawaySent { goaway_ms } => {
                self.shared.streams.timer.set(LOOK_MS);
                let round_trip_ms = self.shared.quic.rtt().as_millis() as u64;
                if self.shared.streams.leave_ms(goaway_ms, round_trip_ms, now_ms) > 0 {
                    return false;
                }
                self.stage = DrainStage::Ending;
                // A connection that frees capacity is not kept open for clients that ignore the GOAWAY.
                if !self.frees_capacity {
                    self.shared.streams.wait_anew(now_ms);
                }
                // All accepted streams are served. The second GOAWAY carries the identifier of the first
                // stream that is not.
                self.library.shutdown(1).await.is_err()
            }
            DrainStage::Ending => {
                // A close destroys data in flight, so a stream counts as open until the client has
                // acknowledged all of it or is lost. Rejected streams are not waited for.
                self.shared.streams.timer.set(LOOK_MS);
                idle_ms >= LINGER_MS
            }
        }
    }

    /// Whether the client has vanished: all streams wait for acknowledgements only, and none has arrived for
    /// [`silence_ms`].
    fn is_unresponsive(&mut self, now_ms: u64) -> bool {
        if !self.shared.streams.are_all_sent() {
            self.silence = None;
            return false;
        }
        let ack_frames = self.shared.quic.stats().frame_rx.acks;
        let silence = match self.silence {
            Some(silence) if silence.ack_frames == ack_frames => silence,
            _ => AckSilence { ack_frames, since_ms: now_ms },
        };
        self.silence = Some(silence);
        now_ms - silence.since_ms >= silence_ms(&self.shared.quic)
    }

    fn serve(&mut self, mut resolver: Resolver) {
        if self.stage == DrainStage::Ending {
            // H3_REQUEST_REJECTED: the client may retry on another connection (RFC 9114 §5.2).
            return h3::quic::SendStream::<Bytes>::reset(
                &mut resolver.frame_stream,
                Code::H3_REQUEST_REJECTED.value(),
            );
        }
        self.has_accepted = true;
        let (shared, entered) = (self.shared.clone(), self.shared.streams.enter());
        tokio::task::spawn_local(async move {
            resolve(&shared, resolver).await;
            drop(entered);
        });
        if self.stage == DrainStage::Serving && self.shared.is_away() {
            let now_ms = clock::now().mono_ms();
            self.away_since_ms.get_or_insert(now_ms);
            self.shared.streams.timer.set(self.left_ms(now_ms).max(1));
        }
    }
}

/// Counts a connection that the gateway closed for a protocol error of the client.
fn note(worker: &Worker, error: &ConnectionError) {
    if let ConnectionError::Local { .. } = error {
        worker.counters.http3.faults.add(1);
        tracing::debug!(%error, "http3 connection failed");
    }
}

/// Serves one stream from its first byte to its end.
async fn resolve(shared: &Rc<Http3Shared>, resolver: Resolver) {
    let worker = &shared.worker;
    let timer = worker.timers.timer();
    timer.set(worker.settings.timeouts.head_ms);
    let size_max = worker.settings.limits.request_head.head_bytes_max as u64;
    let kind = match resolved(resolver, &timer, size_max).await {
        Ok((mut request, stream)) => {
            if shared.admit(&mut request).await {
                exchange(shared, request, stream, timer).await;
            }
            return;
        }
        Err(HeadReadFailure::Late) => Some(FaultKind::ClientTimeout),
        Err(HeadReadFailure::Refused(error)) => Some(FaultKind::Head(error)),
        Err(HeadReadFailure::Gone) => None,
    };
    // A head that was refused or never completed counts like a cancelled request.
    shared.ended(true);
    if let Some(kind) = kind {
        serve::note_refused(worker, &shared.peer(), HttpVersion::Http3, kind);
    }
}

/// Serves one stream from behind its head to its end.
async fn exchange(shared: &Rc<Http3Shared>, request: Request<()>, stream: Incoming, timer: Timer) {
    let worker = shared.worker.clone();
    let (sender, receiver) = stream.split();
    let outgoing = Rc::new(Http3SendQueue::new(shared.queue.stream()));
    let sending = {
        // The library drains the send queue after the exchange has ended; the stream counts as open until the
        // client has acknowledged it (decision 25).
        let (entered, outgoing, quic) = (shared.streams.enter(), outgoing.clone(), shared.quic.clone());
        let stall_ms = worker.settings.timeouts.send_ms;
        async move {
            send_all(sender, outgoing, quic, timer, stall_ms, || entered.mark_sent()).await;
            drop(entered);
        }
    };
    tokio::task::spawn_local(sending);
    let is_connect = request.method() == Method::CONNECT;
    let window_bytes = worker.settings.http3.stream_window_bytes as usize;
    let mut duplex = Http3Duplex::new(receiver, outgoing.clone(), length(&request), is_connect, window_bytes);
    // The end of the stream has usually arrived by now, so a request without a body is recognized before
    // routing.
    let early = poll_fn(|cx| Poll::Ready(duplex.poll_incoming(cx))).await;
    let has_ended =
        matches!(early, Poll::Ready(Ok(()))) && duplex.end_trailers().is_some_and(<[u8]>::is_empty);
    let conn = Box::new(DownstreamConnection::of(
        worker.clone(),
        shared.peer(),
        TransportStream::Http3(Box::new(duplex)),
    ));
    let mut head = worker.take_request();
    let limits = &worker.settings.limits.request_head;
    let read = heads::refuse_connection_fields(request.headers())
        .and_then(|()| heads::read_request(&request, has_ended, limits, &mut head))
        .inspect_err(|_| heads::note_refused(&request, limits, &mut head));
    // `read_request` sets HTTP/2.
    head.version = HttpVersion::Http3;
    let (mut conn, after) = shared::serve(conn, head, read).await;
    shared.streams.note(after);
    let TransportStream::Http3(duplex) = &mut conn.stream else { return };
    shared.ended(outgoing.is_broken() || duplex.has_read_failed());
    duplex.stop_incoming();
}

/// Value of `Content-Length`. A malformed value is refused with the head.
fn length(request: &Request<()>) -> Option<u64> {
    let value = request.headers().get(http::header::CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}
