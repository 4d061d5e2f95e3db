//! Reading one's writes: which revision is in force, and waiting for one.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;
use yumen_base::Level;
use yumen_store::Revision;

use super::V1State;
use crate::reply;

/// The revision an answer is as of.
pub(crate) const REVISION: &str = "x-yumen-revision";
const APPLIED: &str = "x-yumen-applied";
const WAIT_SECONDS: f64 = 10.0;
const WAIT_SECONDS_MAX: f64 = 60.0;

/// `GET /yumen/v1/applied`.
pub(super) async fn applied(State(state): State<V1State>) -> Response {
    let (stored, applied) = (state.admin.store.state().revision, *state.live.applied().borrow());
    let (workers, published) = state.live.workers();
    let problems = state.live.problems();
    let mut quarantined: Vec<&str> = problems
        .iter()
        .filter(|problem| problem.level == Level::Error)
        .map(|problem| &*problem.object)
        .collect();
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
pub(super) async fn problems(State(state): State<V1State>) -> Response {
    let problems = serde_json::to_value(state.live.problems());
    reply::json(StatusCode::OK, &problems.expect("problems are plain data"))
}

/// With `?wait=applied[&timeout=seconds]` an answer that carries a revision is held back until every
/// next request is served by that revision; `X-Yumen-Applied` says whether it is.
pub(crate) async fn wait_for_applied(State(state): State<V1State>, request: Request, next: Next) -> Response {
    let wait = wait_asked(request.uri().query().unwrap_or_default());
    let mut response = next.run(request).await;
    let revision = response.headers().get(REVISION).and_then(|value| value.to_str().ok()?.parse().ok());
    let (Some(wait), Some(revision)) = (wait, revision.map(Revision)) else { return response };
    let mut applied = state.live.applied();
    let reached = tokio::time::timeout(wait, applied.wait_for(|applied| *applied >= revision)).await;
    let is_applied = matches!(reached, Ok(Ok(_)));
    let value = if is_applied { "true" } else { "false" };
    response.headers_mut().insert(APPLIED, HeaderValue::from_static(value));
    response
}

fn wait_asked(query: &str) -> Option<Duration> {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
    };
    if value("wait") != Some("applied") {
        return None;
    }
    let seconds = value("timeout").and_then(|text| text.trim_end_matches('s').parse().ok());
    let seconds: f64 = seconds.unwrap_or(WAIT_SECONDS);
    Some(Duration::from_secs_f64(if seconds.is_finite() {
        seconds.clamp(0.0, WAIT_SECONDS_MAX)
    } else {
        WAIT_SECONDS
    }))
}
