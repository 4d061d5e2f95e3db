//! The applied revision, and waiting for one (read your writes).

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::time::timeout;
use yumen_base::{Problem, ProblemLevel};
use yumen_store::Revision;

use super::arguments::{NoArguments, StrictQuery};
use super::{ClusterView, LiveGateway, V1State};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::revision::{REVISION_HEADER, WrittenObjects};

const APPLIED: &str = "x-yumen-applied";
const NODES: &str = "x-yumen-nodes";
const BEHIND: &str = "x-yumen-behind";
/// Number of warnings about the written objects, and the first of them.
const WARNINGS: &str = "x-yumen-warnings";
const FIRST_WARNING: &str = "x-yumen-first-warning";
const WARNING_CHARACTERS_MAX: usize = 400;
const WAIT_SECONDS: f64 = 10.0;
const WAIT_SECONDS_MAX: f64 = 60.0;
/// The path whose `wait` may be a number of milliseconds, as in APISIX.
const WHOLE_CONFIGURATION: &str = "/apisix/admin/configs";

/// `GET /yumen/v1/applied`.
pub(super) async fn applied(State(state): State<V1State>, _: StrictQuery<NoArguments>) -> Response {
    let (stored, applied) = (state.admin.store.state().revision, *state.live.applied().borrow());
    let (workers, published) = state.live.workers();
    let problems = state.live.problems();
    let mut quarantined: Vec<&str> = problems
        .iter()
        .filter(|problem| problem.level == ProblemLevel::Error)
        .map(|problem| &*problem.object)
        .collect();
    // Problems of one object are adjacent.
    quarantined.dedup();
    let is_current = |version: &&u64| **version == published;
    let body = json!({
        "revision": stored.0,
        "applied": applied.0,
        "lag": stored.0.saturating_sub(applied.0),
        "workers": workers.len(),
        "workers_current": workers.iter().filter(is_current).count(),
        "quarantined": quarantined,
    });
    reply::json(StatusCode::OK, &body)
}

/// `GET /yumen/v1/problems`.
pub(super) async fn problems(State(state): State<V1State>, _: StrictQuery<NoArguments>) -> Response {
    let problems = serde_json::to_value(state.live.problems());
    reply::json(StatusCode::OK, &problems.expect("problems are plain data"))
}

/// With `?wait=applied[&timeout=seconds]`, delays a response with a revision until that revision is published (decision 20), or with
/// `nodes=all` or `nodes=quorum` until that many nodes do.
///
/// `X-Yumen-Applied` is `true`, `false`, or `quarantined` if a written object does not compile. `X-Yumen-Behind` names the
/// nodes that do not serve the revision yet, and `X-Yumen-Warnings` counts the warnings about written objects.
pub(crate) async fn wait_for_applied(State(state): State<V1State>, request: Request, next: Next) -> Response {
    // Before the request runs: an invalid argument must not leave a write behind.
    let takes_number = request.method() == Method::PUT && request.uri().path() == WHOLE_CONFIGURATION;
    let wait = match AppliedWait::wait_of(request.uri().query().unwrap_or_default(), takes_number) {
        Ok(wait) => wait,
        Err(refusal) => return refusal.into_response(),
    };
    let mut response = next.run(request).await;
    let revision =
        response.headers().get(REVISION_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
    let (Some(wait), Some(revision)) = (wait, revision.map(Revision)) else { return response };
    let is_applied = match wait.nodes {
        NodeScope::Own => {
            let mut applied = state.live.applied();
            // A later revision contains the earlier one, so `>=` suffices.
            let reached = timeout(wait.at_most, applied.wait_for(|applied| *applied >= revision)).await;
            matches!(reached, Ok(Ok(_)))
        }
        NodeScope::All | NodeScope::Quorum => {
            let reached = timeout(wait.at_most, reach(&*state.live, revision, wait.nodes)).await.is_ok();
            name_nodes(&state.live.cluster(), revision, &mut response);
            reached
        }
    };
    // Problems of a revision are known once this node serves it.
    let is_compiled = is_applied && *state.live.applied().borrow() >= revision;
    let written = response.extensions().get::<WrittenObjects>().filter(|_| is_compiled).cloned();
    let is_quarantined = written.is_some_and(|written| {
        let problems = state.live.problems();
        let (errors, warnings): (Vec<_>, Vec<_>) = written
            .problems_among(&problems)
            .into_iter()
            .partition(|problem| problem.level == ProblemLevel::Error);
        name_warnings(&warnings, &mut response);
        !errors.is_empty()
    });
    let value = match is_quarantined {
        true => "quarantined",
        false if is_applied => "true",
        false => "false",
    };
    response.headers_mut().insert(APPLIED, HeaderValue::from_static(value));
    // The status reports to APISIX's tools whether the configuration is applied.
    if wait.is_number && value == "true" && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::OK;
    }
    response
}

/// Sets the header fields with the warnings about the written objects.
fn name_warnings(warnings: &[&Problem], response: &mut Response) {
    let Some(first) = warnings.first() else { return };
    response.headers_mut().insert(WARNINGS, HeaderValue::from(warnings.len()));
    let place = if first.path.is_empty() { String::new() } else { format!(" at {}", first.path) };
    let remedy = first.hint.as_ref().or(first.allowed.as_ref());
    let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
    let text = format!("{}{place}: {}{remedy}", first.object, first.message);
    // A field value has one line, and other characters are obsolete there (RFC 9110 §5.5).
    let printable = |character: char| match character {
        ' '..='~' => character,
        _ => '?',
    };
    let text: String = text.chars().take(WARNING_CHARACTERS_MAX).map(printable).collect();
    if let Ok(text) = HeaderValue::from_str(text.trim()) {
        response.headers_mut().insert(FIRST_WARNING, text);
    }
}

/// Waits until the given nodes serve the revision. Nodes may join or leave meanwhile.
async fn reach(live: &dyn LiveGateway, revision: Revision, nodes: NodeScope) {
    let (mut applied, mut moved) = (live.applied(), live.cluster_moved());
    loop {
        // Before the view is taken, so that a change during the comparison is not missed.
        applied.mark_unchanged();
        moved.mark_unchanged();
        let view = live.cluster();
        let serving = view.nodes.iter().filter(|node| node.applied >= revision.0).count();
        // The majority of the nodes that are present (decision 29).
        let required = if nodes == NodeScope::All { view.nodes.len() } else { view.nodes.len() / 2 + 1 };
        if serving >= required {
            return;
        }
        let ended = tokio::select! {
            news = applied.changed() => news.is_err(),
            news = moved.changed() => news.is_err(),
        };
        if ended {
            // The gateway is shutting down; the caller's timeout ends the wait.
            std::future::pending::<()>().await;
        }
    }
}

/// Sets the header fields with the nodes that serve a revision, and those behind.
fn name_nodes(view: &ClusterView, revision: Revision, response: &mut Response) {
    let lagging: Vec<&str> =
        view.nodes.iter().filter(|node| node.applied < revision.0).map(|node| &*node.name).collect();
    let applied = format!("{}/{}", view.nodes.len() - lagging.len(), view.nodes.len());
    let mut add_header = |name: &'static str, value: &str| {
        // Names come from other nodes: those invalid in a field are left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    add_header(NODES, &applied);
    if !lagging.is_empty() {
        add_header(BEHIND, &lagging.join(", "));
    }
}

/// The nodes that a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeScope {
    Own,
    All,
    Quorum,
}

/// A parsed `wait=applied`, or the milliseconds of APISIX.
struct AppliedWait {
    at_most: Duration,
    nodes: NodeScope,
    is_number: bool,
}

impl AppliedWait {
    fn wait_of(query: &str, takes_number: bool) -> Result<Option<AppliedWait>, ApiRefusal> {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
        };
        let milliseconds = match value("wait") {
            None => return Ok(None),
            Some("applied") => None,
            Some(number) if takes_number && number.starts_with(|first: char| first.is_ascii_digit()) => {
                Some(milliseconds(number)?)
            }
            Some(other) => {
                let or_number = if takes_number { ", or a number of milliseconds" } else { "" };
                let message = format!("wait: \"{other}\" is invalid; allowed: \"applied\"{or_number}");
                return Err(ApiRefusal::invalid(message));
            }
        };
        if milliseconds.is_some() && value("timeout").is_some() {
            let message = "timeout: the number in wait is the bound; use timeout with wait=applied";
            return Err(ApiRefusal::invalid(message));
        }
        // As in APISIX: 0 is no wait.
        if milliseconds.is_some_and(|at_most| at_most.is_zero()) {
            return Ok(None);
        }
        let nodes = match value("nodes") {
            None | Some("self") => NodeScope::Own,
            Some("all") => NodeScope::All,
            Some("quorum") => NodeScope::Quorum,
            Some(other) => {
                let message =
                    format!("nodes: \"{other}\" is invalid; allowed: \"self\", \"all\", \"quorum\"");
                return Err(ApiRefusal::invalid(message));
            }
        };
        if let Some(at_most) = milliseconds {
            return Ok(Some(AppliedWait { at_most, nodes, is_number: true }));
        }
        let at_most = value("timeout").map_or(Ok(WAIT_SECONDS), seconds)?;
        // Bounded, so that waiting clients cannot collect connections for ever.
        let at_most = Duration::from_secs_f64(at_most.min(WAIT_SECONDS_MAX));
        Ok(Some(AppliedWait { at_most, nodes, is_number: false }))
    }
}

/// Parses the milliseconds of APISIX, which have the same upper bound there.
fn milliseconds(text: &str) -> Result<Duration, ApiRefusal> {
    let read = text.parse().ok().filter(|number: &u64| *number as f64 <= WAIT_SECONDS_MAX * 1000.0);
    let message = || format!("wait: \"{text}\" is not a whole number of milliseconds, 60000 at most");
    read.map(Duration::from_millis).ok_or_else(|| ApiRefusal::invalid(message()))
}

/// Parses `5`, `0.5` or `5s`.
fn seconds(text: &str) -> Result<f64, ApiRefusal> {
    let read = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let message = || format!("timeout: \"{text}\" is not a number of seconds");
    read.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
        .ok_or_else(|| ApiRefusal::invalid(message()))
}
