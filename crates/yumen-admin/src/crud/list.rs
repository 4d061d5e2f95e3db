//! Reads: one object, or a list with filters and pages.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use yumen_config::Kind;
use yumen_store::{Revision, StoreEntry};

use super::answer::{self, LegacyAction};
use super::target::CrudTarget;
use crate::api::AdminState;
use crate::lists::RenderedList;
use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;
use crate::rows::{self, KindView};
use crate::secrets::SecretVisibility;

/// Handles a GET request.
pub(crate) async fn get(
    state: AdminState,
    target: CrudTarget,
    query: QueryArguments,
    is_known: impl Fn(Revision) -> bool + Send + 'static,
    visibility: SecretVisibility,
) -> Result<Response, ApiRefusal> {
    if target.id.is_some() {
        let key = target.key()?;
        let at = state.store.state();
        let entry = at.get(key.kind, &key.id).ok_or_else(ApiRefusal::key_not_found)?;
        // The tag is the revision of the object, not that of the store: other writes do not invalidate it.
        if is_known(entry.modified) {
            return Ok(answer::tagged(answer::unchanged(at.revision), entry.modified));
        }
        return Ok(answer::one(
            state.api_version,
            StatusCode::OK,
            LegacyAction::Get,
            visibility,
            &key,
            entry,
            at.revision,
        ));
    }
    // Filtering and serializing a long list would block the runtime.
    let list = move || list(&state, &target, &query, is_known, visibility);
    let listed = tokio::task::spawn_blocking(list).await;
    listed.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
}

fn list(
    state: &AdminState,
    target: &CrudTarget,
    query: &QueryArguments,
    is_known: impl Fn(Revision) -> bool,
    visibility: SecretVisibility,
) -> Result<Response, ApiRefusal> {
    let page = ListPage::of(query)?;
    let filters = ListFilters::of(target.kind, query)?;
    let at = state.store.state();
    let view = KindView { kind: target.kind, visibility };
    // The whole list is rendered once per revision and shared by all readers.
    if page.is_none() && filters.is_empty() && target.parent.is_none() {
        let RenderedList { total, pieces, as_of } = state.lists.render(&at, view);
        if is_known(as_of) {
            return Ok(answer::tagged(answer::unchanged(at.revision), as_of));
        }
        let name = target.kind.name();
        return Ok(answer::tagged(answer::list(state.api_version, name, total, pieces, at.revision), as_of));
    }
    let prefix = target.parent.as_deref().map(|_| target.stored_id(""));
    let under = at.under(target.kind, prefix.as_deref().unwrap_or_default());
    let mut found: Vec<(&Arc<str>, &StoreEntry)> =
        under.filter(|(_, entry)| filters.admit(&entry.json)).collect();
    let descriptor = target.kind.descriptor();
    // APISIX responds with 404 instead of an empty list of credentials.
    if descriptor.parent.is_some() && found.is_empty() {
        return Err(ApiRefusal::key_not_found());
    }
    let total = found.len();
    if let Some(page) = page {
        // By creation, so that a new object does not shift the pages before it.
        found.sort_by_key(|(id, entry)| (entry.created, *id));
        found = found.into_iter().skip(page.skipped()).take(page.size).collect();
    }
    let key_prefix = match (&target.parent, descriptor.parent) {
        (Some(id), Some(parent)) => format!("{}/{id}/{}", parent.name(), descriptor.names.plural),
        _ => descriptor.names.plural.to_owned(),
    };
    // Allocated once: growing by doubling would copy a long list several times.
    let mut text = String::with_capacity(found.iter().map(|(id, entry)| rows::row_bytes(id, entry)).sum());
    rows::rows(&mut text, view, found.into_iter());
    Ok(answer::list(state.api_version, &key_prefix, total, vec![Bytes::from(text)], at.revision))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListPage {
    number: usize,
    size: usize,
}

impl ListPage {
    /// The requested page; `None`, the whole list, unless both arguments are given.
    fn of(query: &QueryArguments) -> Result<Option<ListPage>, ApiRefusal> {
        // As Lua's `tonumber`, which also accepts `10.0`.
        let number = |name| query.get(name).and_then(|text| text.trim().parse::<f64>().ok());
        let (Some(page), Some(size)) = (number("page"), number("page_size")) else {
            return Ok(None);
        };
        if !(10.0..=500.0).contains(&size) {
            let body = Value::from("page_size must be between 10 and 500");
            return Err(ApiRefusal::of(StatusCode::BAD_REQUEST, body));
        }
        // Page 0 is the first one.
        Ok(Some(ListPage { number: (page as usize).max(1), size: size as usize }))
    }

    fn skipped(self) -> usize {
        (self.number - 1).saturating_mul(self.size)
    }
}

/// Filters of a list.
#[derive(Default)]
struct ListFilters {
    name: Option<Regex>,
    uri: Option<Regex>,
    label: Option<String>,
    fields: Vec<(&'static str, String)>,
}

/// The fields of an object that filters use.
#[derive(Deserialize)]
struct FilterableObject<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    uri: Option<String>,
    uris: Option<Vec<String>>,
    labels: Option<BTreeMap<String, Value>>,
    service_id: Option<Value>,
    upstream_id: Option<Value>,
}

impl ListFilters {
    fn of(kind: Kind, query: &QueryArguments) -> Result<ListFilters, ApiRefusal> {
        let regex = |name: &str| -> Result<Option<Regex>, ApiRefusal> {
            let Some(text) = query.get(name) else { return Ok(None) };
            let refused = |error| ApiRefusal::invalid(format!("invalid argument {name}: {error}"));
            Regex::new(text).map(Some).map_err(refused)
        };
        let mut filters = ListFilters {
            name: regex("name")?,
            uri: regex("uri")?,
            label: query.get("label").map(str::to_owned),
            fields: Vec::new(),
        };
        let pairs = query.get("filter").map(QueryArguments::parse).unwrap_or_default();
        for (field, value) in pairs.iter() {
            match kind.descriptor().admin_api.filter_fields.iter().find(|known| **known == field) {
                Some(field) => filters.fields.push((*field, value.to_owned())),
                None => tracing::warn!(field, kind = kind.name(), "a filter on this field is not supported"),
            }
        }
        Ok(filters)
    }

    fn is_empty(&self) -> bool {
        self.name.is_none() && self.uri.is_none() && self.label.is_none() && self.fields.is_empty()
    }

    fn admit(&self, json: &str) -> bool {
        self.is_empty() || serde_json::from_str(json).is_ok_and(|object| self.admit_object(&object))
    }

    fn admit_object(&self, object: &FilterableObject<'_>) -> bool {
        let FilterableObject { name, uri, uris, labels, .. } = object;
        let is_named = |regex: &Regex| name.as_deref().is_some_and(|name| regex.is_match(name));
        let mut uris = uri.iter().chain(uris.iter().flatten());
        let is_at = |regex: &Regex| uris.any(|uri| regex.is_match(uri));
        let is_labelled = |label: &String| labels.as_ref().is_some_and(|labels| labels.contains_key(label));
        self.name.as_ref().is_none_or(is_named)
            && self.uri.as_ref().is_none_or(is_at)
            && self.label.as_ref().is_none_or(is_labelled)
            && self.fields.iter().all(|(field, expected)| object.has(field, expected))
    }
}

impl FilterableObject<'_> {
    fn has(&self, field: &str, expected: &str) -> bool {
        let found = if field == "service_id" { &self.service_id } else { &self.upstream_id };
        match found {
            Some(Value::String(id)) => id == expected,
            // An id may be a number in an object, but is text in a query.
            Some(Value::Number(id)) => id.to_string() == expected,
            _ => false,
        }
    }
}
