//! Envelopes: how objects and lists are shown.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
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
fn node(out: &mut String, kind: Kind, id: &str, entry: &Entry, with_revisions: bool) {
    out.push_str(r#"{"key":"#);
    quote(out, kind, id);
    out.push_str(r#","value":"#);
    out.push_str(&shown(kind, &entry.json));
    if with_revisions {
        out.push_str(r#","createdIndex":"#);
        digits(out, entry.created.0);
        out.push_str(r#","modifiedIndex":"#);
        digits(out, entry.modified.0);
    }
    out.push('}');
}

/// Writes the name of an object as a JSON string. Ids hold nothing that needs escaping, nearly always.
fn quote(out: &mut String, kind: Kind, id: &str) {
    // Credentials stand below their consumers.
    let place = if kind == Kind::Credentials { "consumers" } else { kind.name() };
    if id.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        out.push_str(&Value::String(format!("/apisix/{place}/{id}")).to_string());
        return;
    }
    for part in ["\"/apisix/", place, "/", id, "\""] {
        out.push_str(part);
    }
}

/// Writes a number. A long list has many, and formatting is several times as dear.
fn digits(out: &mut String, mut number: u64) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend(text[at..].iter().map(|digit| char::from(*digit)));
}

/// What stands around an object, at most.
const NODE_BYTES: usize = 128;

/// How much a row takes, at most.
pub(crate) fn row_bytes(id: &str, entry: &Entry) -> usize {
    entry.json.len() + id.len() + NODE_BYTES
}

/// Writes the rows of a list, a comma between them.
pub(crate) fn rows<'a>(out: &mut String, kind: Kind, rows: impl Iterator<Item = (&'a Arc<str>, &'a Entry)>) {
    for (i, (id, entry)) in rows.enumerate() {
        if i > 0 {
            out.push(',');
        }
        node(out, kind, id, entry, true);
    }
}

/// One object.
pub(crate) fn one(
    version: AdminApiVersion,
    status: StatusCode,
    action: Action,
    (key, entry): (&Key, &Entry),
    revision: Revision,
) -> Response {
    let mut text = String::with_capacity(entry.json.len() + 160);
    node(&mut text, key.kind, &key.id, entry, action == Action::Get);
    if version == AdminApiVersion::Default {
        text = format!(r#"{{"action":"{}","count":1,"node":{text}}}"#, action.name());
    }
    text.push('\n');
    tagged(at(reply::text(status, text), revision), entry.modified)
}

/// A list; `total` counts what was left by the filters, on whichever page. The pieces of its rows come
/// without what goes between them.
pub(crate) fn list(
    version: AdminApiVersion,
    place: &str,
    total: usize,
    pieces: Vec<Bytes>,
    revision: Revision,
) -> Response {
    let opening = match version {
        AdminApiVersion::V3 => format!(r#"{{"total":{total},"list":["#),
        AdminApiVersion::Default => {
            let place = Value::String(format!("/apisix/{place}"));
            format!(r#"{{"action":"get","count":{total},"node":{{"key":{place},"dir":true,"nodes":["#)
        }
    };
    let closing = if version == AdminApiVersion::V3 { "]}\n" } else { "]}}\n" };
    let mut body = vec![Bytes::from(opening)];
    for (i, piece) in pieces.into_iter().enumerate() {
        if i > 0 {
            body.push(Bytes::from_static(b","));
        }
        body.push(piece);
    }
    body.push(Bytes::from_static(closing.as_bytes()));
    at(reply::pieces(StatusCode::OK, body), revision)
}

/// What a client is told that has the newest already, as its tag says.
pub(crate) fn unchanged(revision: Revision) -> Response {
    at(StatusCode::NOT_MODIFIED.into_response(), revision)
}

/// Marks an answer with the revision its content is of.
pub(crate) fn tagged(mut response: Response, of: Revision) -> Response {
    let tag = HeaderValue::from_str(&tag(of)).expect("digits are visible");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// The entity tag of what was changed last at a revision.
pub(crate) fn tag(of: Revision) -> String {
    format!("\"{}\"", of.0)
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
