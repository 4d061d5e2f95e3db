//! Names, priorities and schemas of plugins, for tools that offer and edit them.
//!
//! Depends on the registry, not on concrete plugins.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use yumen_plugin::ServedTraffic;
use yumen_snapshot::compile::meta_schema;

use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::reply;

pub(crate) fn router() -> Router<AdminState> {
    Router::new()
        .route("/apisix/admin/plugins", get(all))
        .route("/apisix/admin/plugins/list", get(list))
        .route("/apisix/admin/plugins/reload", get(refuse_reload_by_get).put(reload))
        .route("/apisix/admin/plugins/{name}", get(one))
}

/// The value of a query argument, with the percent-encoding undone that tools use in plugin names.
pub(crate) fn query(raw: &Option<String>, name: &str) -> Option<String> {
    let pairs = raw.as_deref().unwrap_or("").split('&');
    let mut values = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Names of plugins contain no other character that clients encode.
        (key == name).then(|| value.replace("%2D", "-").replace("%2d", "-"))
    });
    values.next()
}

/// Names of all plugins: those that run, by descending priority, then those that can only be configured.
pub(crate) fn names(state: &AdminState) -> Vec<&str> {
    running(state, ServedTraffic::http).into_iter().chain(state.missing.names()).collect()
}

/// Names of the plugins for the traffic that `serves` selects, by descending priority.
fn running(state: &AdminState, serves: fn(ServedTraffic) -> bool) -> Vec<&str> {
    let served = state.registry.iter().map(|one| &one.kind).filter(|kind| serves(kind.serves));
    let mut running: Vec<_> = served.map(|kind| (kind.priority, kind.name)).collect();
    // Plugins of one priority by name, so that the list does not depend on the order of registration.
    running.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    running.into_iter().map(|(_, name)| name).collect()
}

/// The schema of a plugin's settings with `_meta`; any object if the plugin does not run.
pub(crate) fn schema(state: &AdminState, name: &str) -> Option<Value> {
    let mut schema = match state.registry.get(name) {
        Some(registered) => registered.schema().clone(),
        None if state.missing.is_known(name) => inactive_schema(),
        None => return None,
    };
    let members = schema.as_object_mut()?;
    let properties = members.entry("properties").or_insert_with(|| json!({}));
    // APISIX injects it into every schema in the same way.
    properties.as_object_mut()?.insert("_meta".into(), meta_schema().clone());
    Some(schema)
}

/// The schema of a plugin's settings in consumers.
pub(crate) fn consumer_schema(state: &AdminState, name: &str) -> Option<Value> {
    state.registry.get(name)?.consumer_schema().cloned()
}

/// The schema of a plugin's metadata.
pub(crate) fn metadata_schema(state: &AdminState, name: &str) -> Option<Value> {
    state.registry.get(name)?.metadata_schema()
}

/// The descriptions of all plugins.
pub(crate) fn described(state: &AdminState) -> Value {
    let of = |name: &str| Some((name.to_owned(), description(state, name)?));
    Value::Object(names(state).into_iter().filter_map(of).collect())
}

/// The descriptions of all plugins that run for streams.
pub(crate) fn streams_described(state: &AdminState) -> Value {
    let of = |name: &str| Some((name.to_owned(), description(state, name)?));
    Value::Object(running(state, ServedTraffic::streams).into_iter().filter_map(of).collect())
}

fn inactive_schema() -> Value {
    json!({
        "type": "object",
        "properties": {},
        "$comment": "inactive: the settings are stored, but the plugin is not supported in this version"
    })
}

fn description(state: &AdminState, name: &str) -> Option<Value> {
    let mut members = Map::new();
    let kind = state.registry.get(name).map(|one| &one.kind);
    // The version of most APISIX plugins.
    members.insert("version".into(), json!(kind.map_or("0.1", |kind| kind.version)));
    members.insert("priority".into(), json!(kind.map_or(0, |kind| kind.priority)));
    members.insert("schema".into(), schema(state, name)?);
    members.insert("scope".into(), json!("global"));
    if kind.is_some_and(|kind| kind.role.is_auth()) {
        members.insert("type".into(), json!("auth"));
    }
    if kind.is_none() {
        members.insert("inactive".into(), json!(true));
    }
    let more = [
        ("consumer_schema", consumer_schema(state, name)),
        ("metadata_schema", metadata_schema(state, name)),
    ];
    let more = more.into_iter().filter_map(|(key, schema)| Some((key.to_owned(), schema?)));
    members.extend(more);
    Some(Value::Object(members))
}

/// Whether the requested subsystem is `http`, the default.
fn subsystem(raw: &Option<String>) -> Result<bool, ApiRefusal> {
    match query(raw, "subsystem").as_deref() {
        None | Some("http") => Ok(true),
        Some("stream") => Ok(false),
        Some(other) => Err(ApiRefusal::invalid(format!("unsupported subsystem: {other}"))),
    }
}

async fn all(State(state): State<AdminState>, RawQuery(raw): RawQuery) -> Response {
    match (query(&raw, "all").as_deref(), subsystem(&raw)) {
        (_, Err(refusal)) => refusal.into_response(),
        (Some("true"), Ok(true)) => reply::json(StatusCode::OK, &described(&state)),
        (Some("true"), Ok(false)) => reply::json(StatusCode::OK, &streams_described(&state)),
        _ => ApiRefusal::invalid("not found schema").into_response(),
    }
}

async fn list(State(state): State<AdminState>, RawQuery(raw): RawQuery) -> Response {
    match subsystem(&raw) {
        Err(refusal) => refusal.into_response(),
        Ok(true) => reply::json(StatusCode::OK, &json!(running(&state, ServedTraffic::http))),
        Ok(false) => reply::json(StatusCode::OK, &json!(running(&state, ServedTraffic::streams))),
    }
}

async fn one(State(state): State<AdminState>, Path(name): Path<String>, RawQuery(raw): RawQuery) -> Response {
    let is_http = match subsystem(&raw) {
        Ok(is_http) => is_http,
        Err(refusal) => return refusal.into_response(),
    };
    if query(&raw, "all").as_deref() == Some("true") {
        let all = if is_http { described(&state) } else { streams_described(&state) };
        return reply::json(StatusCode::OK, &all);
    }
    let serves = |serves: ServedTraffic| if is_http { serves.http() } else { serves.streams() };
    let is_served = match state.registry.get(&name) {
        Some(registered) => serves(registered.kind.serves),
        // A plugin that can only be configured counts as an HTTP plugin.
        None => is_http,
    };
    let Some(settings) = schema(&state, &name).filter(|_| is_served) else {
        let of = if is_http { "http" } else { "stream" };
        return ApiRefusal::new(StatusCode::NOT_FOUND, format!("plugin not found in subsystem {of}"))
            .into_response();
    };
    let schema_type = match query(&raw, "schema_type").as_deref() {
        Some("consumer") => consumer_schema(&state, &name),
        Some("metadata") => metadata_schema(&state, &name),
        _ => Some(settings),
    };
    match schema_type {
        Some(schema) => reply::json(StatusCode::OK, &schema),
        None => ApiRefusal::invalid("not found schema").into_response(),
    }
}

/// Plugins are compiled in, so there is nothing to reload; tools expect a confirmation.
pub(crate) async fn reload() -> Response {
    (StatusCode::OK, "done").into_response()
}

async fn refuse_reload_by_get() -> Response {
    let message = "please use PUT method to reload the plugins, GET method is not allowed.";
    ApiRefusal::method(message, &["PUT"]).into_response()
}

#[cfg(test)]
mod tests;
