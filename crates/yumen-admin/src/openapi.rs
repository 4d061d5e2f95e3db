//! The Admin API as an OpenAPI 3.1 document, made from the resource schemas and one table of endpoints.
//!
//! Knows no handler: a test elsewhere holds the table and the routers together.

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Map, Value, json};
use yumen_config::{Kind, resource};

use crate::api::AdminState;
use crate::schema::singular;
use crate::{plugins, reply};

mod table;

pub use table::endpoints;

/// What an endpoint takes or gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Nothing,
    /// An object of a kind.
    Object(Kind),
    /// A part of an object of a kind, to be merged into it.
    Part(Kind),
    /// An object of a kind as stored: key, value and revisions.
    Stored(Kind),
    /// A list of those.
    List(Kind),
    /// What was deleted.
    Deleted,
    /// The whole configuration.
    Document,
    /// A JSON Schema.
    Schema,
    /// Any JSON.
    Any,
    /// A text.
    Text,
}

/// One verb of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// In lower case, as the document writes it.
    pub method: &'static str,
    /// With parameters in braces.
    pub path: String,
    /// What it does, in a few words.
    pub summary: String,
    /// What it is about.
    pub tag: &'static str,
    /// What it takes.
    pub takes: Payload,
    /// What it gives, by status.
    pub gives: Vec<(u16, Payload)>,
    /// Its query arguments, none of which is required.
    pub query: &'static [&'static str],
    /// The headers it cannot do without.
    pub headers: &'static [&'static str],
}

pub(crate) fn router() -> Router<AdminState> {
    Router::new().route("/yumen/v1/openapi.json", get(document))
}

async fn document(axum::extract::State(state): axum::extract::State<AdminState>) -> Response {
    reply::json(StatusCode::OK, &openapi(&state, &endpoints()))
}

/// The document of these endpoints.
pub fn openapi(state: &AdminState, endpoints: &[Endpoint]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path.as_str()).or_insert_with(|| json!({}));
        path[endpoint.method] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Yumen Admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "The resource model and Admin API of APISIX, and what Yumen adds to it."
        },
        "jsonSchemaDialect": "http://json-schema.org/draft-07/schema#",
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": { "schemas": schemas(state), "securitySchemes": security() }
    })
}

fn security() -> Value {
    json!({ "key": { "type": "apiKey", "in": "header", "name": "X-API-KEY" } })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut responses = Map::new();
    for (status, payload) in &endpoint.gives {
        responses.insert(status.to_string(), response(*status, *payload));
    }
    responses.insert(
        "default".into(),
        json!({
            "description": "the request was refused",
            "content": content(json!({ "$ref": "#/components/schemas/refusal" })),
        }),
    );
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": parameters(endpoint),
        "responses": responses,
    });
    if endpoint.takes != Payload::Nothing {
        operation["requestBody"] = json!({ "required": true, "content": content(schema(endpoint.takes)) });
    }
    operation
}

/// Unique, as every path and verb is.
fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(endpoint.method).chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({ "type": "string", "minLength": 1 });
    let path = in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let query = endpoint.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": text }));
    let headers = endpoint
        .headers
        .iter()
        .map(|name| json!({ "name": name, "in": "header", "required": true, "schema": text }));
    path.chain(query).chain(headers).collect()
}

fn response(status: u16, payload: Payload) -> Value {
    let description = match status {
        200 => "done",
        201 => "created",
        202 => "accepted and in force",
        204 => "in force already",
        _ => "refused",
    };
    match payload {
        Payload::Nothing => json!({ "description": description }),
        Payload::Text => {
            json!({ "description": description, "content": { "text/plain": { "schema": { "type": "string" } } } })
        }
        payload => json!({ "description": description, "content": content(schema(payload)) }),
    }
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schema(payload: Payload) -> Value {
    match payload {
        Payload::Object(kind) => reference(singular(kind)),
        Payload::Stored(kind) => stored(reference(&format!("{}_stored", singular(kind)))),
        Payload::List(kind) => {
            let item = stored(reference(&format!("{}_stored", singular(kind))));
            json!({
                "type": "object",
                "required": ["total", "list"],
                "properties": { "total": { "type": "integer" }, "list": { "type": "array", "items": item } }
            })
        }
        Payload::Deleted => json!({
            "type": "object",
            "required": ["key", "deleted"],
            "properties": { "key": { "type": "string" }, "deleted": { "type": "string" } }
        }),
        Payload::Document => reference("document"),
        Payload::Part(_) | Payload::Schema => json!({ "type": "object" }),
        Payload::Any => json!({}),
        Payload::Text | Payload::Nothing => json!({ "type": "string" }),
    }
}

fn stored(value: Value) -> Value {
    json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {
            "key": { "type": "string" },
            "value": value,
            "createdIndex": { "type": "integer" },
            "modifiedIndex": { "type": "integer" }
        }
    })
}

fn schemas(state: &AdminState) -> Value {
    let mut all = Map::new();
    for kind in Kind::ALL {
        let schema = resource::schema_of(kind).clone();
        // As stored, an object may lack what is never given back, such as private keys.
        let given: Value = json!({ "type": "object", "properties": schema["properties"] });
        all.insert(singular(kind).into(), schema);
        all.insert(format!("{}_stored", singular(kind)), given);
    }
    for name in plugins::names(state) {
        if let Some(schema) = plugins::schema(state, name) {
            all.insert(format!("plugin.{name}"), schema);
        }
    }
    let lists = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Credentials);
    let list = |kind: Kind| {
        let item =
            if kind == Kind::Consumers { json!({ "type": "object" }) } else { reference(singular(kind)) };
        (kind.name().to_owned(), json!({ "type": "array", "items": item }))
    };
    let properties: Map<String, Value> = lists.map(list).collect();
    all.insert("document".into(), json!({ "type": "object", "properties": properties }));
    all.insert(
        "refusal".into(),
        json!({
            "type": "object",
            "properties": { "error_msg": { "type": "string" }, "message": { "type": "string" } }
        }),
    );
    Value::Object(all)
}

#[cfg(test)]
mod tests;
