//! Names, priorities and schemas of plugins, for tools that offer and edit them.
//!
//! Depends on the registry, not on concrete plugins.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Map, Value, json};
use yumen_plugin::{MissingPlugin, ServedTraffic};
use yumen_snapshot::compile::meta_schema;

use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::reply;

pub(crate) fn router() -> Router<AdminState> {
    Router::new()
        .route("/apisix/admin/plugins", get(all))
        .route("/apisix/admin/plugins/list", get(list))
        .route("/apisix/admin/plugins/reload", any(refuse_other_reload).put(reload))
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

/// Names of all plugins for HTTP: those that run, by descending priority, then those that can only be configured.
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

/// Names of all plugins for streams, in the same order.
fn stream_names(state: &AdminState) -> Vec<&str> {
    running(state, ServedTraffic::streams).into_iter().chain(state.missing.stream_names()).collect()
}

/// The schema of a plugin's settings with `_meta`; any object if the plugin does not run.
pub(crate) fn schema(state: &AdminState, name: &str) -> Option<Value> {
    let mut schema = match state.registry.get(name) {
        Some(registered) => registered.schema().clone(),
        None if is_missing(state, name) => inactive_schema(),
        None => return None,
    };
    let members = schema.as_object_mut()?;
    let properties = members.entry("properties").or_insert_with(|| json!({}));
    // APISIX injects it into every schema in the same way.
    properties.as_object_mut()?.insert("_meta".into(), meta_schema().clone());
    Some(schema)
}

/// Whether routes or stream routes may contain the plugin although this version does not run it.
fn is_missing(state: &AdminState, name: &str) -> bool {
    state.missing.is_known(name) || state.missing.get(name, true).is_some()
}

/// The table entry of a plugin that does not run.
fn missing(state: &AdminState, name: &str) -> Option<&'static MissingPlugin> {
    state.missing.get(name, false).or_else(|| state.missing.get(name, true))
}

/// The schema of a plugin's settings in consumers.
pub(crate) fn consumer_schema(state: &AdminState, name: &str) -> Option<Value> {
    match state.registry.get(name) {
        Some(registered) => registered.consumer_schema().cloned(),
        None => missing(state, name)?.consumer_schema(),
    }
}

/// The schema of a plugin's metadata.
pub(crate) fn metadata_schema(state: &AdminState, name: &str) -> Option<Value> {
    match state.registry.get(name) {
        Some(registered) => registered.metadata_schema(),
        None => missing(state, name)?.metadata_schema(),
    }
}

/// The descriptions of all plugins.
pub(crate) fn described(state: &AdminState) -> Value {
    let of = |name: &str| Some((name.to_owned(), description(state, name)?));
    Value::Object(names(state).into_iter().filter_map(of).collect())
}

/// The descriptions of all plugins for streams.
pub(crate) fn streams_described(state: &AdminState) -> Value {
    let of = |name: &str| {
        let mut described = description(state, name)?;
        // A plugin of routes does not run on streams merely because streams may name it.
        if !state.registry.get(name).is_some_and(|one| one.kind.serves.streams()) {
            described["inactive"] = json!(true);
        }
        Some((name.to_owned(), described))
    };
    Value::Object(stream_names(state).into_iter().filter_map(of).collect())
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
    let missing = missing(state, name).filter(|_| kind.is_none());
    let priority = kind.map(|kind| kind.priority).or(missing.map(|one| one.priority));
    // The version of most APISIX plugins.
    members.insert("version".into(), json!(kind.map_or("0.1", |kind| kind.version)));
    members.insert("priority".into(), json!(priority.unwrap_or(0)));
    members.insert("schema".into(), schema(state, name)?);
    members.insert("scope".into(), json!("global"));
    // Tools offer plugins of this type for consumers and credentials.
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

/// Whether the requested subsystem is `http`, the default; otherwise the name of an unknown one.
fn subsystem(raw: &Option<String>) -> Result<bool, String> {
    match query(raw, "subsystem").as_deref() {
        None | Some("http") => Ok(true),
        Some("stream") => Ok(false),
        Some(other) => Err(other.to_owned()),
    }
}

async fn all(State(state): State<AdminState>, RawQuery(raw): RawQuery) -> Response {
    described_one(&state, None, &raw)
}

async fn list(State(state): State<AdminState>, RawQuery(raw): RawQuery) -> Response {
    match subsystem(&raw) {
        // The contract's refusal is a plain sentence here.
        Err(_) => ApiRefusal::of(StatusCode::BAD_REQUEST, json!("invalid subsystem passed")).into_response(),
        Ok(true) => reply::json(StatusCode::OK, &json!(running(&state, ServedTraffic::http))),
        Ok(false) => reply::json(StatusCode::OK, &json!(running(&state, ServedTraffic::streams))),
    }
}

async fn one(State(state): State<AdminState>, Path(name): Path<String>, RawQuery(raw): RawQuery) -> Response {
    described_one(&state, Some(&name), &raw)
}

/// The schema of one plugin, or with `all=true` the descriptions of all.
pub(crate) fn described_one(state: &AdminState, name: Option<&str>, raw: &Option<String>) -> Response {
    let is_http = match subsystem(raw) {
        Ok(is_http) => is_http,
        Err(other) => {
            return ApiRefusal::invalid(format!("unsupported subsystem: {other}")).into_response();
        }
    };
    if query(raw, "all").as_deref() == Some("true") {
        let all = if is_http { described(state) } else { streams_described(state) };
        return reply::json(StatusCode::OK, &all);
    }
    let Some(name) = name else { return ApiRefusal::invalid("not found schema").into_response() };
    let serves = |serves: ServedTraffic| if is_http { serves.http() } else { serves.streams() };
    let is_served = match state.registry.get(name) {
        Some(registered) => serves(registered.kind.serves),
        None if is_http => state.missing.is_known(name),
        None => state.missing.get(name, true).is_some(),
    };
    let Some(settings) = schema(state, name).filter(|_| is_served) else {
        let of = if is_http { "http" } else { "stream" };
        return ApiRefusal::new(StatusCode::NOT_FOUND, format!("plugin not found in subsystem {of}"))
            .into_response();
    };
    let found = match query(raw, "schema_type").as_deref() {
        // An authentication plugin has another schema for the keys of a consumer.
        Some("consumer") => consumer_schema(state, name),
        Some("metadata") => metadata_schema(state, name),
        _ => Some(settings),
    };
    match found {
        Some(schema) => reply::json(StatusCode::OK, &schema),
        None => ApiRefusal::invalid("not found schema").into_response(),
    }
}

/// Plugins are compiled in, so there is nothing to reload; tools expect a confirmation.
pub(crate) async fn reload() -> Response {
    (StatusCode::OK, "done").into_response()
}

async fn refuse_other_reload(method: Method) -> Response {
    let message = format!("please use PUT method to reload the plugins, {method} method is not allowed.");
    ApiRefusal::method(message, &["PUT"]).into_response()
}

#[cfg(test)]
mod tests;
