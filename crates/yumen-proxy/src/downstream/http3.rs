//! A client's connection of HTTP/3: its streams become exchanges, its end is orderly.
//!
//! Knows what a connection owes its client, and nothing of what becomes of an exchange.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
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
use crate::backlog::SendQueue;
use crate::clock;
use crate::connection::{DownstreamConnection, DownstreamPeer};
use crate::fault::FaultKind;
use crate::http2::heads;
use crate::http3::{
    HeadReadFailure, Http3Duplex, Http3SendQueue, Incoming, QuicConnection, Resolver, is_too_long, resolved,
    send_all, silence_ms,
};
use crate::serve;
use crate::stream::TransportStream;
use crate::timers::{Timer, until};
use crate::tls;
use crate::worker::{ConnectionGuard, Worker};

/// Why a connection ends that asked for too much (RFC 9114 §8.1).
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
/// How long a client that has all its answers may take to close, in milliseconds.
const LINGER_MS: u64 = 1000;
/// How often a connection that ends looks whether it has, in milliseconds.
const LOOK_MS: u64 = 50;
/// How long a client may ask from elsewhere than where its handshake has shown it to be, in milliseconds. An
/// address that does not answer is given up by the library before, after three seconds where round trips are usual.
const AWAY_MS: u64 = 4000;
/// For the library to send what closes a connection, in milliseconds.
const GOODBYE_MS: u64 = 20;

/// From a client's first datagram to the end of its connection; `shaking` is held until its handshake is over.
pub(crate) async fn open(
    worker: Rc<Worker>,
    incoming: quinn::Incoming,
    local: SocketAddr,
    shaking: impl Sized + 'static,
    admitted: ConnectionGuard,
) {
    let timer = worker.timers.timer();
    timer.set(worker.settings.handshake_timeout_ms);
    // The library takes a handshake from one address only. Asked later, it would tell where the newest datagram
    // says that it comes from.
    let address = incoming.remote_address();
    let Some((quic, library, over)) = until(&timer, pin!(handshake(&worker, incoming))).await.flatten()
    else {
        return worker.counters.handshake_failures.add(1);
    };
    worker.counters.handshakes.add(1);
    worker.counters.http3_connections.add(1);
    let client = ClientInfo {
        peer: address,
        local: SocketAddr::new(quic.local_ip().unwrap_or(local.ip()), local.port()),
        tls: Some(tls::quic_info(&quic)),
        connection: worker.counters.accepted.get(),
    };
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
            // It is told over as well where the connection was lost, and then nobody has shown that he asks now.
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
        gives_way: false,
        heard: None,
    };
    driver.run().await;
    // What closes it is sent by a task of the library's, which the worker must not end before.
    worker.timers.clone().sleep(GOODBYE_MS).await;
    drop(admitted);
}

/// A connection, and what tells that its handshake is over where that was not waited for.
type AcceptedQuic = (quinn::Connection, Library<QuicConnection, Bytes>, Option<ZeroRttAccepted>);

async fn handshake(worker: &Worker, incoming: quinn::Incoming) -> Option<AcceptedQuic> {
    let shaken = connect(incoming, worker.settings.http3.early_data).await;
    let (quic, over) = shaken.inspect_err(|error| tracing::debug!(%error, "http3 handshake failed")).ok()?;
    let head_bytes_max = worker.settings.request_head.head_bytes_max as u64;
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
    let told = connecting.handshake_data().await?;
    // Who asks is known only when all is over.
    if tls::asks_client(&*told) {
        return Ok((connecting.await?, None));
    }
    match connecting.into_0rtt() {
        Ok((quic, over)) => Ok((quic, Some(over))),
        Err(connecting) => Ok((connecting.await?, None)),
    }
}

/// What the streams of a connection share.
struct Http3Shared {
    worker: Rc<Worker>,
    quic: quinn::Connection,
    peer: RefCell<Rc<DownstreamPeer>>,
    streams: Rc<StreamSet>,
    queue: SendQueue,
    /// Requests the client took back, less those it did not.
    abandoned: Cell<u32>,
    /// The handshake is not over: what comes may be a copy of what came before.
    is_early: Cell<bool>,
    handshake_over: Notify,
}

impl Http3Shared {
    /// Who asks, at the IP address that the handshake has proven and the port that was used there last. Where
    /// else a datagram says that it comes from, anybody can write (RFC 9000 §9.3.1).
    fn peer(&self) -> Rc<DownstreamPeer> {
        let mut peer = self.peer.borrow_mut();
        let address = self.quic.remote_address();
        if peer.client.peer != address && peer.client.peer.ip() == address.ip() {
            let client = ClientInfo { peer: address, ..peer.client.clone() };
            *peer = Rc::new(DownstreamPeer::new(&self.worker, client));
        }
        peer.clone()
    }

    /// Whether the client asks, or somebody pretends that it does, from another IP address than the proven one.
    fn is_away(&self) -> bool {
        self.quic.remote_address().ip() != self.peer.borrow().client.peer.ip()
    }

    /// Lets a request pass that may be a copy, if it changes nothing, and holds others until it is none
    /// (RFC 8470 §3). False where that will never be known.
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

    /// Ends the connection of a client that asks for too much.
    fn refuse_flood(&self, why: &[u8]) {
        self.worker.counters.http3_floods.add(1);
        self.quic.close(EXCESSIVE_LOAD, why);
    }

    fn ended(&self, is_abandoned: bool) {
        let abandoned = self.abandoned.get();
        self.abandoned.set(if is_abandoned { abandoned + 1 } else { abandoned.saturating_sub(1) });
    }
}

struct Http3Driver {
    library: Library<QuicConnection, Bytes>,
    shared: Rc<Http3Shared>,
    stage: DrainStage,
    /// The client has asked something.
    has_accepted: bool,
    /// When a request first came from elsewhere. Not forgotten when the client comes back: who goes to and fro
    /// would be judged for ever by where he once was.
    away_since_ms: Option<u64>,
    /// It ends because others find no room.
    gives_way: bool,
    /// How often a client had acknowledged anything that has only that to do, and when it did last.
    heard: Option<(u64, u64)>,
}

enum Http3Event {
    Stream(Box<Resolver>),
    Over(Option<ConnectionError>),
    /// A deadline has passed.
    CheckIdle,
    /// The client is to ask elsewhere.
    Drain,
    /// The same, because others find no room.
    EndIdle,
    /// The client does not take its answers, and the worker holds too much.
    Stalled,
}

impl Http3Driver {
    async fn run(mut self) {
        let worker = self.shared.worker.clone();
        self.shared.streams.timer.set(worker.settings.idle_timeout_ms);
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
                Http3Event::EndIdle if self.give_way().await => return,
                Http3Event::Drain if self.leave().await => return,
                Http3Event::CheckIdle | Http3Event::EndIdle | Http3Event::Drain => {}
            }
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
            if streams.gives_way(stage, clock::now().mono_ms()) {
                return Poll::Ready(Http3Event::EndIdle);
            }
            if streams.timer.is_over(cx) { Poll::Ready(Http3Event::CheckIdle) } else { Poll::Pending }
        })
        .await
    }

    /// How long the connection goes on if nothing happens, in milliseconds. Nobody may ask for long, nor stay
    /// elsewhere: a client that does comes back with a handshake, and is judged by where it is now.
    fn left_ms(&self, now_ms: u64) -> u64 {
        let idle_ms = self.shared.streams.idle_ms(now_ms);
        let left_ms = self.shared.worker.settings.idle_timeout_ms.saturating_sub(idle_ms);
        match self.away_since_ms {
            Some(since_ms) if self.shared.is_away() => {
                left_ms.min((since_ms + AWAY_MS).saturating_sub(now_ms))
            }
            _ => left_ms,
        }
    }

    /// Tells the client to ask elsewhere; whether that ends the connection.
    async fn leave(&mut self) -> bool {
        self.stage = DrainStage::GoawaySent { told_ms: clock::now().mono_ms() };
        self.shared.streams.timer.set(LOOK_MS);
        // Where nothing was asked yet the library could say only that nothing will be served.
        self.has_accepted && self.library.shutdown(usize::MAX).await.is_err()
    }

    /// The same, where others find no room.
    async fn give_way(&mut self) -> bool {
        self.gives_way = true;
        self.leave().await
    }

    /// Whether the connection is over: nobody asks, or the client has moved.
    async fn look(&mut self) -> bool {
        let now_ms = clock::now().mono_ms();
        let idle_ms = self.shared.streams.idle_ms(now_ms);
        if self.stage != DrainStage::Serving && self.is_gone(now_ms) {
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
            DrainStage::GoawaySent { told_ms } => {
                self.shared.streams.timer.set(LOOK_MS);
                let round_trip_ms = self.shared.quic.rtt().as_millis() as u64;
                if self.shared.streams.leave_ms(told_ms, round_trip_ms, now_ms) > 0 {
                    return false;
                }
                self.stage = DrainStage::Ending;
                // Others do not wait until a client has been refused that asks nevertheless.
                if !self.gives_way {
                    self.shared.streams.wait_anew(now_ms);
                }
                // All that was accepted is served, and the next is not: its number is what the client is told.
                self.library.shutdown(1).await.is_err()
            }
            DrainStage::Ending => {
                // Closing destroys what is on its way. A stream is open until its client has acknowledged all of it or is
                // gone, but what refuses others is not waited for.
                self.shared.streams.timer.set(LOOK_MS);
                idle_ms >= LINGER_MS
            }
        }
    }

    /// Whether the client went without a word: all that its streams wait for is that it acknowledges what was said,
    /// and it has acknowledged nothing for long.
    fn is_gone(&mut self, now_ms: u64) -> bool {
        if !self.shared.streams.are_all_sent() {
            self.heard = None;
            return false;
        }
        let acknowledged = self.shared.quic.stats().frame_rx.acks;
        let since_ms = match self.heard {
            Some((known, since_ms)) if known == acknowledged => since_ms,
            _ => now_ms,
        };
        self.heard = Some((acknowledged, since_ms));
        now_ms - since_ms >= silence_ms(&self.shared.quic)
    }

    fn serve(&mut self, mut resolver: Resolver) {
        if self.stage == DrainStage::Ending {
            // It may be asked again elsewhere (RFC 9114 §5.2).
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

/// Counts a connection that ended for what the client did wrong.
fn note(worker: &Worker, error: &ConnectionError) {
    if let ConnectionError::Local { .. } = error {
        worker.counters.http3_faults.add(1);
        tracing::debug!(%error, "http3 connection failed");
    }
}

/// One stream from its first byte to its end.
async fn resolve(shared: &Rc<Http3Shared>, resolver: Resolver) {
    let worker = &shared.worker;
    let timer = worker.timers.timer();
    timer.set(worker.settings.head_timeout_ms);
    let size_max = worker.settings.request_head.head_bytes_max as u64;
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
    shared.ended(true);
    if let Some(kind) = kind {
        serve::note_refused(worker, &shared.peer(), HttpVersion::Http3, kind);
    }
}

/// One stream from its head to its end.
async fn exchange(shared: &Rc<Http3Shared>, request: Request<()>, stream: Incoming, timer: Timer) {
    let worker = shared.worker.clone();
    let (sender, receiver) = stream.split();
    let outgoing = Rc::new(Http3SendQueue::new(shared.queue.stream()));
    let sending = {
        let (entered, outgoing, quic) = (shared.streams.enter(), outgoing.clone(), shared.quic.clone());
        let stall_ms = worker.settings.send_timeout_ms;
        async move {
            send_all(sender, outgoing, quic, timer, stall_ms, || entered.mark_sent()).await;
            drop(entered);
        }
    };
    tokio::task::spawn_local(sending);
    let is_connect = request.method() == Method::CONNECT;
    let window_bytes = worker.settings.http3.stream_window_bytes as usize;
    let mut duplex = Http3Duplex::new(receiver, outgoing.clone(), length(&request), is_connect, window_bytes);
    // Nearly always it is known by now whether a body follows.
    let early = poll_fn(|cx| Poll::Ready(duplex.poll_incoming(cx))).await;
    let has_ended = matches!(early, Poll::Ready(Ok(()))) && duplex.has_ended() && !duplex.has_trailers();
    let conn = Box::new(DownstreamConnection::of(
        worker.clone(),
        shared.peer(),
        TransportStream::Http3(Box::new(duplex)),
    ));
    let mut head = worker.take_request();
    let limits = &worker.settings.request_head;
    let read = heads::refuse_connection_fields(request.headers())
        .and_then(|()| heads::read_request(&request, has_ended, limits, &mut head))
        .inspect_err(|_| heads::note_refused(&request, limits, &mut head));
    head.version = HttpVersion::Http3;
    let (mut conn, after) = shared::serve(conn, head, read).await;
    shared.streams.note(after);
    let TransportStream::Http3(duplex) = &mut conn.stream else { return };
    shared.ended(outgoing.is_broken() || duplex.is_torn());
    duplex.stop_incoming();
}

/// How long the head says the body is; what cannot be read is refused with the head.
fn length(request: &Request<()>) -> Option<u64> {
    let value = request.headers().get(http::header::CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}
