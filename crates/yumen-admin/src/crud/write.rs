//! Writes, decided on the newest state inside the store's writer: no other write intervenes.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::resource::IdRule;
use yumen_store::{Draft, ResourceKey, Revision, StoreCommit, StoreEntry, commit};

use super::answer::{self, LegacyAction};
use super::condition::WritePrecondition;
use super::object::{self, ValidatedObject};
use super::target::CrudTarget;
use super::{CrudContext, merge, references};
use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::revision::WrittenObjects;
use crate::secrets::SecretVisibility;

/// Upper bound of a lifetime, about 32 years.
const TTL_SECONDS_MAX: f64 = 1e9;

/// Creates or replaces an object.
pub(crate) async fn put(
    state: AdminState,
    target: CrudTarget,
    body: Option<Value>,
    context: CrudContext,
) -> Result<Response, ApiRefusal> {
    let ttl_ms = ttl_ms(&context)?;
    let written = object::put(&state, &target, body)?;
    store(state, target, written, context, ttl_ms).await
}

/// Creates an object with an id from the store.
pub(crate) async fn post(
    state: AdminState,
    target: CrudTarget,
    body: Option<Value>,
    context: CrudContext,
) -> Result<Response, ApiRefusal> {
    let ttl_ms = ttl_ms(&context)?;
    let written = object::post(&state, &target, body)?;
    store(state, target, written, context, ttl_ms).await
}

async fn store(
    state: AdminState,
    target: CrudTarget,
    written: ValidatedObject,
    context: CrudContext,
    ttl_ms: Option<u64>,
) -> Result<Response, ApiRefusal> {
    let (registry, index) = (state.registry.clone(), state.index.clone());
    let variables = state.variables.clone();
    let action = if written.key.is_some() { LegacyAction::Set } else { LegacyAction::Create };
    let condition = context.condition;
    let decide = move |draft: &mut Draft| -> Result<(ResourceKey, StatusCode), ApiRefusal> {
        // A clone, because a store decides again after a conflict with another writer.
        let mut object = written.object.clone();
        let key = written.key.clone().unwrap_or_else(|| named(draft, &target, &mut object));
        let before = draft.state().get(key.kind, &key.id);
        // The precondition first: a client with an outdated tag must not get the errors of a newer object.
        condition.check(&key, before)?;
        references::check(draft.state(), &key, &object)?;
        let known = index.catch_up(&registry, draft.state());
        references::check_unique(&registry, &variables, &known, &key, &object)?;
        references::check_group(&registry, &known, &key, &object)?;
        references::check_usable(&known, &key, &object)?;
        // The index is locked while it is borrowed; the write below does not need it.
        drop(known);
        let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
        if key.kind != Kind::PluginMetadata {
            object::set_times(&mut object, before.and_then(create_time), draft.now_ms() / 1000);
        }
        if status == StatusCode::CREATED && key.kind == Kind::Consumers {
            // Credentials of an earlier consumer of that name must not belong to the new one.
            draft.delete(key.kind, &key.id);
        }
        let expires_ms = ttl_ms.map(|ttl_ms| draft.now_ms() + ttl_ms);
        draft.put(key.clone(), Value::Object(object).to_string().into(), expires_ms);
        Ok((key, status))
    };
    let ((key, status), committed) = commit(&*state.store, context.by, decide).await??;
    written_answer(&state, action, status, &key, committed)
}

/// The key of a new object. Its id is the number of the revision that creates it.
fn named(draft: &Draft, target: &CrudTarget, object: &mut Map<String, Value>) -> ResourceKey {
    let numbers = draft.revision().0..;
    // The width of APISIX's ids, whose order as texts is that of creation.
    let ids = numbers.map(|number| format!("{number:020}"));
    let is_free = |id: &String| draft.state().get(target.kind, id).is_none();
    let id = ids.into_iter().find(is_free).expect("there are more numbers than objects");
    object.insert("id".to_owned(), id.as_str().into());
    ResourceKey::new(target.kind, id)
}

/// Changes part of an object: merges the body, or replaces the value at the path.
pub(crate) async fn patch(
    state: AdminState,
    target: CrudTarget,
    body: Option<Value>,
    context: CrudContext,
) -> Result<Response, ApiRefusal> {
    let ttl_ms = ttl_ms(&context)?;
    if target.kind.descriptor().id == IdRule::WithinManager && target.id.is_none() {
        return Err(ApiRefusal::invalid("no secret id"));
    }
    let key = target.key()?;
    let body = body.ok_or_else(|| ApiRefusal::invalid("missing new configuration"))?;
    // A PATCH on a path may replace a value by one of any type.
    if target.within.is_empty() && !body.is_object() {
        return Err(ApiRefusal::invalid("invalid configuration"));
    }
    let patch = PatchRequest { key, within: target.within, body, condition: context.condition };
    let at = state.store.state();
    // Validated outside the store's writer, which must not be blocked for long.
    let mut change = Some(patch.on(&state, at.get(patch.key.kind, &patch.key.id))?);
    let (deciding, requested) = (state.clone(), patch.clone());
    let decide = move |draft: &mut Draft| -> Result<(), ApiRefusal> {
        let before = draft.state().get(requested.key.kind, &requested.key.id);
        // The change was validated outside of the writer; validate again only after another write.
        let change = match change.take() {
            // No other write came between, so the validation above still holds.
            Some(change) if before.is_some_and(|before| before.modified == change.on) => change,
            _ => requested.on(&deciding, before)?,
        };
        change.write(&deciding, &requested.key, draft, ttl_ms)
    };
    let ((), committed) = commit(&*state.store, context.by, decide).await??;
    written_answer(&state, LegacyAction::Patch, StatusCode::OK, &patch.key, committed)
}

/// A PATCH request.
#[derive(Clone)]
struct PatchRequest {
    key: ResourceKey,
    within: Vec<String>,
    body: Value,
    condition: WritePrecondition,
}

/// The result of a PATCH on one version of an object.
struct PatchedObject {
    object: Map<String, Value>,
    on: Revision,
    keeps_update_time: bool,
}

impl PatchRequest {
    fn on(&self, state: &AdminState, before: Option<&StoreEntry>) -> Result<PatchedObject, ApiRefusal> {
        let PatchRequest { key, within, body, condition } = self;
        let before = before.ok_or_else(ApiRefusal::key_not_found)?;
        condition.check(key, Some(before))?;
        let body = body.clone();
        let mut object = object_in(before)?;
        // As in APISIX, a PATCH may set the time of the update.
        let keeps_update_time = within.is_empty() && body.get("update_time").is_some();
        match body {
            Value::Object(patch) if within.is_empty() => merge::merge(&mut object, patch),
            value => merge::replace(&mut object, within, value)
                .map_err(|path| ApiRefusal::invalid(format!("invalid sub-path: {path}")))?,
        }
        object::patched(state, key, &mut object)?;
        Ok(PatchedObject { object, on: before.modified, keeps_update_time })
    }
}

impl PatchedObject {
    fn write(
        self,
        state: &AdminState,
        key: &ResourceKey,
        draft: &mut Draft,
        ttl_ms: Option<u64>,
    ) -> Result<(), ApiRefusal> {
        let PatchedObject { mut object, keeps_update_time, .. } = self;
        let known = state.index.catch_up(&state.registry, draft.state());
        references::check(draft.state(), key, &object)?;
        references::check_unique(&state.registry, &state.variables, &known, key, &object)?;
        references::check_group(&state.registry, &known, key, &object)?;
        references::check_usable(&known, key, &object)?;
        let now_s = draft.now_ms() / 1000;
        let updated = object.get("update_time").cloned().filter(|_| keeps_update_time);
        let created = object.get("create_time").cloned();
        object::set_times(&mut object, created, now_s);
        if let Some(updated) = updated {
            object.insert("update_time".to_owned(), updated);
        }
        let expires_ms = ttl_ms.map(|ttl_ms| draft.now_ms() + ttl_ms);
        draft.put(key.clone(), Value::Object(object).to_string().into(), expires_ms);
        Ok(())
    }
}

/// Deletes an object, unless others refer to it.
pub(crate) async fn delete(
    state: AdminState,
    target: CrudTarget,
    context: CrudContext,
) -> Result<Response, ApiRefusal> {
    let key = target.key()?;
    // `force=true` skips the check of references, as in APISIX.
    let is_forced = context.query.get("force") == Some("true");
    let (registry, index, condition) = (state.registry.clone(), state.index.clone(), context.condition);
    let doomed = key.clone();
    let decide = move |draft: &mut Draft| -> Result<(), ApiRefusal> {
        if !is_forced {
            references::check_unused(&index.catch_up(&registry, draft.state()), &doomed)?;
        }
        let Some(before) = draft.state().get(doomed.kind, &doomed.id) else {
            // A text of other tools may not be an object.
            let was_unreadable = draft.remove_unreadable(&doomed);
            return if was_unreadable {
                condition.check(&doomed, None)
            } else {
                Err(ApiRefusal::key_not_found())
            };
        };
        condition.check(&doomed, Some(before))?;
        draft.delete(doomed.kind, &doomed.id);
        Ok(())
    };
    let ((), committed) = commit(&*state.store, context.by, decide).await??;
    let revision = committed.map_or(state.store.state().revision, |committed| committed.revision);
    Ok(answer::deleted(state.api_version, &key, revision))
}

fn ttl_ms(context: &CrudContext) -> Result<Option<u64>, ApiRefusal> {
    let Some(text) = context.query.get("ttl") else {
        return Ok(None);
    };
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let refused = || ApiRefusal::invalid("invalid argument ttl: should be a number");
    Ok(Some((seconds.ok_or_else(refused)?.min(TTL_SECONDS_MAX) * 1000.0) as u64))
}

fn object_in(entry: &StoreEntry) -> Result<Map<String, Value>, ApiRefusal> {
    let unreadable =
        |error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("stored text: {error}"));
    serde_json::from_str(&entry.json).map_err(unreadable)
}

fn create_time(entry: &StoreEntry) -> Option<Value> {
    object_in(entry).ok()?.get("create_time").cloned()
}

/// The response with the stored object, as of the revision of the write.
fn written_answer(
    state: &AdminState,
    action: LegacyAction,
    status: StatusCode,
    key: &ResourceKey,
    committed: Option<Arc<StoreCommit>>,
) -> Result<Response, ApiRefusal> {
    let lost = || {
        ApiRefusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{} was not stored", key.kind.descriptor().names.label),
        )
    };
    let committed = committed.ok_or_else(lost)?;
    // The commit may hold several changes, such as the credentials of a consumer.
    let changed = committed.changes.iter().find(|changed| changed.key == *key).ok_or_else(lost)?;
    let entry = changed.after.as_ref().ok_or_else(lost)?;
    // A client that may write an object may see its secrets.
    let mut response = answer::one(
        state.api_version,
        status,
        action,
        SecretVisibility::Whole,
        key,
        entry,
        committed.revision,
    );
    response.extensions_mut().insert(WrittenObjects::Commit(committed));
    Ok(response)
}
