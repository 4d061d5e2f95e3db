//! Writes of several objects in one transaction, export, and import.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_base::{Problem, ProblemLevel, utc_text};
use yumen_config::node::AdminRole;
use yumen_config::resource::IdRule;
use yumen_config::{Kind, Resource, document, duplicate_keys};
use yumen_store::{Authorship, Draft, ResourceKey, StoreEntry, StoreState, commit};

use super::arguments::{ArgumentNames, StrictQuery, StrictWriteQuery};
use super::{V1State, plan};
use crate::crud::{object, references};
use crate::keys::KeyHolder;
use crate::refusal::ApiRefusal;
use crate::revision::{WrittenObjects, set_revision};
use crate::validate::ObjectRefusal;
use crate::whole_body::WholeBody;
use crate::{reply, validate};

/// The times that the store writes into objects; they are no difference.
pub(super) const TIMES: [&str; 2] = ["create_time", "update_time"];

/// The body of `POST /yumen/v1/apply`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyRequest {
    /// Objects to create or replace, in lists by kind as in a standalone document.
    #[serde(default)]
    put: Map<String, Value>,
    /// Objects to delete, such as `routes/1`.
    #[serde(default)]
    delete: Vec<String>,
    /// The revision that the store must have.
    expected_revision: Option<u64>,
}

/// Whether a large change is confirmed.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ConfirmQuery {
    #[serde(default)]
    pub(super) confirm: bool,
}

impl ArgumentNames for ConfirmQuery {
    const NAMES: &'static [&'static str] = &["confirm"];
}

/// `POST /yumen/v1/apply`: writes everything as one revision, or nothing.
pub(super) async fn apply(
    State(state): State<V1State>,
    StrictWriteQuery(confirmation): StrictWriteQuery<ConfirmQuery>,
    by: Option<Extension<Authorship>>,
    WholeBody(body): WholeBody,
) -> Result<Response, ApiRefusal> {
    let transaction = read_transaction(&body)?;
    let puts = read_document(&Value::Object(transaction.put).to_string())?;
    let mut deletes = Vec::new();
    for name in &transaction.delete {
        deletes.push(key_of("delete", name)?);
    }
    let work = TransactionPlan {
        puts,
        deletes: DeleteSet::Listed(deletes),
        ends: ExpiryRule::Cleared,
        expected_revision: transaction.expected_revision,
        confirmed: confirmation.confirm,
    };
    work.write(state, by).await
}

/// Parses a body. Most clients send JSON, and often; parsing it as YAML takes many times as long. A body that
/// starts like JSON and is neither gets the JSON error.
fn read_transaction(body: &[u8]) -> Result<ApplyRequest, ApiRefusal> {
    // Editors on Windows write a byte order mark; RFC 8259 §8.1 lets parsers ignore it.
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let refuse = |why: String| ApiRefusal::invalid(format!("invalid request body: {why}"));
    let (read, is_yaml) = match duplicate_keys::from_json(body) {
        Ok(read) => (read, false),
        Err(json) => match duplicate_keys::from_yaml(body) {
            Ok(read) => (read, true),
            Err(_) if body.trim_ascii_start().starts_with(b"{") => return Err(refuse(json.to_string())),
            Err(yaml) => return Err(refuse(yaml.to_string())),
        },
    };
    // With duplicate keys, one of two lists of a kind would be lost.
    let mut document = read.into_distinct().map_err(refuse)?;
    if is_yaml {
        // YAML's merge keys (`<<`) have no counterpart in JSON.
        document::merge_keys(&mut document);
    }
    serde_json::from_value(document).map_err(|error| refuse(error.to_string()))
}

/// The parameters of an import.
#[derive(Debug, Deserialize)]
pub(super) struct ImportQuery {
    /// `merge` keeps other objects; `replace` deletes them.
    #[serde(default)]
    mode: ImportMode,
    #[serde(default)]
    confirm: bool,
}

impl ArgumentNames for ImportQuery {
    const NAMES: &'static [&'static str] = &["mode", "confirm"];
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ImportMode {
    #[default]
    Merge,
    Replace,
}

/// `POST /yumen/v1/import?mode=merge|replace`: a standalone document, YAML or JSON.
pub(super) async fn import(
    State(state): State<V1State>,
    StrictWriteQuery(import): StrictWriteQuery<ImportQuery>,
    by: Option<Extension<Authorship>>,
    WholeBody(body): WholeBody,
) -> Result<Response, ApiRefusal> {
    let text =
        std::str::from_utf8(&body).map_err(|error| ApiRefusal::invalid(format!("no text: {error}")))?;
    let deletes = match import.mode {
        ImportMode::Merge => DeleteSet::Listed(Vec::new()),
        ImportMode::Replace => DeleteSet::AllOthers,
    };
    let puts = read_document(text)?;
    let work = TransactionPlan {
        puts,
        deletes,
        ends: ExpiryRule::Preserved,
        expected_revision: None,
        confirmed: import.confirm,
    };
    work.write(state, by).await
}

/// The format of an export.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExportFormat {
    #[default]
    Yaml,
    Json,
}

/// The parameters of an export.
#[derive(Debug, Deserialize)]
pub(super) struct ExportQuery {
    #[serde(default)]
    format: ExportFormat,
}

impl ArgumentNames for ExportQuery {
    const NAMES: &'static [&'static str] = &["format"];
}

/// `GET /yumen/v1/export[?format=json]`: everything as a standalone document. It contains private keys, so it
/// requires the role `admin`.
pub(super) async fn export(
    State(state): State<V1State>,
    StrictQuery(export): StrictQuery<ExportQuery>,
    holder: Option<Extension<KeyHolder>>,
) -> Result<Response, ApiRefusal> {
    if holder.is_some_and(|Extension(holder)| holder.role == AdminRole::Viewer) {
        return Err(ApiRefusal::new(
            StatusCode::FORBIDDEN,
            "an export contains private keys: the role admin is required",
        ));
    }
    let now = state.admin.store.state();
    let unreadable = |problem: Problem| {
        let message = format!("nothing is exported: {}: {}", problem.object, problem.message);
        ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    };
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    // An expired object that could not be deleted yet would become permanent on import.
    let resources = now.resources_at(now_ms);
    let (text, media_type) = match export.format {
        ExportFormat::Yaml => {
            (document::to_yaml(&resources).map(|text| ends(&now, now_ms) + &text), "application/yaml")
        }
        ExportFormat::Json => (document::to_json(&resources), "application/json"),
    };
    let text = text.map_err(unreadable)?;
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    set_revision(&mut response, now.revision);
    Ok(response)
}

/// Comments with the objects that expire, for which a document has no field.
fn ends(now: &StoreState, now_ms: u64) -> String {
    let end = |(key, entry): (&ResourceKey, &StoreEntry)| {
        let at_ms = entry.expires_ms.filter(|at_ms| *at_ms > now_ms)?;
        let at = utc_text(at_ms / 1000);
        Some(format!("# {key} expires {at}; an import elsewhere makes it permanent\n"))
    };
    now.entries().filter_map(end).collect()
}

/// Parses the resources of a document; refuses a document with errors and lists all of them.
///
/// Variables stay literal, so that an export comes back unchanged. An ignored section is an error here: the
/// client can correct the document, and with `replace` the section's objects would be deleted.
pub(super) fn read_document(text: &str) -> Result<Vec<Resource>, ApiRefusal> {
    let (resources, problems) = document::parse_literally(text);
    let ignored: Vec<String> =
        problems.iter().filter(|problem| problem.level == ProblemLevel::Warning).map(not_ignored).collect();
    if !ignored.is_empty() {
        return Err(ApiRefusal::invalid(format!("nothing was written: {}", ignored.join("; "))));
    }
    let errors: Vec<Value> = problems
        .iter()
        .filter(|problem| problem.level == ProblemLevel::Error)
        .map(|problem| json!({ "object": problem.object, "error": problem.message }))
        .collect();
    match errors.is_empty() {
        true => Ok(resources),
        false => Err(refused(errors)),
    }
}

fn not_ignored(problem: &Problem) -> String {
    let message = problem.message.trim_end_matches(" is ignored");
    let hint = problem.hint.iter().map(|hint| format!(", {hint}"));
    hint.fold(message.to_owned(), |message, hint| message + &hint)
}

fn refused(errors: Vec<Value>) -> ApiRefusal {
    let body = json!({ "error_msg": "nothing was written: these objects are invalid", "errors": errors });
    ApiRefusal::of(StatusCode::BAD_REQUEST, body)
}

/// Parses an object name such as `routes/1`; an error names the argument. Credentials may also be named by
/// the list of their consumers, as in problems.
pub(super) fn key_of(what: &str, name: &str) -> Result<ResourceKey, ApiRefusal> {
    let key = name.split_once('/').filter(|(_, id)| !id.is_empty()).and_then(|(kind, id)| match kind {
        "consumers" if id.contains("/credentials/") => Some(ResourceKey::new(Kind::Credentials, id)),
        _ => Some(ResourceKey::new(Kind::from_name(kind)?, id)),
    });
    key.ok_or_else(|| {
        ApiRefusal::invalid(format!("{what}: \"{name}\" is not an object name such as routes/1"))
    })
}

enum DeleteSet {
    Listed(Vec<ResourceKey>),
    AllOthers,
}

/// The rule for the expiry of an object that is otherwise unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpiryRule {
    /// An object that is declared stays for good.
    Cleared,
    /// A document may be an export, which must not make temporary objects permanent.
    Preserved,
}

struct TransactionPlan {
    puts: Vec<Resource>,
    deletes: DeleteSet,
    ends: ExpiryRule,
    expected_revision: Option<u64>,
    confirmed: bool,
}

/// An object that was validated by itself.
struct ValidatedPut {
    key: ResourceKey,
    object: Map<String, Value>,
}

impl TransactionPlan {
    async fn write(self, state: V1State, by: Option<Extension<Authorship>>) -> Result<Response, ApiRefusal> {
        let validation_state = state.clone();
        // Validation and plan of a large document must not run in the store's writer.
        let validate = move || {
            let (work, puts) = self.validate(&validation_state)?;
            work.guard(&validation_state, &puts)?;
            Ok((work, puts))
        };
        let work: Result<Result<(TransactionPlan, Vec<ValidatedPut>), ApiRefusal>, _> =
            tokio::task::spawn_blocking(validate).await;
        let (work, puts) =
            work.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
        // Without authentication there is no holder to name.
        let by = by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by);
        let (store, deciding) = (state.admin.store.clone(), state.clone());
        let puts = Arc::new(puts);
        let decide = move |draft: &mut Draft| work.decide(&deciding, &puts, draft);
        let (counts, committed) = commit(&*store, by, decide).await??;
        let revision =
            // Nothing was written: the newest revision is the one that the objects have.
            committed.as_ref().map_or_else(|| store.state().revision, |committed| committed.revision);
        let mut body = json!({ "revision": revision.0, "put": counts.put, "deleted": counts.deleted, "unchanged": counts.unchanged });
        if !counts.ends.is_empty() {
            body["ends"] = counts.ends.into();
        }
        let mut response = reply::json(StatusCode::OK, &body);
        set_revision(&mut response, revision);
        if let Some(committed) = committed {
            // For `?wait=applied`, which looks for the problems of the written objects.
            response.extensions_mut().insert(WrittenObjects::Commit(committed));
        }
        Ok(response)
    }

    fn validate(self, state: &V1State) -> Result<(TransactionPlan, Vec<ValidatedPut>), ApiRefusal> {
        let (mut puts, mut errors) = (Vec::new(), Vec::new());
        for resource in &self.puts {
            let mut object: Map<String, Value> = serde_json::from_str(&resource.json).unwrap_or_default();
            for time in TIMES {
                // The times of a document are those of its origin; this store sets its own.
                object.shift_remove(time);
            }
            let rule = resource.kind.descriptor().id;
            let id = match rule {
                IdRule::Username => None,
                // In its text a credential has its own id only; the key has the consumer as well.
                IdRule::WithinParent => resource.id.rsplit('/').next(),
                IdRule::Name | IdRule::PluginName | IdRule::WithinManager => Some(&*resource.id),
            };
            match id {
                Some(id) => drop(object.insert("id".into(), id.into())),
                None => drop(object.shift_remove("id")),
            }
            let key = ResourceKey::new(resource.kind, resource.id.clone());
            let named = match rule {
                IdRule::PluginName => validate::plugin_name(&state.admin, &resource.id),
                IdRule::Name | IdRule::Username | IdRule::WithinParent | IdRule::WithinManager => Ok(()),
            };
            let value = Value::Object(object.clone());
            let named = named.map_err(ObjectRefusal::from);
            match named.and_then(|()| validate::restorable_object(&state.admin, resource.kind, &value)) {
                Ok(()) => puts.push(ValidatedPut { key, object }),
                Err(ObjectRefusal { message, path, hint }) => {
                    let mut refused = json!({ "object": key.to_string(), "error": message });
                    if !path.is_empty() {
                        refused["path"] = path.into();
                    }
                    if let Some(hint) = hint {
                        refused["hint"] = hint.into();
                    }
                    errors.push(refused);
                }
            }
        }
        // Consumers come before their credentials: creating a consumer deletes all credentials of its name.
        puts.sort_by_key(|put| put.key.kind == Kind::Credentials);
        if errors.is_empty() { Ok((self, puts)) } else { Err(refused(errors)) }
    }

    fn decide(
        &self,
        state: &V1State,
        puts: &[ValidatedPut],
        draft: &mut Draft,
    ) -> Result<ApplyCounts, ApiRefusal> {
        let stands = draft.state().revision.0;
        // Compared within the writer, so no other write intervenes.
        if let Some(expected) = self.expected_revision.filter(|expected| *expected != stands) {
            let message =
                format!("the store is at revision {stands}, not {expected}: read the objects again");
            return Err(ApiRefusal::new(StatusCode::PRECONDITION_FAILED, message));
        }
        let before = draft.state().clone();
        // A change that exceeds one transaction is decided again for each part.
        let earlier = draft.written_before().clone();
        let doomed = self.doomed(&before, puts, &earlier)?;
        let put: BTreeSet<&ResourceKey> = puts.iter().map(|put| &put.key).collect();
        let is_deleted = |key: &&ResourceKey| !put.contains(key) && before.get(key.kind, &key.id).is_none();
        let deleted = doomed.len() + earlier.iter().filter(is_deleted).count();
        // Deletions first, since a consumer that is deleted takes its credentials along.
        for key in &doomed {
            draft.delete(key.kind, &key.id);
        }
        let (written, unchanged): (Vec<&ValidatedPut>, Vec<&ValidatedPut>) =
            puts.iter().partition(|put| put.write(draft, self.ends));
        let put = written.len() + unchanged.iter().filter(|put| earlier.contains(&put.key)).count();
        let ends = |put: &&&ValidatedPut| {
            let entry = draft.state().get(put.key.kind, &put.key.id);
            entry.is_some_and(|entry| entry.expires_ms.is_some())
        };
        let ends = unchanged.iter().filter(ends).map(|put| put.key.to_string()).collect();
        let counts = ApplyCounts { put, deleted, unchanged: puts.len() - put, ends };
        let mut errors = Vec::new();
        let (registry, variables) = (&state.admin.registry, &state.admin.variables);
        // The index follows the draft, so references among the written objects are seen.
        let known = state.admin.index.catch_up(registry, draft.state());
        let mut note = |key: &ResourceKey, checked: Result<(), ApiRefusal>| {
            errors.extend(
                checked
                    .err()
                    .map(|refusal| json!({ "object": key.to_string(), "error": refusal.body["error_msg"] })),
            );
        };
        for put in written {
            note(&put.key, references::check(draft.state(), &put.key, &put.object));
            note(&put.key, references::check_unique(registry, variables, &known, &put.key, &put.object));
            note(&put.key, references::check_usable(&known, &put.key, &put.object));
        }
        // An unchanged object may have lacked its reference before.
        let is_satisfied = |put: &&ValidatedPut| references::check(&before, &put.key, &put.object).is_ok();
        for put in unchanged.into_iter().filter(is_satisfied) {
            note(&put.key, references::check(draft.state(), &put.key, &put.object));
        }
        // After the writes: an object of the same request may have been the last user.
        for key in &doomed {
            note(key, references::check_unused(&known, key));
        }
        if errors.is_empty() { Ok(counts) } else { Err(refused(errors)) }
    }

    /// Requires a confirmation for a large change.
    fn guard(&self, state: &V1State, puts: &[ValidatedPut]) -> Result<(), ApiRefusal> {
        if self.confirmed {
            return Ok(());
        }
        let now = state.admin.store.state();
        plan::guard(state, &now, &self.puts, &self.doomed(&now, puts, &BTreeSet::new())?)
    }

    /// The objects to delete, except those that the same request already deleted `earlier`.
    fn doomed(
        &self,
        state: &StoreState,
        puts: &[ValidatedPut],
        earlier: &BTreeSet<ResourceKey>,
    ) -> Result<Vec<ResourceKey>, ApiRefusal> {
        match &self.deletes {
            DeleteSet::AllOthers => {
                let put_keys: BTreeSet<&ResourceKey> = puts.iter().map(|put| &put.key).collect();
                Ok(state
                    .entries()
                    .map(|(key, _)| key)
                    .filter(|key| !put_keys.contains(key))
                    .cloned()
                    .collect())
            }
            DeleteSet::Listed(keys) => {
                let (present, absent): (Vec<&ResourceKey>, Vec<&ResourceKey>) =
                    keys.iter().partition(|key| state.get(key.kind, &key.id).is_some());
                // A second part of the same request finds its deletions done.
                match absent.into_iter().find(|key| !earlier.contains(key)) {
                    Some(key) => {
                        Err(ApiRefusal::new(StatusCode::NOT_FOUND, format!("delete: {key} does not exist")))
                    }
                    None => Ok(with_credentials(state, &present)),
                }
            }
        }
    }
}

/// The keys without duplicates, with the credentials of their consumers, which are deleted too.
fn with_credentials(state: &StoreState, keys: &[&ResourceKey]) -> Vec<ResourceKey> {
    let mut all: BTreeSet<ResourceKey> = keys.iter().map(|key| (*key).clone()).collect();
    for consumer in keys.iter().filter(|key| key.kind == Kind::Consumers) {
        let prefix = format!("{}/credentials/", consumer.id);
        let credentials = state.under(Kind::Credentials, &prefix);
        all.extend(credentials.map(|(id, _)| ResourceKey::new(Kind::Credentials, id.clone())));
    }
    all.into_iter().collect()
}

struct ApplyCounts {
    put: usize,
    deleted: usize,
    unchanged: usize,
    /// Unchanged objects with an expiry.
    ends: Vec<String>,
}

impl ValidatedPut {
    /// Writes the object if it differs from the stored one, and returns whether it did.
    fn write(&self, draft: &mut Draft, ends: ExpiryRule) -> bool {
        let before = draft.state().get(self.key.kind, &self.key.id);
        let is_new = before.is_none();
        let is_to_stay =
            ends == ExpiryRule::Cleared && before.is_some_and(|entry| entry.expires_ms.is_some());
        let before: Map<String, Value> =
            before.and_then(|entry| serde_json::from_str(&entry.json).ok()).unwrap_or_default();
        let mut bare = before.clone();
        for time in TIMES {
            bare.shift_remove(time);
        }
        // The username identifies a consumer, whatever its `id` is.
        if self.key.kind == Kind::Consumers {
            bare.shift_remove("id");
        }
        // A number is the same id as its text.
        if let Some(id) = bare.get_mut("id").filter(|id| id.is_number()) {
            *id = id.to_string().into();
        }
        // A held object is deleted in the store although it is still served, so it is written again.
        if bare == self.object && !is_to_stay && !draft.is_held(&self.key) {
            return false;
        }
        if is_new && self.key.kind == Kind::Consumers {
            // Credentials that an earlier consumer of this name left behind must not become the new one's.
            draft.delete(self.key.kind, &self.key.id);
        }
        let mut object = self.object.clone();
        // As in APISIX, metadata has no times.
        if self.key.kind != Kind::PluginMetadata {
            object::set_times(&mut object, before.get("create_time").cloned(), draft.now_ms() / 1000);
        }
        draft.put(self.key.clone(), Value::Object(object).to_string().into(), None);
        true
    }
}
