//! Upstreams of the current snapshot with their endpoints: health, ejections, load and limits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_snapshot::explain::UpstreamView;
use yumen_snapshot::protection::UNBOUNDED;
use yumen_snapshot::upstream::{Endpoint, HealthCounts};
use yumen_snapshot::{Upstream, UpstreamProtection};

use super::V1State;
use super::arguments::{ArgumentNames, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;

/// Upstreams in one response; `total` counts the others too.
const UPSTREAMS_MAX: usize = 1000;

/// The requested upstreams.
#[derive(Debug, Deserialize)]
pub(super) struct UpstreamsQuery {
    /// The object that defines the upstream, such as `upstreams/1` or `routes/1`.
    origin: Option<String>,
}

impl ArgumentNames for UpstreamsQuery {
    const NAMES: &'static [&'static str] = &["origin"];
}

/// `GET /yumen/v1/upstreams[?origin=upstreams/1]`.
pub(super) async fn upstreams(
    State(state): State<V1State>,
    StrictQuery(asked): StrictQuery<UpstreamsQuery>,
) -> Result<Response, ApiRefusal> {
    let snapshot = state.live.snapshot();
    let now_ms = state.live.now().mono_ms();
    let is_asked =
        |upstream: &&Arc<Upstream>| asked.origin.as_deref().is_none_or(|origin| origin == &*upstream.origin);
    let found = snapshot.upstreams().map(|(_, upstream)| upstream).filter(is_asked);
    let (mut shown, mut total) = (Vec::new(), 0);
    for upstream in found {
        total += 1;
        if shown.len() < UPSTREAMS_MAX {
            // Ejections end lazily, so expired ones end before they are shown.
            upstream.end_ejections(now_ms);
            shown.push(described(upstream));
        }
    }
    Ok(reply::json(StatusCode::OK, &json!({ "total": total, "upstreams": shown })))
}

fn described(upstream: &Upstream) -> Value {
    let view = UpstreamView::of(upstream, None);
    let mut value = serde_json::to_value(&view).expect("a view is plain data");
    value["has_checks"] = upstream.checks.is_some().into();
    value["limits"] = upstream.protection.as_deref().map_or(Value::Null, limits);
    let Some(members) = value["endpoints"].as_array_mut() else { return value };
    for (member, endpoint) in members.iter_mut().zip(&upstream.endpoints) {
        member["in_flight"] = endpoint.state.active.load(Relaxed).into();
        member["idle_connections"] = endpoint.state.idle.load(Relaxed).into();
        member["latency_us"] = match endpoint.state.ewma_us.load(Relaxed) {
            0 => Value::Null,
            us => us.into(),
        };
        member["checks"] = checks(endpoint);
    }
    value
}

/// Results of active and passive checks since the last change of state.
fn checks(endpoint: &Endpoint) -> Value {
    let Some(health) = &endpoint.health else { return Value::Null };
    let sum = |read: fn(&HealthCounts) -> u32| read(&health.active) + read(&health.passive);
    json!({
        "successes": sum(|counts| counts.successes.load(Relaxed)),
        "http_failures": sum(|counts| counts.http_failures.load(Relaxed)),
        "tcp_failures": sum(|counts| counts.tcp_failures.load(Relaxed)),
        "timeouts": sum(|counts| counts.timeouts.load(Relaxed)),
    })
}

fn limits(protection: &UpstreamProtection) -> Value {
    let gate = &protection.gate;
    let bound = |bound: u32| (bound != UNBOUNDED).then_some(bound);
    let all = protection.limits.as_ref();
    json!({
        "requests": gate.requests.load(Relaxed),
        "requests_max": all.and_then(|limits| bound(limits.all.requests)),
        "connections": gate.connections.load(Relaxed),
        "connections_max": all.and_then(|limits| bound(limits.all.connections)),
        "pending": gate.waiting(),
        "pending_max": all.map(|limits| limits.pending_max),
        "queued": gate.queued.load(Relaxed),
        "refused_full": gate.refused_full.load(Relaxed),
        "refused_late": gate.refused_late.load(Relaxed),
        "retries_refused": gate.retries_refused.load(Relaxed),
        "has_outlier_detection": protection.outliers.is_some(),
    })
}
