//! Bodies of the gateway's own endpoints, as schemas of the document's components.
//!
//! Independent of the endpoints. A test validates responses against these schemas.

use serde_json::{Map, Value, json};
use yumen_config::resource::Question;
use yumen_config::{Kind, schema};

/// The schemas by name.
pub(super) fn shapes() -> Map<String, Value> {
    let shapes = [
        ("refusal", refusal()),
        ("configuration", configuration()),
        ("revisions", object(&["revisions"], json!({ "revisions": array(revision_schema(summary())) }))),
        ("revision", revision_schema(change())),
        ("restored", object(&["revision", "restored", "changed", "expired"], restored())),
        ("confirmed", object(&["confirmed"], counts(&["confirmed"]))),
        ("difference", difference()),
        ("applied", applied()),
        ("cluster", cluster()),
        ("problems", array(problem())),
        ("question", schema::of::<Question>()),
        ("explanation", explanation()),
        ("transaction", transaction()),
        ("written", written()),
        ("plan", plan()),
        ("opened_session", opened_session()),
        ("session", session()),
        ("live", live()),
        ("objects", objects()),
        ("upstreams", object(&["total", "upstreams"], json!({ "total": whole(), "upstreams": anything() }))),
        ("certificates", object(&["certificates"], json!({ "certificates": anything() }))),
        ("converted", object(&["text"], json!({ "text": { "type": "string" } }))),
        ("secrets", object(&["secrets"], json!({ "secrets": anything() }))),
        ("refreshed", object(&["refreshed"], counts(&["refreshed"]))),
        ("forgotten", object(&["forgotten"], json!({ "forgotten": text() }))),
    ];
    shapes.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect()
}

/// The members of problems, changes and impact are for readers; only the outer structure is for tools.
fn plan() -> Value {
    let anything = json!({ "type": "object" });
    object(
        &["changes", "problems", "impact", "needs_confirmation"],
        json!({
            "changes": array(anything.clone()),
            "problems": array(anything.clone()),
            "impact": anything,
            "needs_confirmation": { "type": ["string", "null"] },
        }),
    )
}

fn anything() -> Value {
    array(json!({ "type": "object" }))
}

fn session() -> Value {
    let login = json!({ "type": "string", "enum": ["session", "key", "none"] });
    object(
        &["name", "role", "login", "expires_in_s", "version"],
        json!({
            "name": text(),
            "role": { "type": "string", "enum": ["admin", "viewer"] },
            "login": login,
            "expires_in_s": { "type": ["integer", "null"] },
            "version": text(),
        }),
    )
}

/// The token of a new session, which no other response contains.
fn opened_session() -> Value {
    let mut shape = session();
    shape["properties"]["csrf_token"] = text();
    if let Some(required) = shape["required"].as_array_mut() {
        required.push("csrf_token".into());
    }
    shape
}

/// Rows are absent unless requested; sums are `null` before the first reading.
fn live() -> Value {
    object(
        &["interval_ms", "samples"],
        json!({
            "interval_ms": whole(),
            "samples": anything(),
            "rows": { "type": "object" },
            "version": {},
            "revision": {},
            "uptime_ms": {},
            "workers": {},
            "total": {},
        }),
    )
}

fn objects() -> Value {
    object(
        &["revision", "is_whole", "rows", "deleted"],
        json!({
            "revision": whole(),
            "is_whole": { "type": "boolean" },
            "rows": anything(),
            "deleted": array(text()),
        }),
    )
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn array(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn whole() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn restored() -> Value {
    let mut properties = counts(&["revision", "restored", "changed"]);
    properties["expired"] = array(json!({ "type": "string" }));
    properties
}

fn counts(names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), whole())).collect::<Map<String, Value>>().into()
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn refusal() -> Value {
    let wrong = object(&[], json!({ "object": text(), "error": text() }));
    object(
        &[],
        json!({ "error_msg": text(), "message": text(), "description": text(), "errors": array(wrong) }),
    )
}

/// Stored objects with the revision of each, and a version for every list.
fn configuration() -> Value {
    let mut properties = Map::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.descriptor().parent.is_none()) {
        properties.insert(kind.name().into(), array(json!({ "type": "object" })));
        properties.insert(format!("{}_conf_version", kind.name()), whole());
    }
    object(&[], Value::Object(properties))
}

/// One revision, with this schema for its changes.
fn revision_schema(change: Value) -> Value {
    let properties = json!({
        "revision": whole(),
        "time_unix_ms": whole(),
        "author": text(),
        "reason": { "type": ["string", "null"] },
        "changes": array(change),
    });
    object(&["revision", "time_unix_ms", "author", "changes"], properties)
}

fn action() -> Value {
    json!({ "enum": ["created", "changed", "deleted"] })
}

fn summary() -> Value {
    object(&["object", "action"], json!({ "object": text(), "action": action() }))
}

fn change() -> Value {
    let path = object(&["path", "before", "after"], json!({ "path": text(), "before": {}, "after": {} }));
    let value = json!({ "type": ["object", "null"] });
    let properties = json!({
        "object": text(), "action": action(), "before": value, "after": value, "paths": array(path),
    });
    object(&["object", "action", "before", "after", "paths"], properties)
}

fn difference() -> Value {
    let properties = json!({ "from": whole(), "to": whole(), "changes": array(change()) });
    object(&["from", "to", "changes"], properties)
}

fn applied() -> Value {
    let names = ["revision", "applied", "lag", "workers", "workers_current"];
    let mut properties = counts(&names);
    properties["quarantined"] = array(text());
    object(&["revision", "applied", "lag", "workers", "workers_current", "quarantined"], properties)
}

fn cluster() -> Value {
    let truth = json!({ "type": "boolean" });
    let mut node = counts(&[
        "applied",
        "lag_revisions",
        "lag_ms",
        "problems",
        "workers",
        "started_unix_ms",
        "last_seen_ms",
    ]);
    for name in ["id", "name", "version", "config_source"] {
        node[name] = text();
    }
    node["is_self"] = truth.clone();
    node["addresses"] = json!({ "type": "object", "additionalProperties": array(text()) });
    let names: Vec<String> = node.as_object().map(|node| node.keys().cloned().collect()).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut properties = counts(&["revision", "age_ms", "behind"]);
    properties["store"] = json!({ "enum": ["file", "embedded", "etcd"] });
    properties["connected"] = truth;
    properties["nodes"] = array(object(&names, node));
    object(&["store", "connected", "age_ms", "revision", "behind", "nodes"], properties)
}

fn problem() -> Value {
    let properties = json!({
        "level": { "enum": ["warning", "error"] },
        "object": text(),
        "path": text(),
        "message": text(),
        "hint": { "type": ["string", "null"] },
    });
    object(&["level", "object", "path", "message"], properties)
}

fn explanation() -> Value {
    let maybe = json!({ "type": ["object", "null"] });
    let list = array(json!({ "type": "object" }));
    let properties = json!({
        "revision": whole(),
        "request": { "type": "object" },
        "scope": { "type": "object" },
        "certificate": maybe,
        "route": maybe,
        "candidates": list,
        "other_hosts": whole(),
        "other_paths": whole(),
        "why_not": maybe,
        "consumer": { "type": ["string", "null"] },
        "plugins": list,
        "answer": maybe,
        "upstream": maybe,
        "remarks": array(text()),
        // For streams, in place of the members about requests and routes.
        "stream": { "type": "object" },
        "stream_route": maybe,
        "others": whole(),
    });
    object(&["revision", "candidates", "plugins"], properties)
}

fn transaction() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "put": { "$ref": "#/components/schemas/document" },
            "delete": array(json!({ "type": "string", "minLength": 1 })),
            "expected_revision": whole(),
        }
    })
}

fn written() -> Value {
    let names = ["revision", "put", "deleted", "unchanged"];
    let mut properties = counts(&names);
    properties["ends"] = array(json!({ "type": "string" }));
    object(&names, properties)
}
