//! Envelopes: how objects and lists are shown.

use std::borrow::Cow;
use std::fmt::Write;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::node::AdminApiVersion;
use yumen_store::{Entry, Key, Revision};

use crate::reply;

const REVISION: &str = "x-yumen-revision";

/// What was done to an object, in the word of the older shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    Set,
    Create,
    Patch,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Get => "get",
            Action::Set => "set",
            Action::Create => "create",
            Action::Patch => "compareAndSwap",
        }
    }
}

/// An object as a client may see it: private keys never leave.
fn shown<'a>(kind: Kind, json: &'a str) -> Cow<'a, str> {
    if kind != Kind::Ssls {
        return Cow::Borrowed(json);
    }
    // What cannot be read is not shown at all rather than with its key.
    let mut object: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    object.shift_remove("key");
    object.shift_remove("keys");
    Cow::Owned(Value::Object(object).to_string())
}

/// Writes `{"key": ..., "value": ...}`, with the revisions where they are asked for.
fn node(out: &mut String, key: &Key, entry: &Entry, with_revisions: bool) {
    out.push_str(r#"{"key":"#);
    quote(out, "/apisix/", key);
    out.push_str(r#","value":"#);
    out.push_str(&shown(key.kind, &entry.json));
    if with_revisions {
        let (created, modified) = (entry.created.0, entry.modified.0);
        write!(out, r#","createdIndex":{created},"modifiedIndex":{modified}"#)
            .expect("writing to a string cannot fail");
    }
    out.push('}');
}

/// Writes the name of an object as a JSON string. Ids hold nothing that needs escaping, nearly always.
fn quote(out: &mut String, before: &str, key: &Key) {
    if key.id.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        out.push_str(&Value::String(format!("{before}{key}")).to_string());
        return;
    }
    write!(out, "\"{before}{key}\"").expect("writing to a string cannot fail");
}

/// What stands around an object, at most.
const NODE_BYTES: usize = 128;

/// One object.
pub(crate) fn one(
    version: AdminApiVersion,
    status: StatusCode,
    action: Action,
    (key, entry): (&Key, &Entry),
    revision: Revision,
) -> Response {
    let mut text = String::with_capacity(entry.json.len() + 160);
    node(&mut text, key, entry, action == Action::Get);
    if version == AdminApiVersion::Default {
        text = format!(r#"{{"action":"{}","count":1,"node":{text}}}"#, action.name());
    }
    text.push('\n');
    let tag = HeaderValue::from_str(&format!("\"{}\"", entry.modified.0));
    let mut response = at(reply::text(status, text), revision);
    response.headers_mut().insert(header::ETAG, tag.expect("digits are visible"));
    response
}

/// A list; `total` counts what was left by the filters, on whichever page.
pub(crate) fn list<'a>(
    version: AdminApiVersion,
    place: &str,
    total: usize,
    rows: impl Iterator<Item = (Key, &'a Entry)> + Clone,
    revision: Revision,
) -> Response {
    // In one piece: a long list grown by doubling is copied as often as it is written.
    let bytes = rows.clone().map(|(key, entry)| entry.json.len() + key.id.len() + NODE_BYTES).sum::<usize>();
    let mut text = String::with_capacity(bytes + NODE_BYTES);
    let opening = match version {
        AdminApiVersion::V3 => format!(r#"{{"total":{total},"list":["#),
        AdminApiVersion::Default => {
            let place = Value::String(format!("/apisix/{place}"));
            format!(r#"{{"action":"get","count":{total},"node":{{"key":{place},"dir":true,"nodes":["#)
        }
    };
    text.push_str(&opening);
    for (i, (key, entry)) in rows.enumerate() {
        if i > 0 {
            text.push(',');
        }
        node(&mut text, &key, entry, true);
    }
    text.push_str(if version == AdminApiVersion::V3 { "]}\n" } else { "]}}\n" });
    at(reply::text(StatusCode::OK, text), revision)
}

/// What a deletion says.
pub(crate) fn deleted(version: AdminApiVersion, key: &Key, revision: Revision) -> Response {
    let name = Value::String(format!("/apisix/{key}"));
    let text = match version {
        AdminApiVersion::V3 => format!("{{\"deleted\":\"1\",\"key\":{name}}}\n"),
        AdminApiVersion::Default => {
            format!("{{\"action\":\"delete\",\"deleted\":\"1\",\"key\":{name},\"node\":{{}}}}\n")
        }
    };
    at(reply::text(StatusCode::OK, text), revision)
}

fn at(mut response: Response, revision: Revision) -> Response {
    response.headers_mut().insert(REVISION, HeaderValue::from(revision.0));
    response
}
