//! TCP streams and UDP sessions, forwarded without reading HTTP.
//!
//! A stream takes its route and upstream from the snapshot at its start and keeps these two alive, not the
//! snapshot: a stream may live for days. This module must not know HTTP beyond the empty request that plugins
//! receive.

pub(crate) mod arrival;
mod dial;
mod phases;
mod relay;
pub(crate) mod udp;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use yumen_plugin::{
    ClientInfo, ConsumerIndex, Exchange, ExchangeOutcome, PluginHost, ResponseSource, StreamInfo,
};
use yumen_snapshot::{RouteTarget, StreamLookup, StreamRoute, Upstream};

use crate::copy::one_way_copy::BidirectionalCopy;
pub(crate) use crate::fault::stream::StreamFault;
use crate::observe::otlp_record;
use crate::runtime::buffer::Inbox;
use crate::runtime::clock;
use crate::runtime::timers::Timer;
use crate::settings::StreamProtocol;
use crate::tls::DownstreamTlsAcceptor;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::worker::Worker;

/// The downstream side of a stream.
struct L4Downstream {
    stream: TransportStream,
    /// Bytes received from the client and not forwarded yet.
    inbox: Inbox,
    timer: Timer,
}

/// Counts of a stream for its outcome.
#[derive(Debug, Default)]
struct Tally {
    attempts: u32,
    endpoint: Option<SocketAddr>,
    /// Time of the first attempt, in microseconds of the monotonic clock.
    first_attempt_us: Option<u64>,
    received_bytes: u64,
    sent_bytes: u64,
}

/// Forwards a TCP connection until it ends.
pub(crate) async fn run(
    worker: Rc<Worker>,
    mut tcp: TcpConnection,
    mut client: ClientInfo,
    mut protocol: StreamProtocol,
    mut tls: Option<Rc<DownstreamTlsAcceptor>>,
) {
    let began_us = clock::now().mono_us;
    if tls.is_some() && arrival::passes_through(&worker, &mut tcp, &client).await {
        (protocol, tls) = (StreamProtocol::TlsPassthrough, None);
    }
    let _open = worker.counters.streams.open(protocol);
    let stream = TransportStream::Tcp(tcp);
    let mut downstream = L4Downstream { stream, inbox: Inbox::default(), timer: worker.timers.timer() };
    let arrived = arrival::open(&worker, &mut downstream, &mut client, protocol, tls.as_deref()).await;
    let found = arrived.and_then(|()| find(&worker, &client));
    let route = found.as_ref().ok().cloned();
    let mut ex = exchange(&worker, &client, protocol, route.as_deref());
    let mut tally = Tally::default();
    let ended = match found {
        Ok(route) => pass(&worker, &mut downstream, &mut ex, &route, &mut tally).await,
        Err(fault) => Err(fault),
    };
    if ended.is_err() {
        // A regular close would mark the incomplete stream as complete.
        downstream.stream.tcp().into_iter().for_each(TcpConnection::reset_on_close);
    }
    finish(&worker, ex, route.as_deref(), &tally, ended.err(), began_us);
}

/// Finds the route of a stream in the current snapshot.
fn find(worker: &Worker, client: &ClientInfo) -> Result<Arc<StreamRoute>, StreamFault> {
    // Host names are compared without case (RFC 6066 §3).
    let sni = client.tls.as_ref().and_then(|tls| tls.sni.as_deref()).map(str::to_ascii_lowercase);
    // A dual-stack socket reports IPv4 addresses in their mapped form.
    let remote = client.peer.ip().to_canonical();
    let server = SocketAddr::new(client.local.ip().to_canonical(), client.dialed_port());
    let ask = StreamLookup { remote, server, sni: sni.as_deref() };
    // Only the route is retained: the snapshot of a stream that lives for days must be freed (decision 22).
    let pinned = worker.pinned();
    let streams = pinned.streams_of(client.listener, sni.as_deref());
    streams.and_then(|streams| streams.find(&ask)).cloned().ok_or(StreamFault::NoRoute)
}

/// Returns the upstream of a route in the current snapshot.
fn upstream(worker: &Worker, route: &StreamRoute) -> Result<Arc<Upstream>, StreamFault> {
    match &route.target {
        RouteTarget::Upstream(slot) => {
            worker.pinned().shared_upstream(*slot).cloned().ok_or(StreamFault::Unavailable)
        }
        RouteTarget::Weighted(targets) => {
            let slot = targets.pick(worker.random()).and_then(|target| target.slot);
            slot.and_then(|slot| worker.pinned().shared_upstream(slot).cloned())
                .ok_or(StreamFault::Unavailable)
        }
        RouteTarget::None | RouteTarget::Refuse { .. } => Err(StreamFault::Unavailable),
    }
}

/// Creates the exchange that plugins receive for a stream; its request is empty.
fn exchange<'s>(
    worker: &'s Worker,
    client: &'s ClientInfo,
    protocol: StreamProtocol,
    route: Option<&'s StreamRoute>,
) -> Exchange<'s> {
    static NOBODY: OnceLock<ConsumerIndex> = OnceLock::new();
    let consumers = NOBODY.get_or_init(ConsumerIndex::default);
    let mut ex = Exchange::new(worker.take_request(), client, clock::now(), worker, consumers);
    ex.client.stream = Some(StreamInfo { protocol: protocol.name(), mqtt_client_id: None });
    ex.route.info = route.map(|route| &route.info);
    ex
}

/// Runs the plugins, connects to an endpoint and copies in both directions.
async fn pass(
    worker: &Rc<Worker>,
    downstream: &mut L4Downstream,
    ex: &mut Exchange<'_>,
    route: &StreamRoute,
    tally: &mut Tally,
) -> Result<(), StreamFault> {
    // Taken before the plugins run, since the snapshot may change while they wait.
    let upstream = upstream(worker, route)?;
    phases::access(&route.chain, ex).await?;
    if !route.chain.preread().is_empty() {
        phases::preread(worker, downstream, &route.chain, ex).await?;
    }
    // An aborted match in the last plugin must also stop the stream before the dial.
    phases::decided(ex)?;
    let mut back = dial::connect(worker, ex, &upstream, &downstream.timer, tally).await?;
    let idle_ms = upstream.streams.idle_ms.unwrap_or(worker.settings.streams.idle_ms);
    let tie = worker.ties.bind_stream(&worker.timers, &upstream, tally.endpoint);
    let pair = BidirectionalCopy::new(std::mem::take(&mut downstream.inbox), Inbox::default(), idle_ms);
    let mut relay = relay::Relay { pair, tie };
    let ended = relay.run(worker, &downstream.timer, &mut downstream.stream, &mut back.stream).await;
    (tally.received_bytes, tally.sent_bytes) = relay.bytes();
    if ended.is_err() {
        // The endpoint must not take the truncated stream for a complete one.
        back.stream.tcp().into_iter().for_each(TcpConnection::reset_on_close);
    }
    ended
}

/// Records the outcome of a stream: plugins' log phase, counters, access log.
fn finish(
    worker: &Worker,
    mut ex: Exchange<'_>,
    route: Option<&StreamRoute>,
    tally: &Tally,
    fault: Option<StreamFault>,
    began_us: u64,
) {
    let now = clock::now();
    let outcome = ExchangeOutcome {
        // The `$status` of the stream module of NGINX.
        status: fault.map_or(200, StreamFault::status),
        source: if tally.endpoint.is_some() && fault.is_none() {
            ResponseSource::Upstream
        } else {
            ResponseSource::Gateway
        },
        received_bytes: tally.received_bytes,
        sent_bytes: tally.sent_bytes,
        sent_head_bytes: 0,
        duration_us: now.mono_us.saturating_sub(began_us),
        upstream_us: tally
            .first_attempt_us
            .map(|first_attempt_us| now.mono_us.saturating_sub(first_attempt_us)),
        endpoint: tally.endpoint,
        upstream_status: None,
        attempts: tally.attempts,
        fault: fault.map_or("", StreamFault::word),
        upstream_failure: None,
    };
    // Logs and metrics belong to the end of the stream, not to its start.
    ex.now = now;
    ex.response.status = outcome.status;
    ex.endpoint.address = tally.endpoint;
    ex.record_outcome(&outcome);
    if let Some(route) = route {
        phases::log(&route.chain, &mut ex, &outcome);
    }
    worker.counters.streams.finish(fault, &outcome);
    if let Some(log) = &worker.recorders.access_log {
        let dropped = log.borrow_mut().write(&ex, &outcome);
        worker.counters.runtime.log_lines_dropped.add(dropped);
    }
    if let Some(sink) = &worker.recorders.otlp_log {
        worker.append_entry(sink, &mut |out| otlp_record::write(&ex, &outcome, out));
    }
    if let Some(fault) = fault {
        tracing::debug!(fault = fault.word(), client = %ex.client.connection.peer, "stream ended by a fault");
    }
    worker.recycle_request_head(ex.request);
}
