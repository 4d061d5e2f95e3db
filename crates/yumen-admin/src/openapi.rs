//! The Admin API as an OpenAPI 3.1 document, generated from the resource schemas and one table of endpoints.
//!
//! Independent of the handlers: a test compares the table with the routers.

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Map, Value, json};
use yumen_config::{Kind, resource};

use crate::api::AdminState;
use crate::schema::singular;
use crate::{plugins, reply};

mod shapes;
mod table;

pub use table::endpoints;

/// Content of a request or response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiPayload {
    /// No body.
    Nothing,
    /// An object of a kind.
    Object(Kind),
    /// A partial object of a kind, to be merged.
    Part(Kind),
    /// An object of a kind as stored: key, value and revisions.
    Stored(Kind),
    /// A list of stored objects.
    List(Kind),
    /// Confirmation of a deletion.
    Deleted,
    /// The whole configuration.
    Document,
    /// A JSON Schema.
    Schema,
    /// Any JSON.
    Any,
    /// A named schema of the components.
    Shape(&'static str),
    /// The same, or its readable form on request.
    ShapeOrText(&'static str),
    /// Plain text.
    Text,
    /// The whole configuration as YAML.
    Yaml,
    /// A file.
    Bytes,
}

/// Allowed values of a query argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentForm {
    /// Any text but the empty one.
    Text,
    /// A whole number from 0.
    Number,
    /// A whole number within these bounds, inclusive.
    Between(u32, u32),
    /// One of these values.
    OneOf(&'static [&'static str]),
}

/// A query argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiArgument {
    /// The name in the query.
    pub name: &'static str,
    /// Allowed values.
    pub form: ArgumentForm,
    /// Whether a request without it is refused.
    pub is_required: bool,
}

/// One method of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiEndpoint {
    /// Lower case, as in the document.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: String,
    /// A short summary.
    pub summary: String,
    /// The group in the document.
    pub tag: &'static str,
    /// The request body.
    pub takes: ApiPayload,
    /// The response body, by status.
    pub gives: Vec<(u16, ApiPayload)>,
    /// Query arguments.
    pub query: &'static [ApiArgument],
    /// Required headers.
    pub headers: &'static [&'static str],
}

pub(crate) fn router() -> Router<AdminState> {
    Router::new().route("/yumen/v1/openapi.json", get(document))
}

async fn document(axum::extract::State(state): axum::extract::State<AdminState>) -> Response {
    reply::json(StatusCode::OK, &openapi(&state, &endpoints()))
}

/// Generates the document of these endpoints.
pub fn openapi(state: &AdminState, endpoints: &[ApiEndpoint]) -> Value {
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
            "description": "The resource model and Admin API of APISIX, with the extensions of Yumen."
        },
        "jsonSchemaDialect": "http://json-schema.org/draft-07/schema#",
        "servers": [{ "url": "/" }],
        // Applies to every operation (OpenAPI 3.1 §4.8.1).
        "security": [{ "key": [] }],
        "paths": paths,
        "components": { "schemas": schemas(state), "securitySchemes": security() }
    })
}

fn security() -> Value {
    json!({ "key": { "type": "apiKey", "in": "header", "name": "X-API-KEY" } })
}

fn operation(endpoint: &ApiEndpoint) -> Value {
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
    if endpoint.takes != ApiPayload::Nothing {
        operation["requestBody"] = json!({ "required": true, "content": body(endpoint.takes) });
    }
    operation
}

/// Unique, since every pair of path and method is.
fn operation_id(endpoint: &ApiEndpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(endpoint.method).chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(endpoint: &ApiEndpoint) -> Vec<Value> {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = form_schema(ArgumentForm::Text);
    let path = in_path.map(|name| {
        let form = if name == "revision" { ArgumentForm::Number } else { ArgumentForm::Text };
        json!({ "name": name, "in": "path", "required": true, "schema": form_schema(form) })
    });
    let query = endpoint.query.iter().map(|one| {
        json!({ "name": one.name, "in": "query", "required": one.is_required, "schema": form_schema(one.form) })
    });
    let headers = endpoint
        .headers
        .iter()
        .map(|name| json!({ "name": name, "in": "header", "required": true, "schema": text }));
    path.chain(query).chain(headers).collect()
}

fn form_schema(form: ArgumentForm) -> Value {
    match form {
        ArgumentForm::Text => json!({ "type": "string", "minLength": 1 }),
        ArgumentForm::Number => json!({ "type": "integer", "minimum": 0 }),
        ArgumentForm::Between(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        ArgumentForm::OneOf(values) => json!({ "type": "string", "enum": values }),
    }
}

fn response(status: u16, payload: ApiPayload) -> Value {
    let description = match status {
        200 => "done",
        201 => "created",
        202 => "accepted and active",
        204 => "already active",
        _ => "refused",
    };
    match payload {
        ApiPayload::Nothing => json!({ "description": description }),
        payload => json!({ "description": description, "content": body(payload) }),
    }
}

/// A payload by its media types.
fn body(payload: ApiPayload) -> Value {
    let mut types = Map::new();
    let mut may_be = |name: &str| drop(types.insert(name.into(), json!({ "schema": schema(payload) })));
    match payload {
        ApiPayload::Text => may_be("text/plain"),
        ApiPayload::Yaml => may_be("application/yaml"),
        ApiPayload::Bytes => may_be("application/octet-stream"),
        ApiPayload::Document => {
            may_be("application/json");
            may_be("application/yaml");
        }
        _ => may_be("application/json"),
    }
    if let ApiPayload::ShapeOrText(_) = payload {
        types.insert("text/plain".into(), json!({ "schema": { "type": "string" } }));
    }
    Value::Object(types)
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schema(payload: ApiPayload) -> Value {
    match payload {
        ApiPayload::Object(kind) => reference(singular(kind)),
        ApiPayload::Stored(kind) => stored(reference(&format!("{}_stored", singular(kind)))),
        ApiPayload::List(kind) => {
            let item = stored(reference(&format!("{}_stored", singular(kind))));
            json!({
                "type": "object",
                "required": ["total", "list"],
                "properties": { "total": { "type": "integer" }, "list": { "type": "array", "items": item } }
            })
        }
        ApiPayload::Deleted => json!({
            "type": "object",
            "required": ["key", "deleted"],
            "properties": { "key": { "type": "string" }, "deleted": { "type": "string" } }
        }),
        ApiPayload::Document => reference("document"),
        ApiPayload::Part(_) | ApiPayload::Schema | ApiPayload::Yaml => json!({ "type": "object" }),
        ApiPayload::Any => json!({}),
        ApiPayload::Shape(name) | ApiPayload::ShapeOrText(name) => reference(name),
        ApiPayload::Text | ApiPayload::Bytes | ApiPayload::Nothing => json!({ "type": "string" }),
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
        // A stored object may lack members that are never returned, such as private keys.
        let mut given: Value = json!({ "type": "object", "properties": schema["properties"] });
        as_written(&mut given);
        all.insert(singular(kind).into(), schema);
        all.insert(format!("{}_stored", singular(kind)), given);
    }
    for name in plugins::names(state) {
        if let Some(schema) = plugins::schema(state, name) {
            all.insert(format!("plugin.{name}"), schema);
        }
    }
    let lists = Kind::ALL.into_iter().filter(|kind| kind.descriptor().parent.is_none());
    // A list of consumers in a document may hold their credentials too, which have another schema.
    let has_nested = |kind: Kind| Kind::descriptors().iter().any(|one| one.parent == Some(kind));
    let list = |kind: Kind| {
        let item = if has_nested(kind) { json!({ "type": "object" }) } else { reference(singular(kind)) };
        (kind.name().to_owned(), json!({ "type": "array", "items": item }))
    };
    let properties: Map<String, Value> = lists.map(list).collect();
    all.insert("document".into(), json!({ "type": "object", "properties": properties }));
    all.extend(shapes::shapes());
    Value::Object(all)
}

/// Objects are returned as they were written, and a client may write an empty object for an empty list.
fn as_written(schema: &mut Value) {
    match schema {
        Value::Object(members) => members.values_mut().for_each(as_written),
        Value::Array(items) => items.iter_mut().for_each(as_written),
        _ => {}
    }
    if schema.get("type").is_some_and(|form| form == "array") {
        *schema = json!({ "anyOf": [schema.take(), { "type": "object", "maxProperties": 0 }] });
    }
}

#[cfg(test)]
mod tests;
