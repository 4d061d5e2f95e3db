//! Steps of an exchange ahead of its upstream: routing, and the phases of plugins.
//!
//! Ends with the route and the upstream, or with the reason to stop. It must not send anything to the client.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use yumen_http::{Framing, Method};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{BodyIndexing, Exchange, IndexingProgress, LocalResponse, Phase, PluginInstance, Step};
use yumen_snapshot::explain::arrival;
use yumen_snapshot::{BodyRequired, Route, RouteTarget, Router, ScopeOfRequest, Upstream, UpstreamSlotId};

use crate::exchange::chains::{ExchangeChains, RouteChain};
use crate::exchange::client_wait::Wait;
use crate::exchange::connection::DownstreamConnection;
use crate::exchange::session::ExchangeSession;
use crate::exchange::weighted;
use crate::fault::{Fault, FaultKind};
use crate::observe::ExchangeStopwatch;
use crate::runtime::cold_future::box_cold;
use crate::tls::{self, ClientCertRefusal};
use crate::transport::http2::heads;
use crate::worker::PinnedSnapshot;

/// Size limit of bodies that are buffered for routes, filters and variables: 1 MiB.
const ROUTED_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Reason why an exchange ends before it reaches its upstream.
pub(super) enum ExchangeStop {
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

/// Runs routing and the plugin phases. Returns the route and its upstream, or the reason to stop.
pub(super) async fn decide<'s>(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
    chains: &mut ExchangeChains<'s>,
) -> Result<(&'s Route, &'s Upstream), ExchangeStop> {
    check_before_routing(conn, ex)?;
    let router = routing_table(ex, pinned, chains)?;
    let found = router.map_or(Ok(None), |router| router.find_before_body(ex));
    decided(ex)?;
    let found = match found {
        Ok(found) => found,
        Err(BodyRequired) => {
            // A condition of a route reads the body, so routing is repeated with the body in the buffer.
            read_variables(conn, ex).await?;
            let found = router.and_then(|router| router.find(ex, &mut ()));
            decided(ex)?;
            found
        }
    };
    record_match(pinned, ex, chains);
    if let Some(route) = found {
        chains.route = RouteChain::Route(&route.chain);
    }
    if !chains.global.is_empty() {
        chains.global = pinned.rules_for(chains.global, found);
        if chains.global.needs_body() {
            read_variables(conn, ex).await?;
        }
        run_global(conn, ex, chains, Phase::Rewrite).await?;
    }
    let Some(route) = found else {
        // Access plugins of global rules also guard requests without a route.
        run_global(conn, ex, chains, Phase::Access).await?;
        return Err(no_route(ex, pinned));
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
    if let Some(session) = route.forwarding.as_ref().and_then(|rules| rules.session.as_deref()) {
        chains.session = Some(ExchangeSession::begin(&conn.worker, ex, session));
    }
    let slot = match (ex.upstream.slot, &route.target) {
        (Some(slot), _) => UpstreamSlotId(slot),
        (None, RouteTarget::Upstream(slot)) => *slot,
        (None, RouteTarget::Weighted(of)) => {
            weighted::pick(conn, ex, pinned, chains, of).map_err(ExchangeStop::Respond)?
        }
        _ => return Err(FaultKind::NoEndpoint.into()),
    };
    let upstream = pinned.upstream(slot).ok_or(FaultKind::Unavailable)?;
    if let Some(session) = &chains.session {
        session.bind(ex, upstream);
    }
    Ok((route, upstream))
}

/// Handles load shedding, CONNECT, TRACE and Max-Forwards ahead of routing.
#[inline]
fn check_before_routing(conn: &DownstreamConnection, ex: &mut Exchange<'_>) -> Result<(), ExchangeStop> {
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
    Ok(())
}

/// The routing table of a request, after the checks of its client certificate; `None` if no scope has the host.
#[inline]
fn routing_table<'s>(
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
    chains: &mut ExchangeChains<'s>,
) -> Result<Option<&'s Router>, ExchangeStop> {
    let client = ex.client.connection;
    if client.listener.is_static() {
        if pinned.requests_client_certificates()
            && let Some(refusal) = tls::refusal(pinned, ex)
        {
            return Err(refusal.into());
        }
        return Ok(Some(&pinned.router));
    }
    match pinned.scope_of_request(client, ex.request.host()) {
        ScopeOfRequest::Misdirected => Err(tls::misdirected().into()),
        ScopeOfRequest::Found(None) => Ok(None),
        ScopeOfRequest::Found(Some(scope)) => {
            if scope.client_mode().is_some()
                && let Some(refusal) = tls::scope_refusal(scope, ex)
            {
                return Err(refusal.into());
            }
            chains.global = pinned.rules_of_scope(Some(scope));
            ex.consumers = pinned.consumers_of_scope(Some(scope));
            Ok(Some(&scope.router))
        }
    }
}

/// The response to a request without a route.
#[cold]
fn no_route(ex: &Exchange<'_>, pinned: &PinnedSnapshot) -> ExchangeStop {
    let listener = ex.client.connection.listener;
    if listener.is_static() {
        return ExchangeStop::Respond(LocalResponse::error_msg(404, "404 Route Not Found"));
    }
    // Text instead of APISIX's JSON: clients of the Gateway API parse JSON, and a response to HEAD has none.
    let not_found = LocalResponse::status(404)
        .field("Content-Type", "text/plain; charset=utf-8")
        .body("404 Route Not Found\n");
    // The listener was closed, and another connection may reach its successor.
    if pinned.listener(listener).is_none() {
        return ExchangeStop::RespondAndDrain(not_found);
    }
    match pinned.scope_of(listener, ex.request.host()) {
        Some(scope) if scope.is_broken() => {
            ExchangeStop::Respond(LocalResponse::error_msg(503, "the scope is misconfigured"))
        }
        _ => ExchangeStop::Respond(not_found),
    }
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
    if route.chain.needs_body() {
        read_variables(conn, ex).await?;
    }
    run(conn, ex, route.chain.rewrite(), Phase::Rewrite, &mut chains.watch).await?;
    if let Some(consumer) = ex.consumer
        && consumer.changes_plugins()
    {
        let merged = pinned.merged(route, consumer);
        chains.route = RouteChain::Merged(merged.clone());
        if merged.needs_body() {
            read_variables(conn, ex).await?;
        }
        run(conn, ex, merged.rewrite_in_consumer(), Phase::Rewrite, &mut chains.watch).await?;
    }
    run_global(conn, ex, chains, Phase::Access).await?;
    run(conn, ex, chains.route.access(), Phase::Access, &mut chains.watch).await
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
    chains: &mut ExchangeChains<'_>,
    phase: Phase,
) -> Result<(), ExchangeStop> {
    let global = chains.global;
    for instance in global.of(phase) {
        if !chains.yields_to_route(instance) {
            run_one(conn, ex, instance, phase, &mut chains.watch).await?;
        }
    }
    Ok(())
}

async fn run(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    list: &[Arc<PluginInstance>],
    phase: Phase,
    watch: &mut Option<Rc<ExchangeStopwatch>>,
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
    watch: &mut Option<Rc<ExchangeStopwatch>>,
) -> Result<(), ExchangeStop> {
    let admits = ex.admits(instance);
    decided(ex)?;
    // The filter of the instance may have aborted a match, which must not count as "does not apply".
    if !admits {
        return Ok(());
    }
    loop {
        let step = step(conn, ex, instance, phase);
        let settled = match watch.as_deref() {
            None => step.await,
            Some(watch) => {
                let is_answer = |settled: &ReadyStep| matches!(settled, ReadyStep::Respond(_));
                watch.step(instance, phase, step, is_answer).await
            }
        };
        if ex.requires_timeline() {
            start_timeline(watch);
        }
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

/// Records the times of the plugins and attempts that follow.
#[cold]
fn start_timeline(watch: &mut Option<Rc<ExchangeStopwatch>>) {
    watch.get_or_insert_with(|| Rc::new(ExchangeStopwatch::start(0, false))).trace();
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

#[cfg(test)]
mod tests;
