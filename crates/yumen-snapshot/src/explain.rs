//! Explains how a request is handled, with the router, plugins and balancer that serve, but without serving
//! it.
//!
//! Does no I/O, changes no counter and no position of a balancer. Independent of concrete plugins and of
//! listeners.

mod arrival_listener;
mod backends;
mod error_form;
mod match_explanation;
mod origin;
mod reason;
mod render;
mod sent;
mod simulation;
mod stream;
mod synthetic_request;
#[cfg(test)]
mod tests;
mod upstream_choice;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use yumen_base::Problem;
use yumen_config::{InvalidSettings, Kind};
use yumen_plugin::{Exchange, Fields, Method, Now};

pub use arrival_listener::ScopeSelection;
pub use match_explanation::{MatchExplanation, OutrankedRoute, arrival};
pub use stream::{ExplainedStream, StreamCandidate, StreamChoice, StreamExplanation};
pub use yumen_config::resource::Question;

use crate::router::RouteMismatch;
use crate::{MismatchReason, Route, RouteTarget, ScopeOfRequest, Snapshot, Upstream, UpstreamSlotId};
use arrival_listener::certificate_choice;
use backends::{nowhere, shares, weighted_targets};
use simulation::{RequestSimulation, SimulatedResponse};
use synthetic_request::{DryRunHost, SyntheticRequest};
use upstream_choice::{endpoints, upstream_choice};

/// The number of routes of other hosts or paths that are listed one by one.
const NEAREST_MAX: usize = 5;

/// Returns the text of an object.
pub type TextOf<'b> = dyn Fn(Kind, &str) -> Option<Arc<str>> + 'b;

/// Ports of a node's first listeners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerPorts {
    /// Without TLS.
    pub http: Option<u16>,
    /// With TLS.
    pub https: Option<u16>,
}

/// Context beside the snapshot. Only the time, on which limits depend, and the ports influence the result.
#[derive(Clone, Copy, Default)]
pub struct ExplainContext<'b> {
    /// The time of the request.
    pub now: Now,
    /// The current problems.
    pub problems: &'b [Problem],
    /// The text of an object as it was last written.
    pub text: Option<&'b TextOf<'b>>,
    /// The ports of requests with a URL without a port.
    pub listeners: ListenerPorts,
}

/// The handling of a request, with reasons.
#[derive(Debug, Clone, Serialize)]
pub struct RequestExplanation {
    /// Revision of the snapshot.
    pub revision: u64,
    /// The request as it was understood.
    pub request: ExplainedRequest,
    /// The scope of the request; `None` on a listener of the node's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeSelection>,
    /// The certificate that the client gets; `None` without TLS.
    pub certificate: Option<CertificateChoice>,
    /// The matching route; `None` is a 404.
    pub route: Option<RouteChoice>,
    /// Routes that were examined and lost, in that order; if no route matched, also the nearest others.
    pub candidates: Vec<RouteCandidate>,
    /// The number of routes for other hosts.
    pub other_hosts: usize,
    /// The number of routes of this host for other paths.
    pub other_paths: usize,
    /// Why the route that the question names does not get the request.
    pub why_not: Option<RouteCandidate>,
    /// The consumer, if one is identified.
    pub consumer: Option<Box<str>>,
    /// Plugins in running order.
    pub plugins: Vec<ExplainedStep>,
    /// The local response, if no upstream gets the request.
    pub answer: Option<ExplainedResponse>,
    /// The upstream and the request to it.
    pub upstream: Option<UpstreamChoice>,
    /// Further remarks.
    pub remarks: Vec<String>,
}

/// A request as it was understood.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedRequest {
    /// The method.
    pub method: String,
    /// The host for route matching.
    pub host: String,
    /// The path for route matching: decoded, dot segments resolved.
    pub path: String,
    /// The client address.
    pub client_ip: String,
    /// The server name of the handshake; `None` without TLS.
    pub sni: Option<String>,
}

/// A certificate and the reason for its choice.
#[derive(Debug, Clone, Serialize)]
pub struct CertificateChoice {
    /// Id of its object; `None` for the node's default certificate.
    pub id: Option<Box<str>>,
    /// The name of that object that matched.
    pub matched: Option<String>,
}

/// The route that matched.
#[derive(Debug, Clone, Serialize)]
pub struct RouteChoice {
    /// Id of the route.
    pub id: Box<str>,
    /// Name of the route.
    pub name: Box<str>,
    /// The Kubernetes object that a translated route comes from, such as `HTTPRoute/shop/cart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<str>>,
    /// Id of its service.
    pub service_id: Box<str>,
    /// The path pattern that matched.
    pub matched_uri: String,
    /// The host pattern that matched; empty for any host.
    pub matched_host: String,
    /// Priority of the route.
    pub priority: i32,
    /// Path parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// A route that did not get the request.
#[derive(Debug, Clone, Serialize)]
pub struct RouteCandidate {
    /// Id of the route, or the text of the question if there is no such route.
    pub route: Box<str>,
    /// The condition on which it lost; `None` if it did not compete, or won.
    pub lost: Option<MismatchReason>,
    /// The reason in words.
    pub why: String,
}

/// The decision of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginDecision {
    /// The request continues.
    Continues,
    /// The plugin responds.
    Answers,
    /// The decision was assumed, since the question names the consumer.
    Assumed,
    /// Unknown without running the plugin.
    Unknown,
    /// Its `_meta.filter` does not match.
    Skipped,
    /// Another plugin responded before.
    NotReached,
    /// The plugin also has settings in the route, which run instead.
    StepsBack,
    /// The plugin runs for the response or the log.
    Later,
}

/// One plugin in one phase.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedStep {
    /// Name of the plugin.
    pub plugin: &'static str,
    /// The object with its settings, such as `routes/1`.
    pub origin: Arc<str>,
    /// The phase.
    pub phase: &'static str,
    /// Priority of the plugin.
    pub priority: i32,
    /// The decision.
    pub decision: PluginDecision,
    /// Details of the decision.
    pub says: Option<String>,
}

/// A local response, before the plugins of the response phases.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedResponse {
    /// The plugin; `None` for the gateway.
    pub plugin: Option<&'static str>,
    /// The object with that plugin's settings.
    pub origin: Option<Arc<str>>,
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body, at most 400 characters.
    pub body: String,
}

/// An upstream with its endpoints.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamView {
    /// The object that defines it: `upstreams/1`, `routes/1`, `stream_routes/1`.
    pub origin: Arc<str>,
    /// `http` or `https`; of a stream `tcp`, `tls` or `udp`.
    pub scheme: &'static str,
    /// Name of the balancer.
    pub balancer: &'static str,
    /// The endpoint that the first worker would choose next.
    pub next: Option<String>,
    /// All endpoints.
    pub endpoints: Vec<EndpointView>,
    /// Host names among its nodes, and its service, without addresses known here.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub unresolved: Box<[Box<str>]>,
}

impl UpstreamView {
    /// The state of an upstream; `next` is the index of the endpoint that would be chosen.
    pub fn of(upstream: &Upstream, next: Option<usize>) -> UpstreamView {
        UpstreamView {
            origin: upstream.origin.clone(),
            scheme: upstream.protocol.scheme.name(),
            balancer: upstream.selection.balancer.name(),
            next: next.map(|index| upstream.endpoints[index].addr.to_string()),
            endpoints: endpoints(upstream),
            unresolved: upstream.unresolved.clone(),
        }
    }
}

/// The upstream and the request to it.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamChoice {
    /// The part that does not depend on the request.
    #[serde(flatten)]
    pub view: UpstreamView,
    /// Method of the upstream request.
    pub method: String,
    /// `Host` of the upstream request; `None` if it is the name of an endpoint that is not known yet.
    pub host: Option<String>,
    /// Path and query of the upstream request.
    pub path: String,
    /// Whether plugins changed the path.
    pub is_rewritten: bool,
    /// Fields that plugins set or changed.
    pub headers_set: BTreeMap<String, String>,
    /// Fields of the client that plugins removed.
    pub headers_removed: Vec<String>,
    /// Fields in which the gateway itself describes the client and its request.
    pub headers_sent: BTreeMap<String, String>,
}

/// An endpoint of an upstream.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointView {
    /// Address and port.
    pub address: String,
    /// The host as written in the node.
    pub host: Box<str>,
    /// Weight.
    pub weight: u32,
    /// Priority.
    pub priority: i32,
    /// The result of health checks; `None` without checks.
    pub healthy: Option<bool>,
    /// Whether the endpoint is ejected; `None` without outlier detection.
    pub ejected: Option<bool>,
    /// Whether the balancer may choose it now.
    pub in_rotation: bool,
}

/// Explains the handling of a request.
///
/// An error has the path of the invalid member of the question.
pub fn explain(
    snapshot: &Snapshot,
    question: &Question,
    context: &ExplainContext<'_>,
) -> Result<RequestExplanation, InvalidSettings> {
    let synthetic = SyntheticRequest::new(question, context.now, context.listeners, snapshot)?;
    let mut ex = synthetic.exchange(&snapshot.consumers);
    let client = ex.client.connection;
    let router = snapshot.router_of(client, ex.request.host());
    // Aside: the trace evaluates conditions that serving would not reach.
    let trace = ex.aside(|ex| router.map(|router| router.explain(ex).1)).unwrap_or_default();
    let at_once = at_once(snapshot, &mut ex);
    // No route is looked up for a request that is answered before routing.
    let winner = at_once.is_none().then(|| find(snapshot, &mut ex)).flatten();
    // Before the plugins run, which may rewrite method, host and path.
    let request = explained_request(&ex, synthetic.sni());
    let scope = ScopeSelection::of(snapshot, client, ex.request.host());
    let route = winner.map(|route| route_choice(route, &ex, context));
    let why_not = question.why_not.as_deref();
    let reasons = ex.aside(|ex| reason::reasons(snapshot, ex, winner, &trace, why_not, context));
    // The simulated plugins change the fields; the explanation lists the differences.
    let before = ex.request.fields.clone();
    let thought = match at_once {
        Some(answered) => SimulatedSteps::at_once(answered),
        None => simulate_steps(snapshot, &mut ex, winner, question.consumer.as_deref(), Some(&before)),
    };
    let mut remarks = thought.remarks;
    let certificate = synthetic.sni().map(|sni| certificate_choice(snapshot, client.listener, sni));
    let (certificate, refused) = certificate.unwrap_or_default();
    remarks.extend(refused);
    let stale = reason::stale(winner, context, &remarks);
    remarks.extend(stale);
    let assumed = synthetic.assumed_port().filter(|_| ex.requested_port());
    remarks.extend(assumed.map(|port| {
        format!("server_port is assumed to be {port}: the URL has no port, and no listener is known")
    }));
    Ok(RequestExplanation {
        revision: snapshot.revision,
        request,
        scope,
        certificate,
        route,
        candidates: reasons.candidates,
        other_hosts: reasons.other_hosts,
        other_paths: reasons.other_paths,
        why_not: reasons.why_not,
        consumer: ex.consumer.map(|consumer| consumer.username.clone()),
        plugins: thought.steps,
        answer: thought.answer,
        upstream: thought.upstream,
        remarks,
    })
}

/// The explanation of a question.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum ExplainResult {
    /// A request.
    Request(Box<RequestExplanation>),
    /// A TCP connection or a UDP session: the URL begins with `tcp:`, `tls:` or `udp:`.
    Stream(Box<StreamExplanation>),
}

impl ExplainResult {
    /// Visits the header fields that plugins and the gateway write, by name and value.
    pub fn visit_fields(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        let ExplainResult::Request(explained) = self else { return };
        let sent = explained
            .upstream
            .iter_mut()
            .flat_map(|choice| choice.headers_set.iter_mut().chain(choice.headers_sent.iter_mut()));
        let answered = explained.answer.iter_mut().flat_map(|answer| answer.headers.iter_mut());
        sent.chain(answered).for_each(|(name, value)| visit(name, value));
    }
}

/// Explains the request or stream of the question; see [`explain`].
pub fn explain_any(
    snapshot: &Snapshot,
    question: &Question,
    context: &ExplainContext<'_>,
) -> Result<ExplainResult, InvalidSettings> {
    match stream::SyntheticStream::parse(snapshot, question)? {
        Some(arriving) => {
            let explained = stream::explain(snapshot, &arriving, question, context);
            Ok(ExplainResult::Stream(Box::new(explained)))
        }
        None => explain(snapshot, question, context).map(Box::new).map(ExplainResult::Request),
    }
}

/// The short form of [`explain`]: the destination of a request, in about the time it takes to serve one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestDestination {
    /// Id of the route.
    pub route: Option<Box<str>>,
    /// Status of the local response.
    pub status: Option<u16>,
    /// The plugin that responds.
    pub plugin: Option<&'static str>,
    /// The object that defines the upstream.
    pub upstream: Option<Arc<str>>,
}

/// The destination of a request, by [`Snapshot::find`] and the plugins.
pub fn outcome(
    snapshot: &Snapshot,
    question: &Question,
    now: Now,
) -> Result<RequestDestination, InvalidSettings> {
    let followed = follow(snapshot, question, now)?;
    Ok(RequestDestination {
        route: followed.route,
        status: followed.answer.as_ref().map(|answer| answer.status),
        plugin: followed.answer.and_then(|answer| answer.plugin),
        upstream: followed.upstream.map(|upstream| upstream.view.origin),
    })
}

/// A request simulated to its end, without the routes that lost.
pub(crate) struct SimulatedRequest {
    pub(crate) route: Option<Box<str>>,
    pub(crate) answer: Option<ExplainedResponse>,
    pub(crate) upstream: Option<UpstreamChoice>,
    pub(crate) certificate: Option<Box<str>>,
    fields: Fields,
}

impl SimulatedRequest {
    /// The value of a field in the upstream request; several lines are joined.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let own = self.upstream.iter().flat_map(|upstream| &upstream.headers_sent);
        // Fields of the gateway replace those of the client at the end, so they are looked up first.
        if let Some((_, value)) = own.into_iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name)) {
            return Some(value.clone());
        }
        let values: Vec<String> = self.fields.all(name).map(text).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

pub(crate) fn follow(
    snapshot: &Snapshot,
    question: &Question,
    now: Now,
) -> Result<SimulatedRequest, InvalidSettings> {
    // Without ports of listeners, so that a policy test has the same result on every node and on none.
    let synthetic = SyntheticRequest::new(question, now, ListenerPorts::default(), snapshot)?;
    let mut ex = synthetic.exchange(&snapshot.consumers);
    let at_once = at_once(snapshot, &mut ex);
    let winner = at_once.is_none().then(|| find(snapshot, &mut ex)).flatten();
    let thought = match at_once {
        Some(answered) => SimulatedSteps::at_once(answered),
        None => simulate_steps(snapshot, &mut ex, winner, question.consumer.as_deref(), None),
    };
    let listener = ex.client.connection.listener;
    let certificate = synthetic.sni().and_then(|sni| certificate_choice(snapshot, listener, sni).0);
    Ok(SimulatedRequest {
        route: winner.map(|route| route.info.id.clone()),
        answer: thought.answer,
        upstream: thought.upstream,
        certificate: certificate.and_then(|certificate| certificate.id),
        fields: std::mem::take(&mut ex.request.fields),
    })
}

/// The response before route matching, as in serving.
fn at_once(snapshot: &Snapshot, ex: &mut Exchange<'_>) -> Option<SimulatedResponse> {
    match ex.request.method() {
        // As in serving: CONNECT asks for a tunnel, which the gateway does not open.
        Method::Connect => Some(SimulatedResponse::gateway(405, "CONNECT is not supported")),
        Method::Trace if !snapshot.router.rules.trace_requests => {
            Some(SimulatedResponse { plugin: None, origin: None, response: crate::trace_refusal() })
        }
        // `Max-Forwards` applies to these two methods only (RFC 9110 §7.6.2).
        Method::Options | Method::Trace => {
            let response = crate::max_forwards(ex)?;
            Some(SimulatedResponse { plugin: None, origin: None, response })
        }
        _ if ex.client.connection.listener.is_static() => None,
        _ => match snapshot.scope_of_request(ex.client.connection, ex.request.host()) {
            ScopeOfRequest::Misdirected => {
                Some(SimulatedResponse::gateway(421, "the host is not the server name of the TLS handshake"))
            }
            ScopeOfRequest::Found(Some(scope)) if scope.is_broken() => {
                Some(SimulatedResponse::gateway(503, "the scope is misconfigured"))
            }
            ScopeOfRequest::Found(_) => None,
        },
    }
}

/// The route as in serving; `None` if a pattern was aborted, since another route may be the right one.
fn find<'s>(snapshot: &'s Snapshot, ex: &mut Exchange<'s>) -> Option<&'s Route> {
    // A condition that was aborted leaves the route unknown; serving refuses the request then.
    snapshot.find(ex).filter(|_| !ex.is_undecided())
}

/// The steps after route matching.
struct SimulatedSteps {
    steps: Vec<ExplainedStep>,
    answer: Option<ExplainedResponse>,
    upstream: Option<UpstreamChoice>,
    remarks: Vec<String>,
}

impl SimulatedSteps {
    fn at_once(answered: SimulatedResponse) -> SimulatedSteps {
        let remarks = vec!["response before routing".to_owned()];
        SimulatedSteps { steps: Vec::new(), answer: Some(answer(answered)), upstream: None, remarks }
    }
}

fn simulate_steps<'s>(
    snapshot: &'s Snapshot,
    ex: &mut Exchange<'s>,
    winner: Option<&'s Route>,
    assumed: Option<&str>,
    before: Option<&Fields>,
) -> SimulatedSteps {
    let mut walk = RequestSimulation::new(snapshot, ex, winner, assumed);
    walk.decide();
    // A plugin may have chosen another upstream than the route's.
    let found = winner.and_then(|route| match (walk.ex.upstream.slot, &route.target) {
        (Some(slot), _) => snapshot.upstream(UpstreamSlotId(slot)),
        (None, RouteTarget::Upstream(slot)) => snapshot.upstream(*slot),
        (None, RouteTarget::Weighted(of)) => {
            of.expected(walk.ex).and_then(|target| snapshot.upstream(target.slot?))
        }
        _ => None,
    });
    if let Some(of) = winner.and_then(weighted_targets)
        && walk.ex.upstream.slot.is_none()
    {
        walk.remarks.push(shares(snapshot, of));
    }
    // After a local response, no upstream gets the request.
    let upstream = found.filter(|_| walk.answered.is_none());
    // `peek` leaves the balancer unchanged, so that explaining does not shift the distribution of traffic.
    let next = upstream.and_then(|upstream| Some(&upstream.endpoints[upstream.peek(walk.ex)?]));
    if walk.answered.is_none() && next.is_none() {
        let (status, message, remark) = nowhere(upstream, winner);
        walk.answered = status.map(|status| SimulatedResponse::gateway(status, message));
        walk.remarks.extend(remark);
    }
    walk.finish();
    let (steps, mut remarks, answered) = (walk.steps, walk.remarks, walk.answered);
    let answered = answered.map(|answered| error_form::formed(snapshot, ex, answered, &mut remarks));
    let upstream = upstream.map(|upstream| upstream_choice(upstream, ex, before));
    SimulatedSteps { steps, answer: answered.map(answer), upstream, remarks }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn explained_request(ex: &Exchange<'_>, sni: Option<&str>) -> ExplainedRequest {
    ExplainedRequest {
        method: text(ex.request.method_name()),
        host: text(ex.request.host()),
        path: text(ex.request.routed_path()),
        client_ip: ex.client.ip.to_string(),
        sni: sni.map(str::to_owned),
    }
}

fn route_choice(route: &Route, ex: &Exchange<'_>, context: &ExplainContext<'_>) -> RouteChoice {
    let param = |(name, range): &(&str, std::ops::Range<usize>)| {
        ((*name).to_owned(), text(&ex.request.routed_part(range.clone()).unwrap_or_default()))
    };
    RouteChoice {
        id: route.info.id.clone(),
        name: route.info.name.clone(),
        origin: origin::origin(Kind::Routes, &route.info.id, context),
        service_id: route.info.service_id.clone(),
        matched_uri: ex.route.uri().to_owned(),
        matched_host: ex.route.host.to_owned(),
        priority: route.matching.priority,
        params: ex.route.path_params.iter().map(param).collect(),
    }
}

fn answer(answered: SimulatedResponse) -> ExplainedResponse {
    const BODY_CHARS_MAX: usize = 400;
    let response = answered.response;
    let header = |(name, value)| (text(name), text(value));
    ExplainedResponse {
        plugin: answered.plugin,
        origin: answered.origin,
        status: response.status,
        headers: response.fields().iter().map(header).collect(),
        // Characters, not bytes, so that no character is cut.
        body: text(&response.body).chars().take(BODY_CHARS_MAX).collect(),
    }
}
