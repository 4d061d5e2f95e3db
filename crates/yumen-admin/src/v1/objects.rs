//! Objects of one kind in short form, and the changes since a revision: a table of many objects stays current without
//! reading them all again.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_config::Kind;
use yumen_store::{Revision, StoreEntry, StoreState};

use super::V1State;
use super::arguments::{ArgumentNames, PathParams, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::secrets;

/// Longest text of a member, in bytes; a longer one, such as a certificate, is left out.
const TEXT_BYTES_MAX: usize = 200;
/// Items of a list; further ones are counted.
const ITEMS_MAX: usize = 8;

/// The requested changes.
#[derive(Debug, Deserialize)]
pub(super) struct ObjectsQuery {
    /// The revision that the client has; all objects if it is absent or no longer kept.
    since: Option<u64>,
}

impl ArgumentNames for ObjectsQuery {
    const NAMES: &'static [&'static str] = &["since"];
}

/// `GET /yumen/v1/objects/{kind}[?since=REVISION]`.
pub(super) async fn objects(
    State(state): State<V1State>,
    PathParams(kind): PathParams<String>,
    StrictQuery(asked): StrictQuery<ObjectsQuery>,
) -> Result<Response, ApiRefusal> {
    let known = Kind::from_name(&kind);
    let kind = known
        .ok_or_else(|| ApiRefusal::new(StatusCode::NOT_FOUND, format!("there is no kind \"{kind}\"")))?;
    // Serializing many objects would block a thread of the runtime.
    let body = tokio::task::spawn_blocking(move || {
        let now = state.admin.store.state();
        let before = asked.since.filter(|since| *since <= now.revision.0);
        let before = before.and_then(|since| state.admin.store.state_at(Revision(since)).ok());
        document(&now, before.as_ref(), kind)
    });
    let body =
        body.await.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(reply::json(StatusCode::OK, &body))
}

fn document(now: &StoreState, before: Option<&StoreState>, kind: Kind) -> Value {
    let (mut rows, mut deleted) = (Vec::new(), Vec::new());
    match before {
        None => rows.extend(now.of_kind(kind).map(|(id, entry)| row(kind, id, entry))),
        Some(before) => {
            for (key, _, after) in before.differences(now).filter(|(key, ..)| key.kind == kind) {
                match after {
                    Some(entry) => rows.push(row(kind, &key.id, entry)),
                    None => deleted.push(json!(key.id)),
                }
            }
        }
    }
    json!({ "revision": now.revision.0, "is_whole": before.is_none(), "rows": rows, "deleted": deleted })
}

/// The short members of an object, without secrets for any reader.
fn row(kind: Kind, id: &str, entry: &StoreEntry) -> Value {
    let mut object: Map<String, Value> = serde_json::from_str(&entry.json).unwrap_or_default();
    for name in kind.descriptor().admin_api.secret_members {
        object.shift_remove(*name);
    }
    secrets::redact(&mut object);
    let mut row = Map::new();
    row.insert("id".into(), json!(id));
    row.insert("modified".into(), json!(entry.modified.0));
    for (name, value) in object {
        if let Some(short) = short(&name, value).filter(|_| name != "id" && name != "create_time") {
            row.insert(name, short);
        }
    }
    Value::Object(row)
}

fn short(name: &str, value: Value) -> Option<Value> {
    match (name, value) {
        ("labels", labels) => Some(labels),
        // The names, without the settings.
        ("plugins", Value::Object(plugins)) => {
            Some(plugins.into_iter().map(|(plugin, _)| Value::String(plugin)).collect())
        }
        ("upstream", Value::Object(upstream)) => Some(json!({ "nodes": nodes(&upstream) })),
        ("nodes", nodes) => Some(json!(count(&nodes))),
        (_, Value::String(text)) => (text.len() <= TEXT_BYTES_MAX).then_some(Value::String(text)),
        (_, Value::Array(items)) => items.iter().all(is_short).then(|| {
            let more = items.len().saturating_sub(ITEMS_MAX);
            let mark = (more > 0).then(|| json!(format!("+{more}")));
            items.into_iter().take(ITEMS_MAX).chain(mark).collect()
        }),
        (_, Value::Object(_)) => None,
        (_, plain) => Some(plain),
    }
}

fn is_short(item: &Value) -> bool {
    match item {
        Value::String(text) => text.len() <= TEXT_BYTES_MAX,
        other => !other.is_object() && !other.is_array(),
    }
}

fn nodes(upstream: &Map<String, Value>) -> usize {
    upstream.get("nodes").map_or(0, count)
}

fn count(nodes: &Value) -> usize {
    nodes.as_object().map(Map::len).or_else(|| nodes.as_array().map(Vec::len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(object: Value, expected: Value) {
        let entry = StoreEntry {
            json: object.to_string().into(),
            created: Revision(1),
            modified: Revision(2),
            expires_ms: None,
        };
        assert_eq!(row(Kind::Routes, "1", &entry), expected);
    }

    #[test]
    fn row_has_short_members_and_names_of_plugins() {
        check(
            json!({ "id": "1", "uri": "/a", "script": "x".repeat(300), "timeout": { "read": 1 }, "priority": 3,
                "plugins": { "key-auth": {}, "cors": {} }, "labels": { "a": "b" },
                "upstream": { "nodes": { "a:1": 1, "b:1": 1 } }, "methods": ["GET"] }),
            json!({ "id": "1", "modified": 2, "uri": "/a", "priority": 3, "plugins": ["key-auth", "cors"],
                "labels": { "a": "b" }, "upstream": { "nodes": 2 }, "methods": ["GET"] }),
        );
    }

    #[test]
    fn row_has_no_secret_and_no_long_list() {
        check(
            json!({ "password": "geheim", "hosts": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] }),
            json!({ "id": "1", "modified": 2, "password": "******",
                "hosts": ["a", "b", "c", "d", "e", "f", "g", "h", "+2"] }),
        );
    }
}
