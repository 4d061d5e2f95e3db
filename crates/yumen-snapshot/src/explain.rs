//! Why a request goes where it goes: the router, plugins and balancer that serve, asked without serving.
//!
//! Does no I/O, counts nothing, takes nobody's turn. Knows no plugin and no door.

mod match_explanation;
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

pub use match_explanation::{MatchExplanation, OutrankedRoute, arrival};
pub use stream::{ExplainedStream, StreamCandidate, StreamChoice, StreamExplanation};
pub use yumen_config::resource::Question;

use crate::router::RouteMismatch;
use crate::{MismatchReason, Route, RouteTarget, Snapshot, Upstream, UpstreamSlotId};
use simulation::{RequestSimulation, SimulatedResponse};
use synthetic_request::{DryRunHost, SyntheticRequest};
use upstream_choice::{endpoints, upstream_choice};

/// How many routes of other hosts or paths are told one by one.
const NEAREST_MAX: usize = 5;

/// Finds the text of an object.
pub type TextOf<'b> = dyn Fn(Kind, &str) -> Option<Arc<str>> + 'b;

/// Ports of a node's first listeners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerPorts {
    /// Without TLS.
    pub http: Option<u16>,
    /// With TLS.
    pub https: Option<u16>,
}

/// What may be known beside the snapshot. Nothing of it changes the answer but the time, on which
/// limits depend, and the ports.
#[derive(Clone, Copy, Default)]
pub struct ExplainContext<'b> {
    /// When the request comes.
    pub now: Now,
    /// The findings in force.
    pub problems: &'b [Problem],
    /// The text of an object as it was written last.
    pub text: Option<&'b TextOf<'b>>,
    /// Where a request comes in whose URL has no port.
    pub listeners: ListenerPorts,
}

/// What becomes of a request, and why.
#[derive(Debug, Clone, Serialize)]
pub struct RequestExplanation {
    /// Revision of the snapshot.
    pub revision: u64,
    /// The request, as it was understood.
    pub request: ExplainedRequest,
    /// The certificate the client is shown; `None` without TLS.
    pub certificate: Option<CertificateChoice>,
    /// The route it gets to; `None` is the 404.
    pub route: Option<RouteChoice>,
    /// Routes that were looked at and lost, in that order; where no route matched also the nearest others.
    pub candidates: Vec<RouteCandidate>,
    /// How many routes are for other hosts.
    pub other_hosts: usize,
    /// How many routes of this host are for other paths.
    pub other_paths: usize,
    /// About the route that was asked after.
    pub why_not: Option<RouteCandidate>,
    /// The consumer, once one is known.
    pub consumer: Option<Box<str>>,
    /// Plugins in running order.
    pub plugins: Vec<ExplainedStep>,
    /// What the gateway itself answers, if no upstream is asked.
    pub answer: Option<ExplainedResponse>,
    /// Where it goes.
    pub upstream: Option<UpstreamChoice>,
    /// What else should be known.
    pub remarks: Vec<String>,
}

/// A request as it was understood.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedRequest {
    /// The method.
    pub method: String,
    /// The host that routes are matched by.
    pub host: String,
    /// The path that routes are matched by: decoded, dot segments resolved.
    pub path: String,
    /// The client's address.
    pub client_ip: String,
    /// The server name of the handshake; `None` without TLS.
    pub sni: Option<String>,
}

/// A certificate and why it was chosen.
#[derive(Debug, Clone, Serialize)]
pub struct CertificateChoice {
    /// Id of its object; `None` is the node's own default.
    pub id: Option<Box<str>>,
    /// The name of that object that matched.
    pub matched: Option<String>,
}

/// The route that matched.
#[derive(Debug, Clone, Serialize)]
pub struct RouteChoice {
    /// Its id.
    pub id: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its service's id.
    pub service_id: Box<str>,
    /// The path pattern that matched.
    pub matched_uri: String,
    /// The host pattern that matched; empty is any host.
    pub matched_host: String,
    /// Its priority.
    pub priority: i32,
    /// Path parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// A route that did not get the request.
#[derive(Debug, Clone, Serialize)]
pub struct RouteCandidate {
    /// Its id, or what was asked after where there is no such route.
    pub route: Box<str>,
    /// Where it lost; `None` where it did not compete, or won.
    pub lost: Option<MismatchReason>,
    /// That in words.
    pub why: String,
}

/// What a plugin does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginDecision {
    /// It lets the request go on.
    Continues,
    /// It answers.
    Answers,
    /// Its verdict was assumed: the question named the consumer.
    Assumed,
    /// Nobody can tell without doing it.
    Unknown,
    /// Its `_meta.filter` does not hold.
    Skipped,
    /// Another plugin answered before.
    NotReached,
    /// The route has one of its own.
    StepsBack,
    /// It takes part in the answer or the log.
    Later,
}

/// One plugin in one phase.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedStep {
    /// Its name.
    pub plugin: &'static str,
    /// The object its settings stand in, such as `routes/1`.
    pub origin: Arc<str>,
    /// The phase.
    pub phase: &'static str,
    /// Its priority.
    pub priority: i32,
    /// What it does.
    pub decision: PluginDecision,
    /// What there is to say about that.
    pub says: Option<String>,
}

/// An answer of the gateway itself, before the plugins of the response phases.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedResponse {
    /// The plugin; `None` is the gateway.
    pub plugin: Option<&'static str>,
    /// The object that plugin's settings stand in.
    pub origin: Option<Arc<str>>,
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub headers: BTreeMap<String, String>,
    /// The beginning of its body.
    pub body: String,
}

/// The upstream.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamView {
    /// Where it is written: `upstreams/1`, `routes/1`, `stream_routes/1`.
    pub origin: Arc<str>,
    /// `http` or `https`; of a stream `tcp`, `tls` or `udp`.
    pub scheme: &'static str,
    /// How endpoints are chosen.
    pub balancer: &'static str,
    /// The endpoint that is next, in the eyes of the first worker.
    pub next: Option<String>,
    /// All of them.
    pub endpoints: Vec<EndpointView>,
    /// Host names among its nodes, and its service, whose addresses are not known here.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub unresolved: Box<[Box<str>]>,
}

impl UpstreamView {
    fn of(upstream: &Upstream, next: Option<usize>) -> UpstreamView {
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

/// The upstream and what it is asked.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamChoice {
    /// What of it does not depend on the request.
    #[serde(flatten)]
    pub view: UpstreamView,
    /// The method it is asked with.
    pub method: String,
    /// The `Host` it sees; `None` while no endpoint is known whose it would be.
    pub host: Option<String>,
    /// The path and query it is asked for.
    pub path: String,
    /// Whether plugins changed that.
    pub is_rewritten: bool,
    /// Fields that plugins set or changed.
    pub headers_set: BTreeMap<String, String>,
    /// Fields of the client that plugins took away.
    pub headers_removed: Vec<String>,
    /// Fields by which the gateway itself tells who asked and how.
    pub headers_sent: BTreeMap<String, String>,
}

/// An endpoint.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointView {
    /// Its address.
    pub address: String,
    /// Its host as its node writes it.
    pub host: Box<str>,
    /// Its share.
    pub weight: u32,
    /// Its priority.
    pub priority: i32,
    /// Whether checks find it healthy; `None` where nobody checks.
    pub healthy: Option<bool>,
    /// Whether it is left out for its failures; `None` where nobody looks at them.
    pub ejected: Option<bool>,
    /// Whether it may be chosen now.
    pub in_rotation: bool,
}

/// Thinks a request through.
///
/// An error says what in the question is no request, with its path there.
pub fn explain(
    snapshot: &Snapshot,
    question: &Question,
    background: &ExplainContext<'_>,
) -> Result<RequestExplanation, InvalidSettings> {
    let asked =
        SyntheticRequest::new(question, background.now, background.listeners, snapshot.router.rules.paths)?;
    let mut ex = asked.exchange(&snapshot.consumers);
    let (_, trace) = ex.aside(|ex| snapshot.router.explain(ex));
    let at_once = at_once(snapshot, &mut ex);
    let winner = at_once.is_none().then(|| find(snapshot, &mut ex)).flatten();
    let request = explained_request(&ex, asked.sni());
    let route = winner.map(|route| route_choice(route, &ex));
    let why_not = question.why_not.as_deref();
    let said = ex.aside(|ex| reason::said(snapshot, ex, winner, &trace, why_not, background));
    let before = ex.request.fields.clone();
    let thought = match at_once {
        Some(answered) => SimulatedSteps::at_once(answered),
        None => simulate_steps(snapshot, &mut ex, winner, question.consumer.as_deref(), Some(&before)),
    };
    let mut remarks = thought.remarks;
    let stale = reason::stale(winner, background, &remarks);
    remarks.extend(stale);
    let assumed = asked.assumed_port().filter(|_| ex.requested_port());
    remarks.extend(assumed.map(|port| {
        format!("server_port was taken to be {port}: the URL has no port, and no listener is known")
    }));
    Ok(RequestExplanation {
        revision: snapshot.revision,
        request,
        certificate: asked.sni().map(|sni| certificate_choice(snapshot, sni)),
        route,
        candidates: said.candidates,
        other_hosts: said.other_hosts,
        other_paths: said.other_paths,
        why_not: said.why_not,
        consumer: ex.consumer.map(|consumer| consumer.username.clone()),
        plugins: thought.steps,
        answer: thought.answer,
        upstream: thought.upstream,
        remarks,
    })
}

/// What becomes of what a question describes.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum ExplainResult {
    /// A request.
    Request(Box<RequestExplanation>),
    /// A connection or a session of datagrams: its URL begins with `tcp:`, `tls:` or `udp:`.
    Stream(Box<StreamExplanation>),
}

/// Thinks through whatever the question describes; see [`explain`].
pub fn explain_any(
    snapshot: &Snapshot,
    question: &Question,
    background: &ExplainContext<'_>,
) -> Result<ExplainResult, InvalidSettings> {
    match stream::SyntheticStream::parse(question)? {
        Some(arriving) => {
            let explained = stream::explain(snapshot, &arriving, question, background);
            Ok(ExplainResult::Stream(Box::new(explained)))
        }
        None => explain(snapshot, question, background).map(Box::new).map(ExplainResult::Request),
    }
}

/// The short form of [`explain`]: where a request goes, in about the time it takes to serve one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestDestination {
    /// Id of the route.
    pub route: Option<Box<str>>,
    /// Status the gateway answers with.
    pub status: Option<u16>,
    /// The plugin that answers.
    pub plugin: Option<&'static str>,
    /// Where the upstream is written.
    pub upstream: Option<Arc<str>>,
}

/// Where a request goes, by [`Snapshot::find`] and the plugins.
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

/// A request followed to its end, without the routes that lost.
pub(crate) struct SimulatedRequest {
    pub(crate) route: Option<Box<str>>,
    pub(crate) answer: Option<ExplainedResponse>,
    pub(crate) upstream: Option<UpstreamChoice>,
    pub(crate) certificate: Option<Box<str>>,
    fields: Fields,
}

impl SimulatedRequest {
    /// The value the upstream gets under `name`; several are joined.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let own = self.upstream.iter().flat_map(|upstream| &upstream.headers_sent);
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
    // What holds everywhere is asked: a test is run where nobody listens as well.
    let asked = SyntheticRequest::new(question, now, ListenerPorts::default(), snapshot.router.rules.paths)?;
    let mut ex = asked.exchange(&snapshot.consumers);
    let at_once = at_once(snapshot, &mut ex);
    let winner = at_once.is_none().then(|| find(snapshot, &mut ex)).flatten();
    let thought = match at_once {
        Some(answered) => SimulatedSteps::at_once(answered),
        None => simulate_steps(snapshot, &mut ex, winner, question.consumer.as_deref(), None),
    };
    let certificate = asked.sni().and_then(|sni| snapshot.certificate(sni));
    Ok(SimulatedRequest {
        route: winner.map(|route| route.info.id.clone()),
        answer: thought.answer,
        upstream: thought.upstream,
        certificate: certificate.map(|certificate| certificate.id.clone()),
        fields: std::mem::take(&mut ex.request.fields),
    })
}

/// What is answered before a route is looked for, as serving does.
fn at_once(snapshot: &Snapshot, ex: &mut Exchange<'_>) -> Option<SimulatedResponse> {
    match ex.request.method() {
        Method::Connect => Some(SimulatedResponse::gateway(405, "CONNECT is not supported")),
        Method::Trace if !snapshot.router.rules.trace_requests => {
            Some(SimulatedResponse { plugin: None, origin: None, response: crate::trace_refusal() })
        }
        Method::Options | Method::Trace => {
            let response = crate::max_forwards(ex)?;
            Some(SimulatedResponse { plugin: None, origin: None, response })
        }
        _ => None,
    }
}

/// The route by which it is served; none where a pattern was given up, since it might be another.
fn find<'s>(snapshot: &'s Snapshot, ex: &mut Exchange<'s>) -> Option<&'s Route> {
    snapshot.find(ex).filter(|_| !ex.is_undecided())
}

/// What comes after the route is known.
struct SimulatedSteps {
    steps: Vec<ExplainedStep>,
    answer: Option<ExplainedResponse>,
    upstream: Option<UpstreamChoice>,
    remarks: Vec<String>,
}

impl SimulatedSteps {
    fn at_once(answered: SimulatedResponse) -> SimulatedSteps {
        let remarks = vec!["answered before routing".to_owned()];
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
    let found = winner.and_then(|route| match (walk.ex.upstream.instead, &route.target) {
        (Some(slot), _) => snapshot.upstream(UpstreamSlotId(slot)),
        (None, RouteTarget::Upstream(slot)) => snapshot.upstream(*slot),
        _ => None,
    });
    let upstream = found.filter(|_| walk.answered.is_none());
    let next = upstream.and_then(|upstream| Some(&upstream.endpoints[upstream.peek(walk.ex)?]));
    if walk.answered.is_none() && next.is_none() {
        let (answers, remark) = nowhere(upstream);
        walk.answered = answers.then(|| SimulatedResponse::gateway(503, "no endpoint is available"));
        walk.remarks.push(remark);
    }
    walk.finish();
    let (steps, remarks, answered) = (walk.steps, walk.remarks, walk.answered);
    let upstream = upstream.map(|upstream| upstream_choice(upstream, ex, before));
    SimulatedSteps { steps, answer: answered.map(answer), upstream, remarks }
}

/// Why there is no endpoint to ask, and whether that is an answer: where names are not resolved it is
/// not, since nobody but the serving node knows their addresses.
fn nowhere(upstream: Option<&Upstream>) -> (bool, String) {
    let Some(upstream) = upstream else {
        return (true, "neither the route nor its service has an upstream".into());
    };
    let origin = &upstream.origin;
    match &*upstream.unresolved {
        [] if upstream.endpoints.is_empty() => (true, format!("{origin} has no endpoint")),
        [] => (true, format!("all endpoints of {origin} have weight 0")),
        names => (false, format!("addresses of {} not resolved", names.join(", "))),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn explained_request(ex: &Exchange<'_>, sni: Option<&str>) -> ExplainedRequest {
    ExplainedRequest {
        method: text(ex.request.method_name()),
        host: text(ex.request.host()),
        path: text(ex.request.routed_path()),
        client_ip: ex.remote_ip.to_string(),
        sni: sni.map(str::to_owned),
    }
}

fn certificate_choice(snapshot: &Snapshot, sni: &str) -> CertificateChoice {
    let found = snapshot.certificate_by_name(sni);
    CertificateChoice {
        id: found.map(|(_, certificate)| certificate.id.clone()),
        matched: found.map(|(name, _)| name.to_owned()),
    }
}

fn route_choice(route: &Route, ex: &Exchange<'_>) -> RouteChoice {
    let param = |(name, range): &(&str, std::ops::Range<usize>)| {
        ((*name).to_owned(), text(&ex.request.routed_part(range.clone()).unwrap_or_default()))
    };
    RouteChoice {
        id: route.info.id.clone(),
        name: route.info.name.clone(),
        service_id: route.info.service_id.clone(),
        matched_uri: ex.matched_uri().to_owned(),
        matched_host: ex.matched_host.to_owned(),
        priority: route.matching.priority,
        params: ex.path_params.iter().map(param).collect(),
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
        body: text(&response.body).chars().take(BODY_CHARS_MAX).collect(),
    }
}
