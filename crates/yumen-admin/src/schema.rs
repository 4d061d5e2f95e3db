//! Schemas of resources and plugins over HTTP, and validation of an object without writing it.
//!
//! Independent of the store: nothing here depends on the active configuration.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use yumen_config::duplicate_keys::{self, DuplicateCheckedValue};
use yumen_config::{Kind, resource};

use crate::api::AdminState;
use crate::plugins;
use crate::refusal::ApiRefusal;
use crate::whole_body::WholeBody;
use crate::{reply, validate};

pub(crate) fn router() -> Router<AdminState> {
    Router::new()
        .route("/apisix/admin/schema/{main}", get(main_schema))
        .route("/apisix/admin/schema/plugins/{name}", get(plugin_schema))
        .route("/apisix/admin/schema/validate/{resource}", post(validate_one))
}

/// The singular name of a kind, in schemas and messages.
pub(crate) fn singular(kind: Kind) -> &'static str {
    kind.descriptor().names.singular
}

/// The kind of a singular or plural name.
pub(crate) fn kind_of(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| singular(*kind) == name || kind.name() == name)
}

/// The schema of a resource by its singular name, or of all plugins as `plugins`.
fn main(state: &AdminState, name: &str) -> Option<Value> {
    if name == "plugins" {
        return Some(plugins_schema(state));
    }
    kind_of(name).map(|kind| resource::schema_of(kind).clone())
}

/// The schemas of all resources, by singular name.
pub(crate) fn all_main(state: &AdminState) -> Value {
    let of = |kind| (singular(kind).to_owned(), resource::schema_of(kind).clone());
    let mut all: Map<String, Value> = Kind::ALL.into_iter().map(of).collect();
    all.insert("plugins".into(), plugins_schema(state));
    Value::Object(all)
}

fn plugins_schema(state: &AdminState) -> Value {
    let of = |name: &str| plugins::schema(state, name).map(|schema| (name.to_owned(), schema));
    let properties: Map<String, Value> = plugins::names(state).into_iter().filter_map(of).collect();
    json!({ "type": "object", "properties": properties })
}

async fn main_schema(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Response {
    if name == "plugins" && plugins::query(&raw, "all").is_some() {
        return plugins::described_one(&state, None, &raw);
    }
    match main(&state, &name) {
        Some(schema) => reply::json(StatusCode::OK, &schema),
        // APISIX responds with 400 here, not with 404.
        None => ApiRefusal::invalid(format!("not found schema: {name}")).into_response(),
    }
}

/// The same response as `/apisix/admin/plugins/{name}`.
async fn plugin_schema(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Response {
    plugins::described_one(&state, Some(&name), &raw)
}

async fn validate_one(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    WholeBody(body): WholeBody,
) -> Response {
    let validated = kind_of(&name)
        .ok_or_else(|| ApiRefusal::new(StatusCode::NOT_FOUND, format!("Unsupported resource type: {name}")))
        .and_then(|kind| {
            // Duplicate members are refused, because readers disagree on which one counts.
            let read = duplicate_keys::from_json(&body).map_err(|error| error.to_string());
            let value = read.and_then(DuplicateCheckedValue::into_distinct).map_err(|error| {
                let message = format!("invalid request body: {error}");
                // APISIX returns the body with the error.
                let text = String::from_utf8_lossy(&body);
                ApiRefusal::of(StatusCode::BAD_REQUEST, json!({ "error_msg": message, "req_body": text }))
            })?;
            validate::object(&state, kind, &value).map_err(|mut refused| {
                // This endpoint reports errors of the schema without the prefix of the other verbs.
                if let Some(bare) = refused.message.strip_prefix(validate::INVALID) {
                    refused.message = bare.to_owned();
                }
                ApiRefusal::from(refused)
            })
        });
    match validated {
        Ok(()) => reply::json(StatusCode::OK, &json!({})),
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests;
