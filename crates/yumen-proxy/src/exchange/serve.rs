//! One exchange from its head to its outcome: route, plugins, upstream or local response, log.
//!
//! This file owns the order of the phases. It must not know the protocol of the client connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use yumen_http::{Fields, Framing, HttpVersion, KnownField, RequestHead, parse};
use yumen_plugin::{
    Exchange, ExchangeOutcome, ExchangeTrace, LogPreparation, Phase, PluginChain, PluginHost,
};

use crate::debug::{self, DebugKey};
use crate::exchange::chains::ExchangeChains;
use crate::exchange::connection::{DownstreamConnection, DownstreamPeer};
use crate::exchange::deadline;
use crate::exchange::decide::{ExchangeStop, decide};
use crate::exchange::disposition::After;
use crate::exchange::exchange_stats::ExchangeStats;
use crate::exchange::forward::forward;
use crate::exchange::forwarded;
use crate::exchange::mirror;
use crate::exchange::proxied::ProxiedExchange;
use crate::exchange::reply;
use crate::fault::{Fault, FaultKind};
use crate::observe::{ExchangeStopwatch, RecentRequest, SampledExchange, otlp_record};
use crate::runtime::clock;
use crate::runtime::cold_future::box_cold;
use crate::settings::RealIpFinder;
use crate::upstream::interim::InterimCount;
use crate::upstream::pinned_upstream::{PinnedUpstream, UpstreamVersions};
use crate::upstream::upload::RequestUpload;
use crate::worker::{PinnedSnapshot, Worker};

/// Serves one request. A stopwatch runs for sampled requests and for those with a valid debug token.
pub(crate) async fn exchange(conn: &mut DownstreamConnection, mut request: Box<RequestHead>) -> After {
    let weight = conn.worker.recorders.sampler.draw();
    let explains = match &conn.worker.settings.observation.debug_key {
        Some(key) => take_token(key, &mut request),
        None => false,
    };
    let watch = (weight > 0 || explains).then(|| Rc::new(ExchangeStopwatch::start(weight, explains)));
    let mut walking = pin!(walk(conn, request, watch.clone()));
    // A single call site of `poll` can be inlined.
    poll_fn(|cx| {
        watch.as_deref().inspect(|watch| watch.resume());
        let polled = walking.as_mut().poll(cx);
        watch.as_deref().inspect(|watch| watch.pause());
        polled
    })
    .await
}

/// Removes the debug token and returns whether it is valid. The token is never forwarded.
fn take_token(key: &DebugKey, request: &mut RequestHead) -> bool {
    let Some(token) = request.fields.known(KnownField::XYumenDebug) else { return false };
    let is_valid = debug::verify(key, token, clock::now().unix_s());
    request.fields.remove(KnownField::XYumenDebug.name());
    is_valid
}

/// Serves an exchange from its head to its outcome.
async fn walk(
    conn: &mut DownstreamConnection,
    request: Box<RequestHead>,
    watch: Option<Rc<ExchangeStopwatch>>,
) -> After {
    let (worker, peer) = (conn.worker.clone(), conn.peer.clone());
    let pinned = worker.pinned();
    let newer = UpstreamVersions::default();
    let mut flow = ExchangeStats { received_bytes: request.received_bytes(), ..ExchangeStats::default() };
    let mut ex = Exchange::new(request, &peer.client, clock::now(), &*worker, &pinned.consumers);
    ex.response.fields = worker.take_edits();
    // Ahead of routing, whose conditions may read the address.
    if let Some(real_ip) = real_ip_of(&worker, &pinned, &peer) {
        real_ip.apply(&mut ex);
    }
    // After `real_ip`, which reads fields that this removes.
    if !peer.trusted {
        forwarded::distrust(&mut ex.request.fields, &worker.settings.forwarding.trusted);
    }
    if let Some(watch) = &watch {
        watch.revision.set(pinned.revision);
        let listener = pinned.listener(peer.client.listener).map(|listener| &*listener.id);
        watch.request.replace(Some(RecentRequest::of(&ex, listener, watch.weight)));
    }
    let mut chains = ExchangeChains::new(pinned.rules_before_routing(&peer.client), watch);
    let after = match decide(conn, &mut ex, &pinned, &mut chains).await {
        // An aborted match invalidates every decision that follows from it, also one of the last plugin.
        _ if ex.is_undecided() => {
            let kind = ex.indecision().map_or(FaultKind::Undecided, FaultKind::from);
            reply::send_fault(conn, &mut ex, &chains, kind.into(), &mut flow).await
        }
        Ok((route, upstream)) => {
            chains.upstream = Some(upstream);
            if !ex.upstream.mirrors.is_empty() {
                mirror::send_all(conn, &mut ex, &pinned, upstream);
            }
            let mut proxied = ProxiedExchange {
                conn,
                ex: &mut ex,
                chains: &chains,
                route,
                pinned: PinnedUpstream::new(upstream, &newer),
                flow: &mut flow,
                upload: RequestUpload::new(),
                interim: InterimCount::default(),
            };
            let after = proxy(&mut proxied).await;
            if proxied.ex.has_taps() {
                proxied.ex.set_request_tap(proxied.upload.transfer.tap.take());
            }
            after
        }
        Err(ExchangeStop::Respond(response)) => {
            reply::answer(conn, &mut ex, &chains, response, &mut flow).await
        }
        Err(ExchangeStop::RespondAndDrain(response)) => {
            flow.is_last = true;
            reply::answer(conn, &mut ex, &chains, response, &mut flow).await
        }
        Err(ExchangeStop::Fault(fault)) => reply::send_fault(conn, &mut ex, &chains, fault, &mut flow).await,
    };
    if conn.timer.cap_ms().is_some() {
        // The cap would also end the next request on the connection.
        conn.timer.uncap();
    }
    finish(&worker, &mut ex, &chains, &flow);
    // Moved, since `take` would have to allocate replacements.
    recycle(&worker, ex.request, ex.response.fields);
    after
}

/// The search for the client address on the listener of a connection.
#[inline]
fn real_ip_of<'s>(
    worker: &'s Worker,
    pinned: &'s PinnedSnapshot,
    peer: &DownstreamPeer,
) -> Option<&'s RealIpFinder> {
    let listener = pinned.listener(peer.client.listener);
    let of_listener = listener.and_then(|listener| listener.settings.real_ip.as_ref());
    of_listener.or(worker.settings.forwarding.real_ip.as_ref())
}

/// Forwards an exchange to an endpoint and sends the response to the client.
async fn proxy(proxied: &mut ProxiedExchange<'_, '_>) -> After {
    let total_ms = proxied.timeouts().total_ms;
    let is_bounded =
        total_ms != 0 || proxied.ex.upstream.deadline_ms != 0 || proxied.conn.timer.cap_ms().is_some();
    if is_bounded && let Err(fault) = deadline::begin(proxied.conn, proxied.ex, total_ms) {
        return send_proxied_fault(proxied, fault).await;
    }
    proxied.flow.total_ms = total_ms;
    match forward(proxied).await {
        Ok(attempt) if proxied.ex.response.errors.is_some() => {
            box_cold(reply::pass_on_or_replace(proxied, attempt)).await
        }
        Ok(attempt) if proxied.ex.response.translator.is_some() => {
            box_cold(reply::pass_on_translated(proxied, attempt)).await
        }
        Ok(attempt) => reply::pass_on(proxied, attempt).await,
        Err(fault) => send_proxied_fault(proxied, fault).await,
    }
}

async fn send_proxied_fault(proxied: &mut ProxiedExchange<'_, '_>, fault: Fault) -> After {
    let ProxiedExchange { conn, ex, chains, flow, .. } = proxied;
    reply::send_fault(conn, ex, chains, fault, flow).await
}

/// Refuses a request with an invalid head. `head` is the parsed part of it on HTTP/2 and HTTP/3, where heads
/// are not in the inbox.
pub(crate) async fn refuse(
    conn: &mut DownstreamConnection,
    kind: FaultKind,
    head: Option<Box<RequestHead>>,
) -> After {
    let worker = conn.worker.clone();
    let peer = conn.peer.clone();
    let pinned = worker.pinned();
    let request = head.unwrap_or_else(|| {
        let mut request = worker.take_request();
        parse::refused_request(conn.inbox.bytes(), &worker.settings.limits.request_head, &mut request);
        request
    });
    let mut ex = Exchange::new(request, &peer.client, clock::now(), &*worker, &pinned.consumers);
    let nothing = PluginChain::default();
    let chains = ExchangeChains::new(&nothing, None);
    let mut flow = ExchangeStats { fault: Some(kind.into()), ..ExchangeStats::default() };
    let after = reply::send_fault(conn, &mut ex, &chains, kind.into(), &mut flow).await;
    finish(&worker, &mut ex, &chains, &flow);
    // Moved, since `take` would have to allocate replacements.
    recycle(&worker, ex.request, ex.response.fields);
    after
}

/// Logs and counts an invalid head that the protocol library has rejected by itself.
pub(crate) fn note_refused(
    worker: &Rc<Worker>,
    peer: &DownstreamPeer,
    version: HttpVersion,
    kind: FaultKind,
) {
    let pinned = worker.pinned();
    let mut ex =
        Exchange::new(worker.take_request(), &peer.client, clock::now(), &**worker, &pinned.consumers);
    ex.request.version = version;
    let flow = ExchangeStats { fault: Some(kind.into()), status: kind.facts().1, ..ExchangeStats::default() };
    let nothing = PluginChain::default();
    finish(worker, &mut ex, &ExchangeChains::new(&nothing, None), &flow);
    recycle(worker, ex.request, ex.response.fields);
}

/// Records the outcome once per exchange: counters, plugins' log phase, access log, sample.
fn finish(worker: &Worker, ex: &mut Exchange<'_>, chains: &ExchangeChains<'_>, flow: &ExchangeStats) {
    let now_us = clock::now().mono_us;
    let outcome = ExchangeOutcome {
        status: flow.status,
        source: flow.source,
        received_bytes: flow.received_bytes + ex.body.received_bytes,
        sent_bytes: flow.sent_bytes,
        sent_head_bytes: flow.sent_head_bytes,
        duration_us: now_us.saturating_sub(ex.now.mono_us),
        upstream_us: flow.upstream_us,
        endpoint: ex.endpoint.address,
        upstream_status: Some(ex.endpoint.status).filter(|status| *status != 0),
        attempts: flow.attempts,
        fault: flow.fault.map_or("", |fault| fault.kind.facts().2),
        upstream_failure: flow.fault.and_then(|fault| endpoint_failure(ex, flow, fault.kind)),
    };
    worker.counters.requests.finish(&outcome);
    if let Some(status) = flow.grpc_status {
        worker.counters.requests.grpc[usize::from(status)].add(1);
    }
    if !chains.are_empty() {
        ex.record_outcome(&outcome);
        if let Some(trace) = ex.note::<ExchangeTrace>().filter(|trace| trace.is_sampled) {
            worker.counters.requests.exemplars.note(trace, outcome.duration_us, ex.now.unix_ms);
        }
        chains.each(ex, Phase::PrepareLog, |plugin, ex| plugin.prepare_log(&mut LogPreparation::new(ex)));
        if ex.requires_timeline()
            && let Some(watch) = &chains.watch
        {
            ex.set_timeline(Box::new(watch.timeline()));
        }
        chains.each(ex, Phase::Log, |plugin, ex| plugin.log(ex, &outcome));
    }
    if let Some(log) = worker.recorders.access_log.as_ref().filter(|_| !ex.response.is_unlogged) {
        let dropped = log.borrow_mut().write(ex, &outcome);
        worker.counters.runtime.log_lines_dropped.add(dropped);
    }
    if let Some(sink) = worker.recorders.otlp_log.as_ref().filter(|_| !ex.response.is_unlogged) {
        worker.append_entry(sink, &mut |out| otlp_record::write(ex, &outcome, out));
    }
    if let Some(watch) = &chains.watch {
        observe(worker, ex, chains, watch, flow, &outcome);
    }
}

/// Returns the status of a fault that the endpoint has caused.
#[cold]
fn endpoint_failure(ex: &Exchange<'_>, flow: &ExchangeStats, kind: FaultKind) -> Option<u16> {
    let is_endpoints = match kind {
        FaultKind::Deadline => flow.attempts > 0 && is_silent_for_total(ex, flow),
        kind => kind.is_endpoints(),
    };
    is_endpoints.then_some(kind.facts().1)
}

/// Whether the endpoint used up the total timeout. A client that still sends its body or receives the
/// response may have used the time itself, so such an exchange does not count against the endpoint.
fn is_silent_for_total(ex: &Exchange<'_>, flow: &ExchangeStats) -> bool {
    let spent_ms = clock::now().mono_ms().saturating_sub(ex.now.mono_ms());
    let is_over = flow.total_ms != 0 && spent_ms >= flow.total_ms;
    is_over && ex.request.framing == Framing::None && ex.endpoint.status == 0
}

/// Returns the allocations of an exchange to the worker.
fn recycle(worker: &Worker, request: Box<RequestHead>, edits: Fields) {
    worker.recycle_fields(edits);
    worker.recycle_request_head(request);
}

/// Adds a sampled exchange to the usage table and to the recent requests.
#[cold]
fn observe(
    worker: &Worker,
    ex: &Exchange<'_>,
    chains: &ExchangeChains<'_>,
    watch: &ExchangeStopwatch,
    flow: &ExchangeStats,
    outcome: &ExchangeOutcome<'_>,
) {
    let Some(mut recent) = watch.request.take().filter(|_| watch.weight > 0) else { return };
    recent.finish(ex, outcome.status);
    let is_recorded = worker.counters.observed.note(SampledExchange {
        weight: watch.weight,
        total_ns: watch.total_ns(),
        busy_ns: watch.busy_ns(),
        upstream_ns: flow.upstream_started_us.map(|started_us| {
            outcome.upstream_us.unwrap_or_else(|| clock::now().mono_us.saturating_sub(started_us)) * 1000
        }),
        outcome,
        route: ex.route.info.map(|route| (&*route.id, &*route.name)),
        upstream: chains.upstream.map(|upstream| &*upstream.origin),
        consumer: ex.consumer.map(|consumer| &*consumer.username),
        plugins: &watch.plugins.borrow(),
        recent,
        recent_max: worker.settings.observation.recent_requests,
    });
    if !is_recorded {
        worker.recorders.sampler.give_back(watch.weight);
    }
}
