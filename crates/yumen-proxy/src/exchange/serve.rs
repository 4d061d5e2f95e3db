//! One exchange from its head to its outcome: route, plugins, upstream or local response, log.
//!
//! This file owns the order of the phases. It must not know the protocol of the client connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use yumen_http::{Fields, Framing, HttpVersion, KnownField, Method, RequestHead, parse};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    BodyIndexing, Exchange, ExchangeOutcome, IndexingProgress, LocalResponse, Phase, PluginChain,
    PluginInstance, Step,
};
use yumen_snapshot::explain::arrival;
use yumen_snapshot::{BodyRequired, Route, RouteTarget, Upstream, UpstreamSlotId};

use crate::debug::{self, DebugKey};
use crate::exchange::chains::{ExchangeChains, RouteChain};
use crate::exchange::client_wait::Wait;
use crate::exchange::connection::{DownstreamConnection, DownstreamPeer};
use crate::exchange::deadline;
use crate::exchange::disposition::After;
use crate::exchange::exchange_stats::ExchangeStats;
use crate::exchange::forward::forward;
use crate::exchange::forwarded;
use crate::exchange::mirror;
use crate::exchange::proxied::ProxiedExchange;
use crate::exchange::{reply, weighted};
use crate::fault::{Fault, FaultKind};
use crate::observe::{ExchangeStopwatch, RecentRequest, SampledExchange};
use crate::runtime::clock;
use crate::runtime::cold_future::box_cold;
use crate::tls::{self, ClientCertRefusal};
use crate::transport::http2::heads;
use crate::upstream::interim::InterimCount;
use crate::upstream::pinned_upstream::{PinnedUpstream, UpstreamVersions};
use crate::upstream::upload::RequestUpload;
use crate::worker::{PinnedSnapshot, Worker};

/// Size limit of bodies that are buffered for routes, filters and variables: 1 MiB.
const ROUTED_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Reason why an exchange ends before it reaches its upstream.
pub(crate) enum ExchangeStop {
    /// A plugin or the router sends a local response.
    Respond(LocalResponse),
    /// A local response after which the client has to open another connection.
    RespondAndDrain(LocalResponse),
    /// A failure, which is sent as the local response of its kind.
    Fault(Fault),
}

impl From<Fault> for ExchangeStop {
    fn from(fault: Fault) -> ExchangeStop {
        ExchangeStop::Fault(fault)
    }
}

impl From<ClientCertRefusal> for ExchangeStop {
    fn from(refusal: ClientCertRefusal) -> ExchangeStop {
        match refusal {
            ClientCertRefusal::Misdirected(answer) => ExchangeStop::Respond(answer),
            ClientCertRefusal::Uncertified(answer) => ExchangeStop::RespondAndDrain(answer),
        }
    }
}

impl From<FaultKind> for ExchangeStop {
    fn from(kind: FaultKind) -> ExchangeStop {
        ExchangeStop::Fault(kind.into())
    }
}

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
    let worker = conn.worker.clone();
    let peer = conn.peer.clone();
    let pinned = worker.pinned();
    let newer = UpstreamVersions::default();
    let mut flow = ExchangeStats { received_bytes: request.received_bytes(), ..ExchangeStats::default() };
    let mut ex = Exchange::new(request, &peer.client, clock::now(), &*worker, &pinned.consumers);
    ex.response.fields = worker.take_edits();
    if let Some(real_ip) = &worker.settings.forwarding.real_ip {
        real_ip.apply(&mut ex);
    }
    // After `real_ip`, which reads the forwarding fields that `distrust` removes.
    if !peer.trusted {
        forwarded::distrust(&mut ex.request.fields, &worker.settings.forwarding.trusted);
    }
    if let Some(watch) = &watch {
        watch.revision.set(pinned.revision);
        watch.request.replace(Some(RecentRequest::of(&ex, watch.weight)));
    }
    let mut chains = ExchangeChains::new(&pinned.global, watch);
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
            proxy(&mut proxied).await
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
    if ex.upstream.deadline_ms != 0 {
        // The cap would also end the next request on the connection.
        conn.timer.uncap();
    }
    finish(&worker, &mut ex, &chains, &flow);
    // Moved, since `take` would have to allocate replacements.
    recycle(&worker, ex.request, ex.response.fields);
    after
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

/// Runs routing and the plugin phases. Returns the route and its upstream, or the reason to stop.
async fn decide<'s>(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
    chains: &mut ExchangeChains<'s>,
) -> Result<(&'s Route, &'s Upstream), ExchangeStop> {
    check_before_routing(conn, ex, pinned)?;
    let found = pinned.find_before_body(ex);
    decided(ex)?;
    let found = match found {
        Ok(found) => found,
        Err(BodyRequired) => {
            // A condition of a route reads the body, so routing is repeated with the body in the buffer.
            read_variables(conn, ex).await?;
            let found = pinned.find(ex);
            decided(ex)?;
            found
        }
    };
    record_match(pinned, ex, chains);
    if let Some(route) = found {
        chains.route = RouteChain::Route(&route.chain);
    }
    if !chains.global.is_empty() {
        chains.global = pinned.global_rules(found);
        if chains.global.needs_body() {
            read_variables(conn, ex).await?;
        }
        run_global(conn, ex, chains, Phase::Rewrite).await?;
    }
    let Some(route) = found else {
        // Access plugins of global rules also guard requests without a route.
        run_global(conn, ex, chains, Phase::Access).await?;
        return Err(ExchangeStop::Respond(LocalResponse::error_msg(404, "404 Route Not Found")));
    };
    if let RouteTarget::Refuse { status, message } = &route.target {
        run_global(conn, ex, chains, Phase::Access).await?;
        return Err(ExchangeStop::Respond(LocalResponse::error_msg(*status, message)));
    }
    if !chains.are_empty() {
        run_route(conn, ex, pinned, chains, route).await?;
    }
    if heads::is_tunnel_request(&ex.request) && !route.enable_websocket {
        // Forwarding the extended CONNECT as a GET would change the request (RFC 8441 §4).
        return Err(FaultKind::ConnectRefused.into());
    }
    // The limit of a chunked body applies while the body is read.
    if matches!(ex.request.framing, Framing::Length(length) if length > conn.body_bytes_max(ex)) {
        return Err(FaultKind::BodyTooLarge.into());
    }
    let slot = match (ex.upstream.slot, &route.target) {
        (Some(slot), _) => UpstreamSlotId(slot),
        (None, RouteTarget::Upstream(slot)) => *slot,
        (None, RouteTarget::Weighted(of)) => weighted::pick(conn, ex, of).map_err(ExchangeStop::Respond)?,
        _ => return Err(FaultKind::NoEndpoint.into()),
    };
    match pinned.upstream(slot) {
        Some(upstream) => Ok((route, upstream)),
        None => Err(FaultKind::Unavailable.into()),
    }
}

/// Handles load shedding, CONNECT, TRACE, Max-Forwards and client certificates ahead of routing.
#[inline]
fn check_before_routing<'s>(
    conn: &DownstreamConnection,
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
) -> Result<(), ExchangeStop> {
    if let Some(overload) = &conn.worker.admission.overload {
        let running = overload.admit(ex.request.path(), conn.worker.random())?;
        ex.leave(running);
    }
    match ex.request.method() {
        Method::Connect => return Err(FaultKind::ConnectRefused.into()),
        Method::Trace if !conn.worker.settings.forwarding.trace_requests => {
            return Err(ExchangeStop::Respond(yumen_snapshot::trace_refusal()));
        }
        Method::Options | Method::Trace => {
            // TRACE and OPTIONS end at the gateway if Max-Forwards is 0 (RFC 9110 §7.6.2).
            if let Some(answer) = yumen_snapshot::max_forwards(ex) {
                return Err(ExchangeStop::Respond(answer));
            }
        }
        _ => {}
    }
    if pinned.requests_client_certificates()
        && let Some(refusal) = tls::refusal(pinned, ex)
    {
        return Err(refusal.into());
    }
    Ok(())
}

/// Stops with `FaultKind::Undecided` after an aborted match: the route and its guards are then unknown, so
/// neither a body is read nor a plugin called.
#[inline]
fn decided(ex: &Exchange<'_>) -> Result<(), ExchangeStop> {
    match ex.indecision() {
        None => Ok(()),
        Some(cause) => Err(FaultKind::from(cause).into()),
    }
}

/// Records the match of the route for a request with a debug token.
fn record_match<'s>(pinned: &'s PinnedSnapshot, ex: &mut Exchange<'s>, chains: &ExchangeChains<'_>) {
    if let Some(watch) = chains.explaining() {
        watch.arrival.replace(Some(arrival(pinned, ex)));
    }
}

/// Runs the phases of the route, and the plugins of the consumer once a plugin has authenticated it.
async fn run_route<'s>(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
    chains: &mut ExchangeChains<'s>,
    route: &'s Route,
) -> Result<(), ExchangeStop> {
    let watch = chains.watch.clone();
    let watch = watch.as_deref();
    if route.chain.needs_body() {
        read_variables(conn, ex).await?;
    }
    run(conn, ex, route.chain.rewrite(), Phase::Rewrite, watch).await?;
    if let Some(consumer) = ex.consumer
        && consumer.changes_plugins()
    {
        let merged = pinned.merged(route, consumer);
        chains.route = RouteChain::Merged(merged.clone());
        if merged.needs_body() {
            read_variables(conn, ex).await?;
        }
        run(conn, ex, merged.rewrite_in_consumer(), Phase::Rewrite, watch).await?;
    }
    run_global(conn, ex, chains, Phase::Access).await?;
    run(conn, ex, chains.route.access(), Phase::Access, watch).await
}

/// Reads the body for variables that take their values from it.
async fn read_variables(conn: &mut DownstreamConnection, ex: &mut Exchange<'_>) -> Result<(), Fault> {
    match ex.request.framing {
        Framing::None if ex.body.buffered.is_none() => return Ok(()),
        _ => box_cold(conn.read_body(ex, ROUTED_BODY_BYTES_MAX)).await?,
    }
    box_cold(index_variables(ex)).await
}

/// Indexes the buffered body in turns, so that the worker serves other connections in between.
async fn index_variables(ex: &Exchange<'_>) -> Result<(), Fault> {
    let mut indexing = BodyIndexing::default();
    loop {
        match indexing.turn(ex) {
            IndexingProgress::Done => return Ok(()),
            IndexingProgress::TooComplex => return Err(FaultKind::BodyTooLarge.into()),
            IndexingProgress::More => tokio::task::yield_now().await,
        }
    }
}

async fn run_global(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    chains: &ExchangeChains<'_>,
    phase: Phase,
) -> Result<(), ExchangeStop> {
    for instance in chains.global.of(phase) {
        if !chains.yields_to_route(instance) {
            run_one(conn, ex, instance, phase, chains.watch.as_deref()).await?;
        }
    }
    Ok(())
}

async fn run(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    list: &[Arc<PluginInstance>],
    phase: Phase,
    watch: Option<&ExchangeStopwatch>,
) -> Result<(), ExchangeStop> {
    for instance in list {
        run_one(conn, ex, instance, phase, watch).await?;
    }
    Ok(())
}

/// Runs one plugin, and calls it again after each body that it needed.
async fn run_one(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    instance: &PluginInstance,
    phase: Phase,
    watch: Option<&ExchangeStopwatch>,
) -> Result<(), ExchangeStop> {
    let admits = ex.admits(instance);
    decided(ex)?;
    // The filter of the instance may have aborted a match, which must not count as "does not apply".
    if !admits {
        return Ok(());
    }
    loop {
        let step = step(conn, ex, instance, phase);
        let settled = match watch {
            None => step.await,
            Some(watch) => {
                let is_answer = |settled: &ReadyStep| matches!(settled, ReadyStep::Respond(_));
                watch.step(instance, phase, step, is_answer).await
            }
        };
        match settled {
            ReadyStep::Continue => return Ok(()),
            ReadyStep::Respond(response) => {
                return Err(ExchangeStop::Respond(instance.apply_error_response(response)));
            }
            ReadyStep::NeedBody(bytes_max) => box_cold(conn.read_body(ex, bytes_max)).await?,
            ReadyStep::Over(kind) => return Err(kind.into()),
        }
    }
}

/// Calls a plugin once and awaits the future that it returns.
async fn step(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    instance: &PluginInstance,
    phase: Phase,
) -> ReadyStep {
    let step = match phase {
        Phase::Rewrite => instance.plugin.rewrite(ex),
        Phase::Access => instance.plugin.access(ex),
        // `ExchangeChains::each` runs the other phases, whose plugins return no step.
        _ => Step::Continue,
    };
    match step {
        Step::Continue => ReadyStep::Continue,
        Step::Respond(response) => ReadyStep::Respond(response),
        Step::NeedBody { bytes_max } => ReadyStep::NeedBody(bytes_max),
        Step::Wait(future) => settle(conn, future).await,
    }
}

/// A step without a future.
enum ReadyStep {
    Continue,
    Respond(LocalResponse),
    NeedBody(usize),
    /// The client has disconnected or the deadline has passed.
    Over(FaultKind),
}

/// Awaits the future of a plugin while the client stays connected and the deadline has not passed.
async fn settle(conn: &mut DownstreamConnection, mut future: LocalFuture<'_, Step<'_>>) -> ReadyStep {
    loop {
        let mut wait = None;
        let settled = poll_fn(|cx| {
            if let Poll::Ready(step) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(step));
            }
            // Created on the first pending poll: most futures are ready at once, and the client need not be
            // watched.
            let wait = wait.get_or_insert_with(|| Wait::begun(conn, 0));
            wait.poll_end(cx, conn, FaultKind::Deadline).map(Err)
        });
        match settled.await {
            Ok(Step::Continue) => return ReadyStep::Continue,
            Ok(Step::Respond(response)) => return ReadyStep::Respond(response),
            Ok(Step::NeedBody { bytes_max }) => return ReadyStep::NeedBody(bytes_max),
            Ok(Step::Wait(next)) => future = next,
            Err(kind) => return ReadyStep::Over(kind),
        }
    }
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
    }
    chains.each(ex, Phase::Log, |plugin, ex| plugin.log(ex, &outcome));
    if let Some(log) = &worker.recorders.access_log {
        let dropped = log.borrow_mut().write(ex, &outcome);
        worker.counters.runtime.log_lines_dropped.add(dropped);
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
