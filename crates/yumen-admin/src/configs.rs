//! The whole configuration in one document: validated, replaced in one transaction, read back.
//!
//! The interface of API-driven standalone tools. Uses the store only through its state and drafts.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;
use tracing::warn;
use yumen_config::duplicate_keys::{self, DuplicateCheckedValue};
use yumen_store::{Authorship, Draft, ResourceKey, Revision, commit};

use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::revision::{WrittenObjects, set_revision};
use crate::secrets::SecretVisibility;
use crate::v1::{NoArguments, StrictWriteQuery};
use crate::whole_body::WholeBody;

mod indexes;
mod items;
mod ledger;

use indexes::ItemIndexes;
use items::{DocumentItem, DocumentSection};
use ledger::{ConfVersion, VersionLedger};

/// Enough for several hundred thousand objects.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

const DIGEST: HeaderName = HeaderName::from_static("x-digest");
/// Members of a document that are neither a section nor a version, and have no effect.
const IGNORED: HeaderName = HeaderName::from_static("x-yumen-ignored");
const IGNORED_MAX: usize = 16;
/// Not `Last-Modified`, which clients would use for caching.
const LAST_MODIFIED: HeaderName = HeaderName::from_static("x-last-modified");

pub(crate) fn router() -> Router<AdminState> {
    Router::new()
        .route("/apisix/admin/configs", get(read).head(head).put(replace))
        .route("/apisix/admin/configs/validate", post(validate_document))
        .layer(DefaultBodyLimit::max(DOCUMENT_BYTES_MAX))
}

async fn head(State(state): State<AdminState>) -> Response {
    let ledger = VersionLedger::of(&state.store.state());
    (StatusCode::OK, marks(&ledger), "").into_response()
}

async fn read(State(state): State<AdminState>, visibility: SecretVisibility, headers: HeaderMap) -> Response {
    let now = state.store.state();
    let (ledger, indexes) = (VersionLedger::of(&now), ItemIndexes::of(&now));
    let mut document = Map::new();
    for section in DocumentSection::ALL {
        let items = match section.read(&now, &indexes, visibility) {
            Ok(items) => items,
            Err(message) => {
                return ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        };
        if !items.is_empty() {
            document.insert(section.name().into(), Value::Array(items));
        }
        document.insert(section.version_key(), ledger.version(section).shown());
    }
    let accepts_yaml =
        headers.get(ACCEPT).is_some_and(|accepted| accepted.as_bytes().starts_with(b"application/yaml"));
    let document = Value::Object(document);
    let mut response = match accepts_yaml {
        false => reply::json(StatusCode::OK, &document),
        true => match yumen_config::yaml::write(document) {
            Ok(text) => {
                ([(CONTENT_TYPE, HeaderValue::from_static("application/yaml"))], text).into_response()
            }
            Err(error) => {
                let message = format!("failed to encode yaml: {error}");
                return ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        },
    };
    response.headers_mut().extend(marks(&ledger));
    response
}

/// Digest and time of the active document; empty before the first one.
fn marks(ledger: &VersionLedger) -> HeaderMap {
    let mut marks = HeaderMap::new();
    if let Ok(digest) = HeaderValue::from_str(&ledger.digest)
        && !ledger.digest.is_empty()
    {
        marks.insert(DIGEST, digest);
        marks.insert(LAST_MODIFIED, HeaderValue::from(ledger.modified_s));
    }
    marks
}

/// Replaces everything. Unknown arguments and conditions such as `If-Match` are refused rather than ignored.
async fn replace(
    State(state): State<AdminState>,
    _: StrictWriteQuery<NoArguments>,
    by: Option<Extension<Authorship>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    let by = by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by);
    let store = state.store.clone();
    let mut response = match try_replace(state, by, headers, body).await {
        Ok(None) => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            set_revision(&mut response, store.state().revision);
            response
        }
        Ok(Some(replaced)) => {
            let ReplacedDocument { ledger, ignored, revision } = replaced;
            let mut response = (StatusCode::ACCEPTED, marks(&ledger), ignored, "").into_response();
            // Nothing was written: the newest revision is the one that the objects have.
            set_revision(&mut response, revision.unwrap_or_else(|| store.state().revision));
            response
        }
        Err(refusal) => return refusal.into_response(),
    };
    // For `wait`, which looks for the problems of the objects.
    response.extensions_mut().insert(WrittenObjects::Document(store.state()));
    response
}

/// The outcome of a document that was not active before.
struct ReplacedDocument {
    ledger: VersionLedger,
    /// Names the ignored members.
    ignored: HeaderMap,
    /// The revision with the objects; `None` if no object changed.
    revision: Option<Revision>,
}

/// `None` if the document with this digest is already active.
async fn try_replace(
    state: AdminState,
    by: Authorship,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Option<ReplacedDocument>, ApiRefusal> {
    let digest = headers.get(DIGEST).and_then(|digest| digest.to_str().ok()).unwrap_or("").to_owned();
    // The digest identifies the document for the client, so APISIX requires it.
    if digest.is_empty() {
        return Err(ApiRefusal::invalid("missing digest header"));
    }
    let now = state.store.state();
    let ledger = VersionLedger::of(&now);
    let document = read_body(&headers, &body)?;
    // After the body was read: a malformed body is refused even with a known digest.
    // Clients repeat documents periodically; an equal one costs no validation and makes no revision.
    if ledger.is_in_force(&digest, now.revision) {
        return Ok(None);
    }
    let ignored = ignored_members(&document);
    // Refuses a version that is lower than the one in force, as APISIX does.
    let versions = ledger.next_versions(&document)?;
    let validation_state = state.clone();
    // Validation of a large document takes time and must not block other requests.
    let parts = spawn_blocking(move || {
        let changed = DocumentSection::ALL
            .into_iter()
            // Sections with an unchanged version are skipped: the version vouches for their content.
            .filter(|section| ledger.version(*section) != versions[section.at()]);
        changed
            .map(|section| {
                Ok((section, items::read(&validation_state, section, &document)?, versions[section.at()]))
            })
            .collect()
    });
    let parts: Result<Vec<Part>, ApiRefusal> =
        parts.await.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let parts = Arc::new(parts?);
    let decided = commit(&*state.store, by, move |draft| write(draft, &parts, &digest)).await?;
    let (ledger, committed) = decided.map_err(ApiRefusal::invalid)?;
    let revision = committed.map(|committed| committed.revision);
    Ok(Some(ReplacedDocument { ledger, ignored, revision }))
}

/// Names the members without effect, such as a misspelt section: APISIX ignores them silently, and the section is then
/// empty.
fn ignored_members(document: &Map<String, Value>) -> HeaderMap {
    let is_known =
        |name: &str| DocumentSection::ALL.iter().any(|one| one.name() == name || one.version_key() == name);
    let ignored: Vec<String> = document
        .keys()
        .filter(|name| !is_known(name))
        .take(IGNORED_MAX)
        .map(|name| name.chars().take(64).filter(char::is_ascii_graphic).collect())
        .collect();
    let mut fields = HeaderMap::new();
    if let Ok(names) = HeaderValue::from_str(&ignored.join(", "))
        && !ignored.is_empty()
    {
        warn!(members = ?ignored, "members of a whole configuration ignored: no section has these names");
        fields.insert(IGNORED, names);
    }
    fields
}

/// A section that changes, its new items, and its new version.
type Part = (DocumentSection, Vec<DocumentItem>, ConfVersion);

/// Replaces the objects of these sections. Unchanged objects keep their revision.
fn write(draft: &mut Draft, parts: &[Part], digest: &str) -> Result<VersionLedger, String> {
    let mut ledger = VersionLedger::of(draft.state());
    let mut indexes = ItemIndexes::of(draft.state());
    let before = draft.revision();
    let mut is_changed = false;
    for (section, items, version) in parts {
        // Another client may have written since the document was validated.
        ledger.raise(*section, *version)?;
        for kind in section.kinds() {
            let declared: BTreeSet<&str> =
                items.iter().filter(|item| item.kind == kind).map(|item| &*item.id).collect();
            let stored_ids: Vec<Arc<str>> = draft.state().of_kind(kind).map(|(id, _)| id.clone()).collect();
            for id in stored_ids.iter().filter(|id| !declared.contains(&***id)) {
                is_changed |= draft.delete(kind, id);
            }
        }
        is_changed |= write_items(draft, *section, items, &mut indexes);
    }
    indexes.keep(draft);
    ledger.digest = digest.to_owned();
    ledger.modified_s = draft.now_ms() / 1000;
    // A change of settings alone makes no revision.
    ledger.revision = if is_changed { before.0 } else { before.0.saturating_sub(1) };
    ledger.keep(draft);
    Ok(ledger)
}

/// Writes the items of a section that differ, and records their indexes. Returns whether an object changed.
fn write_items(
    draft: &mut Draft,
    section: DocumentSection,
    items: &[DocumentItem],
    indexes: &mut ItemIndexes,
) -> bool {
    let (known, mut is_changed) = (indexes.clone(), false);
    indexes.clear(section);
    for item in items {
        let stored = draft.state().get(item.kind, &item.id);
        let recorded = stored.and_then(|entry| known.get(item.kind, &item.id, entry));
        // An object without an index is read with the revision of its last write in place of one. A tool that
        // writes the document back has set no index of its own, so the next document is compared by content.
        let is_revision = |index: i64| {
            let is_past = u64::try_from(index).is_ok_and(|index| index <= draft.revision().0);
            recorded.is_none() && stored.is_some() && is_past
        };
        let index = item.index.filter(|index| !is_revision(*index));
        // As in APISIX, an item with the index of the last document is the same item.
        let is_same = item.index.is_some() && item.index == recorded;
        let text: Arc<str> = match item.differing(stored).filter(|_| !is_same) {
            Some(json) => {
                let json: Arc<str> = json.into();
                draft.put(ResourceKey::new(item.kind, item.id.clone()), json.clone(), None);
                is_changed = true;
                json
            }
            None => stored.map(|entry| entry.json.clone()).unwrap_or_default(),
        };
        if let Some(index) = index {
            indexes.record(item, index, &text);
        }
    }
    is_changed
}

/// The type of a value in the words of APISIX's messages, which are those of Lua.
fn lua_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "userdata",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "table",
    }
}

async fn validate_document(
    State(state): State<AdminState>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    let document = match read_body(&headers, &body) {
        Ok(document) => document,
        Err(refusal) => return refusal.into_response(),
    };
    let ignored = ignored_members(&document);
    let errors = spawn_blocking(move || {
        let found = |section| items::errors(&state, section, &document);
        DocumentSection::ALL.into_iter().flat_map(found).collect::<Vec<Value>>()
    });
    match errors.await {
        Ok(errors) if errors.is_empty() => (ignored, reply::json(StatusCode::OK, &json!({}))).into_response(),
        Ok(errors) => {
            let body = json!({ "error_msg": "Configuration validation failed", "errors": errors });
            ApiRefusal::of(StatusCode::BAD_REQUEST, body).into_response()
        }
        Err(error) => ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn read_body(headers: &HeaderMap, body: &[u8]) -> Result<Map<String, Value>, ApiRefusal> {
    let refuse = |what: String| ApiRefusal::invalid(format!("invalid request body: {what}"));
    if body.is_empty() {
        return Err(refuse("empty request body".into()));
    }
    let is_yaml =
        // Parameters of the media type do not matter.
        headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/yaml"));
    let read = match is_yaml {
        true => duplicate_keys::from_yaml(body).map_err(|error| error.to_string()),
        false => duplicate_keys::from_json(body).map_err(|error| error.to_string()),
    };
    // With duplicate keys, one of two lists of a kind would be lost.
    match read.and_then(DuplicateCheckedValue::into_distinct).map_err(refuse)? {
        Value::Object(document) => Ok(document),
        _ => Err(refuse("expected an object of resource lists".into())),
    }
}

#[cfg(test)]
mod tests;
