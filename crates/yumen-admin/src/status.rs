//! The status listener: liveness, readiness, metrics, problems.
//!
//! Every response comes from a closure of the gateway; this module keeps no state.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tracing::error;
use yumen_base::metric::MetricSource;

use crate::exposition::{CONTENT_TYPE_TEXT, exposition, left_out};
use crate::host_check::{AllowedHosts, guarded};
use crate::open_metrics;
use crate::reply;
use crate::serve::{BOUNDS, serve};

/// Returns a document; called at every request and must not block.
pub type Document = Arc<dyn Fn() -> Value + Send + Sync>;

/// The sources of the status listener.
#[derive(Clone)]
pub struct StatusState {
    /// Whether the gateway is ready, or the reason why not.
    pub ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// The sources of `/metrics`, in this order.
    pub gather: Vec<Arc<dyn MetricSource>>,
    /// An object whose members appear in `/status`, beside `status`.
    pub describe: Document,
    /// `/v1/healthcheck`: the list of checked upstreams.
    pub health: Document,
    /// `/yumen/v1/problems`: the list of current problems.
    pub problems: Document,
    /// `/yumen/v1/listeners`: the states of the configuration's listeners, by id.
    pub listeners: Document,
    /// `/yumen/v1/top`: the use of routes, upstreams, plugins, consumers and sinks since the start.
    pub top: Document,
    /// `/yumen/v1/recent`: recent requests; `None` if this listener does not list them.
    pub recent: Option<Document>,
    /// The allowed host names of the listener.
    pub hosts: AllowedHosts,
    /// Further routes, such as [`control_routes`](crate::control_routes).
    pub more: Router,
}

/// Serves the status listener until `shutdown` completes; requests in flight then have five seconds to end.
pub async fn serve_status(listener: TcpListener, state: StatusState, shutdown: impl Future<Output = ()>) {
    let hosts = state.hosts.clone();
    // Without keys, so only the check of the host keeps pages of other sites out.
    serve(listener, guarded(router(state), hosts), BOUNDS, shutdown).await;
}

const INDEX: [(&str, &str); 14] = [
    ("/status", "liveness and version"),
    ("/status/ready", "200 when a configuration is active, else 503"),
    ("/metrics", "measurements in the Prometheus text format"),
    ("/apisix/prometheus/metrics", "the same"),
    ("/v1/healthcheck", "health of checked upstreams; /v1/healthcheck/{kind}/{id}"),
    ("/v1/routes", "all routes, without secrets; /v1/route/{id} for one"),
    ("/v1/services", "all services; /v1/service/{id}"),
    ("/v1/upstreams", "all upstreams; /v1/upstream/{id}"),
    ("/v1/plugin_metadatas", "all plugin metadata; /v1/plugin_metadata/{name}"),
    ("/v1/schema", "schemas of resources and plugins"),
    ("/yumen/v1/problems", "problems of the active configuration"),
    ("/yumen/v1/listeners", "states of the configuration's listeners, by id"),
    ("/yumen/v1/top", "use of routes, upstreams, plugins, consumers and sinks, cumulated"),
    ("/yumen/v1/recent", "recent requests, if observe.list_recent_requests is on"),
];

pub(crate) fn router(state: StatusState) -> Router {
    let more = state.more.clone();
    Router::new()
        .route("/", get(index))
        .route("/status", get(status))
        .route("/status/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/apisix/prometheus/metrics", get(metrics))
        .route("/v1/healthcheck", get(async |State(state): State<StatusState>| document(&state.health)))
        .route("/yumen/v1/problems", get(async |State(state): State<StatusState>| document(&state.problems)))
        .route(
            "/yumen/v1/listeners",
            get(async |State(state): State<StatusState>| document(&state.listeners)),
        )
        .route("/yumen/v1/top", get(async |State(state): State<StatusState>| document(&state.top)))
        .route("/yumen/v1/recent", get(recent))
        .with_state(state)
        .merge(more)
        .fallback(absent)
        .method_not_allowed_fallback(refused)
}

async fn index() -> Response {
    let paths: Map<String, Value> = INDEX.iter().map(|(path, what)| ((*path).into(), json!(what))).collect();
    reply::json(StatusCode::OK, &json!({ "paths": paths }))
}

async fn status(State(state): State<StatusState>) -> Response {
    let mut body = Map::new();
    body.insert("status".to_owned(), json!("ok"));
    if let Value::Object(details) = (state.describe)() {
        // A detail must not overwrite the status.
        body.extend(details.into_iter().filter(|(key, _)| key != "status"));
    }
    reply::json(StatusCode::OK, &Value::Object(body))
}

async fn ready(State(state): State<StatusState>) -> Response {
    match (state.ready)() {
        Ok(()) => reply::json(StatusCode::OK, &json!({ "status": "ok" })),
        Err(reason) => {
            let body = json!({ "status": "error", "error": reason });
            reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    }
}

/// The Prometheus format, which scrapers that prefer OpenMetrics accept too. Only exemplars need the latter.
async fn metrics(State(state): State<StatusState>, head: HeaderMap) -> Response {
    let mut families = Vec::new();
    for part in &state.gather {
        // All sources before encoding, because a family may have series from several.
        part.gather(&mut families);
    }
    families.push(left_out());
    let accept = head.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if open_metrics::is_accepted(accept) {
        let mut exemplars = Vec::new();
        state.gather.iter().for_each(|part| part.exemplars(&mut exemplars));
        if !exemplars.is_empty() {
            let text = open_metrics::open_metrics(families, &exemplars);
            let kind = HeaderValue::from_static(open_metrics::CONTENT_TYPE_OPEN_METRICS);
            return ([(CONTENT_TYPE, kind)], text).into_response();
        }
    }
    match exposition(families) {
        Ok(text) => ([(CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE_TEXT))], text).into_response(),
        Err(reason) => {
            error!(%reason, "cannot encode metrics");
            failure(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode metrics")
        }
    }
}

async fn recent(State(state): State<StatusState>) -> Response {
    match &state.recent {
        Some(recent) => document(recent),
        None => failure(
            StatusCode::NOT_FOUND,
            "recent requests are not listed: observe.list_recent_requests is off in yumen.yaml",
        ),
    }
}

fn document(answer: &Document) -> Response {
    reply::json(StatusCode::OK, &answer())
}

async fn absent() -> Response {
    failure(StatusCode::NOT_FOUND, "not found: see GET / for the endpoints")
}

async fn refused() -> Response {
    failure(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: see GET / for the endpoints")
}

fn failure(status: StatusCode, message: &str) -> Response {
    reply::json(status, &json!({ "error_msg": message }))
}
