//! The Control API: the active configuration, for tools on the same machine. Read only, and without secrets.
//!
//! Resources come from the store's state, health from a closure; independent of workers.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use yumen_config::Kind;
use yumen_store::StoreEntry;

use crate::api::AdminState;
use crate::host_check::{AllowedHosts, guarded};
use crate::refusal::ApiRefusal;
use crate::secrets;
use crate::serve::{BOUNDS, serve};
use crate::status::Document;
use crate::{plugins, reply, schema};

/// The sources of the Control API.
#[derive(Clone)]
pub struct ControlState {
    /// Resources and plugins.
    pub admin: AdminState,
    /// The list of checked upstreams, each an object with the `name` `/apisix/{kind}/{id}`.
    pub health: Document,
    /// Services and endpoints of service discovery.
    pub discovery: Described,
}

/// Returns a document about everything, or about one item by its name; `None` if there is no such item.
pub type Described = Arc<dyn Fn(Option<&str>) -> Option<Value> + Send + Sync>;

/// Serves the Control API until `shutdown` completes; requests in flight then have five seconds to end.
pub async fn serve_control(
    listener: TcpListener,
    state: ControlState,
    hosts: AllowedHosts,
    shutdown: impl Future<Output = ()>,
) {
    serve(listener, guarded(router(state), hosts), BOUNDS, shutdown).await;
}

/// The router for a separate listener.
pub(crate) fn router(state: ControlState) -> Router {
    let health = Router::new().route("/v1/healthcheck", get(all_health)).with_state(state.clone());
    control_routes(state).merge(health).fallback(async || not_found("not found"))
}

/// The routes of the Control API for a router that serves `/v1/healthcheck` itself.
pub fn control_routes(state: ControlState) -> Router {
    Router::new()
        .route("/v1/schema", get(schemas))
        .route("/v1/healthcheck/{kind}/{id}", get(health_of))
        .route("/v1/discovery/{source}/dump", get(discovered))
        .route("/yumen/v1/discovery", get(all_discovered))
        // APISIX runs the garbage collector of Lua here; there is none.
        .route("/v1/gc", post(async || StatusCode::OK))
        .route("/v1/plugins/reload", put(plugins::reload))
        .route("/v1/{plural}", get(list))
        .route("/v1/{singular}/{id}", get(one))
        .with_state(state)
}

/// Kinds with single objects and a list: singular, plural, kind.
const SHOWN: [(&str, &str, Kind); 3] = [
    ("route", "routes", Kind::Routes),
    ("service", "services", Kind::Services),
    ("upstream", "upstreams", Kind::Upstreams),
];

fn not_found(message: impl Into<String>) -> Response {
    ApiRefusal::new(StatusCode::NOT_FOUND, message).into_response()
}

async fn all_discovered(State(state): State<ControlState>) -> Response {
    reply::json(StatusCode::OK, &(state.discovery)(None).unwrap_or_default())
}

async fn discovered(State(state): State<ControlState>, Path(source): Path<String>) -> Response {
    match (state.discovery)(Some(&source)) {
        Some(dump) => reply::json(StatusCode::OK, &dump),
        None => not_found(format!("discovery[{source}] not found")),
    }
}

async fn schemas(State(state): State<ControlState>) -> Response {
    let body = json!({
        "main": schema::all_main(&state.admin),
        "plugins": plugins::described(&state.admin),
        "stream_plugins": plugins::streams_described(&state.admin),
    });
    reply::json(StatusCode::OK, &body)
}

async fn list(State(state): State<ControlState>, Path(plural): Path<String>) -> Response {
    let now = state.admin.store.state();
    if plural == "plugin_metadatas" {
        let all: Vec<Value> =
            now.of_kind(Kind::PluginMetadata).filter_map(|(id, entry)| metadata(id, entry)).collect();
        return reply::json(StatusCode::OK, &Value::Array(all));
    }
    let Some((.., kind)) = SHOWN.into_iter().find(|(_, name, _)| *name == plural) else {
        return not_found("not found");
    };
    let all: Vec<Value> = now.of_kind(kind).filter_map(|(id, entry)| shown(kind, id, entry)).collect();
    reply::json(StatusCode::OK, &Value::Array(all))
}

async fn one(State(state): State<ControlState>, Path((singular, id)): Path<(String, String)>) -> Response {
    let now = state.admin.store.state();
    if singular == "plugin_metadata" {
        let found = now.get(Kind::PluginMetadata, &id).and_then(|entry| metadata(&id, entry));
        return match found {
            Some(found) => reply::json(StatusCode::OK, &found),
            None => not_found(format!("plugin metadata[{id}] not found")),
        };
    }
    let Some((.., kind)) = SHOWN.into_iter().find(|(name, ..)| *name == singular) else {
        return not_found("not found");
    };
    match now.get(kind, &id).and_then(|entry| shown(kind, &id, entry)) {
        Some(found) => reply::json(StatusCode::OK, &found),
        None => not_found(format!("{singular}[{id}] not found")),
    }
}

fn value_of(id: &str, entry: &StoreEntry) -> Option<Map<String, Value>> {
    let Ok(Value::Object(mut value)) = serde_json::from_str(&entry.json) else { return None };
    secrets::redact(&mut value);
    value.insert("id".into(), json!(id));
    Some(value)
}

fn metadata(id: &str, entry: &StoreEntry) -> Option<Value> {
    value_of(id, entry).map(Value::Object)
}

fn shown(kind: Kind, id: &str, entry: &StoreEntry) -> Option<Value> {
    let value = value_of(id, entry)?;
    let upstream = match kind {
        Kind::Upstreams => Some(&value),
        _ => value.get("upstream").and_then(Value::as_object),
    };
    Some(json!({
        "key": format!("/apisix/{}/{id}", kind.name()),
        "has_domain": upstream.is_some_and(has_domain),
        "createdIndex": entry.created.0,
        "modifiedIndex": entry.modified.0,
        // These two members of APISIX's responses have no counterpart here.
        "update_count": 0,
        "clean_handlers": {},
        "value": value,
    }))
}

/// Whether a node is a host name, which has to be resolved.
fn has_domain(upstream: &Map<String, Value>) -> bool {
    let is_name = |host: &str| {
        // The keys of a map of nodes have ports, and brackets around IPv6 addresses.
        let bare = host.trim_start_matches('[').split(']').next().unwrap_or(host);
        let without_port = bare.rsplit_once(':').map_or(bare, |(host, _)| host);
        let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
        !host.is_empty() && !is_address(bare) && !is_address(without_port)
    };
    match upstream.get("nodes") {
        Some(Value::Object(nodes)) => nodes.keys().any(|host| is_name(host)),
        Some(Value::Array(nodes)) => nodes.iter().filter_map(|node| node["host"].as_str()).any(is_name),
        _ => false,
    }
}

async fn all_health(State(state): State<ControlState>, headers: HeaderMap) -> Response {
    etag_response(&headers, (state.health)(), None)
}

async fn health_of(
    State(state): State<ControlState>,
    Path((plural, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let shown = SHOWN.into_iter().find(|(_, name, _)| *name == plural);
    let Some((_, _, kind)) = shown else {
        return match plural.as_str() {
            "stream_routes" => not_found(format!("stream_routes[{id}] not found")),
            _ => ApiRefusal::invalid(format!("invalid src type {plural}")).into_response(),
        };
    };
    let name = format!("/apisix/{plural}/{id}");
    let health = (state.health)();
    let found = health.as_array().and_then(|all| all.iter().find(|one| one["name"] == name.as_str()));
    let now = state.admin.store.state();
    match (found, now.get(kind, &id)) {
        (Some(found), _) => etag_response(&headers, json!([found]), Some(found)),
        (None, Some(entry)) if has_checks(entry) => {
            // Checks are configured, but none has a result yet.
            let one = json!({ "name": name, "type": "http", "nodes": [] });
            etag_response(&headers, json!([one]), Some(&one))
        }
        (None, Some(_)) => not_found(format!("no checker for {plural}[{id}]")),
        (None, None) => not_found(format!("{plural}[{id}] not found")),
    }
}

fn has_checks(entry: &StoreEntry) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(&entry.json) else { return false };
    ["/checks", "/upstream/checks"].into_iter().any(|path| value.pointer(path).is_some())
}

/// A page for browsers, otherwise JSON: the list, or the requested item.
fn etag_response(headers: &HeaderMap, list: Value, one: Option<&Value>) -> Response {
    let accepts = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or("");
    // Browsers ask for HTML by name; tools send `*/*` or JSON.
    if accepts.contains("text/html") {
        let kind = HeaderValue::from_static("text/html; charset=utf-8");
        return ([(CONTENT_TYPE, kind)], page(&list)).into_response();
    }
    reply::json(StatusCode::OK, one.unwrap_or(&list))
}

fn page(list: &Value) -> String {
    let mut page = String::from(concat!(
        "<!DOCTYPE html>\n<html><head><title>Upstream health</title></head><body>\n",
        "<h1>Upstream health</h1>\n<table border=\"1\">\n",
        "<tr><th>Upstream</th><th>Type</th><th>Host</th><th>Status</th><th>Successes</th>",
        "<th>HTTP failures</th><th>TCP failures</th><th>Timeouts</th></tr>\n",
    ));
    for upstream in list.as_array().into_iter().flatten() {
        for node in upstream["nodes"].as_array().into_iter().flatten() {
            let counter = &node["counter"];
            let host = format!("{}:{}", plain(&node["ip"]), plain(&node["port"]));
            let cells = [
                plain(&upstream["name"]),
                plain(&upstream["type"]),
                host,
                plain(&node["status"]),
                plain(&counter["success"]),
                plain(&counter["http_failure"]),
                plain(&counter["tcp_failure"]),
                plain(&counter["timeout_failure"]),
            ];
            page.push_str("<tr>");
            for cell in cells {
                // Names of objects come from users and must not become markup.
                page.push_str(&format!("<td>{}</td>", escaped(&cell)));
            }
            page.push_str("</tr>\n");
        }
    }
    page.push_str("</table></body></html>\n");
    page
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
