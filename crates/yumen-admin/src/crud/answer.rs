//! Responses: the envelopes of objects and lists.

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use yumen_config::node::AdminApiVersion;
use yumen_store::{ResourceKey, Revision, StoreEntry};

use crate::reply;
use crate::revision::set_revision;
use crate::rows::{self, KindView};
use crate::secrets::SecretVisibility;

/// The action in the older format of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegacyAction {
    Get,
    Set,
    Create,
    Patch,
}

impl LegacyAction {
    fn name(self) -> &'static str {
        match self {
            LegacyAction::Get => "get",
            LegacyAction::Set => "set",
            LegacyAction::Create => "create",
            LegacyAction::Patch => "compareAndSwap",
        }
    }
}

/// The response with one object.
pub(crate) fn one(
    version: AdminApiVersion,
    status: StatusCode,
    action: LegacyAction,
    visibility: SecretVisibility,
    key: &ResourceKey,
    entry: &StoreEntry,
    revision: Revision,
) -> Response {
    // The object with room for the members around it, so that the text is allocated once.
    let mut text = String::with_capacity(entry.json.len() + 160);
    rows::object(
        &mut text,
        KindView { kind: key.kind, visibility },
        &key.id,
        entry,
        action == LegacyAction::Get,
    );
    // The format of Admin API version 2, which wraps objects as etcd's first API did.
    if version == AdminApiVersion::Default {
        text = format!(r#"{{"action":"{}","count":1,"node":{text}}}"#, action.name());
    }
    text.push('\n');
    tagged(at(reply::text(status, text), revision), entry.modified)
}

/// The response with a list. `total` counts the filtered objects of all pages. `pieces` contains the rows, without the
/// commas between pieces.
pub(crate) fn list(
    version: AdminApiVersion,
    key: &str,
    total: usize,
    pieces: Vec<Bytes>,
    revision: Revision,
) -> Response {
    let opening = match version {
        AdminApiVersion::V3 => format!(r#"{{"total":{total},"list":["#),
        AdminApiVersion::Default => {
            let key = Value::String(format!("/apisix/{key}"));
            format!(r#"{{"action":"get","count":{total},"node":{{"key":{key},"dir":true,"nodes":["#)
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

/// The response 304 (Not Modified).
pub(crate) fn unchanged(revision: Revision) -> Response {
    at(StatusCode::NOT_MODIFIED.into_response(), revision)
}

/// Sets the entity tag to the revision of the content.
pub(crate) fn tagged(mut response: Response, of: Revision) -> Response {
    let tag = HeaderValue::from_str(&tag(of)).expect("digits are visible");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// The entity tag of an object or list that changed last at a revision.
pub(crate) fn tag(of: Revision) -> String {
    format!("\"{}\"", of.0)
}

/// The response to a deletion.
pub(crate) fn deleted(version: AdminApiVersion, key: &ResourceKey, revision: Revision) -> Response {
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
    set_revision(&mut response, revision);
    response
}
