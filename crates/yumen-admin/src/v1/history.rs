//! The history: revisions, differences, rollback.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::{Kind, Resource};
use yumen_store::{
    Authorship, Draft, EntryChange, ResourceKey, Revision, Store, StoreCommit, StoreEntry, StoreError,
    StoreState, commit,
};

use super::arguments::{ArgumentNames, NoArguments, PathParams, StrictQuery, StrictWriteQuery};
use super::transaction::key_of;
use super::{V1State, difference, plan};
use crate::crud::references;
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::revision::{WrittenObjects, set_revision};
use crate::secrets::SecretVisibility;

const PAGE: usize = 50;
const PAGE_MAX: usize = 500;

/// The requested part of the history.
#[derive(Debug, Deserialize)]
pub(super) struct HistoryPage {
    before: Option<u64>,
    limit: Option<usize>,
    /// Only revisions that changed this object, such as `routes/1`.
    object: Option<String>,
}

impl ArgumentNames for HistoryPage {
    const NAMES: &'static [&'static str] = &["before", "limit", "object"];
}

/// `GET /yumen/v1/revisions`, the newest first.
pub(super) async fn list(
    State(state): State<V1State>,
    StrictQuery(page): StrictQuery<HistoryPage>,
) -> Result<Response, ApiRefusal> {
    // A limit of zero would page through nothing; the upper bound keeps responses small.
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let before = page.before.map(Revision);
    let object = page.object.map(|name| key_of("object", &name)).transpose()?;
    let found = run_blocking(move || match &object {
        None => state.admin.store.history(before, limit),
        Some(object) => history_of(&*state.admin.store, object, before, limit),
    })
    .await?;
    let revisions: Vec<Value> = found.iter().map(|committed| summary(committed)).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "revisions": revisions })))
}

/// Searches the whole retained history, which is bounded.
fn history_of(
    store: &dyn Store,
    object: &ResourceKey,
    mut before: Option<Revision>,
    limit: usize,
) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
    let mut found = Vec::new();
    loop {
        let page = store.history(before, PAGE_MAX)?;
        // The history ends here; the matches so far are all there are.
        let Some(last) = page.last() else { return Ok(found) };
        // The next page begins below the oldest revision of this one.
        before = Some(last.revision);
        let touches = |one: &Arc<StoreCommit>| one.changes.iter().any(|changed| changed.key == *object);
        found.extend(page.into_iter().filter(touches));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

fn summary(committed: &StoreCommit) -> Value {
    let changes = committed.changes.iter().map(|changed| {
        let action = difference::action(changed);
        json!({ "object": changed.key.to_string(), "action": action })
    });
    json!({
        "revision": committed.revision.0,
        "time_unix_ms": committed.time_ms,
        "author": committed.by.author,
        "reason": committed.by.reason,
        "changes": changes.collect::<Vec<Value>>(),
    })
}

/// `GET /yumen/v1/revisions/{R}`: the changes of one revision, by path.
pub(super) async fn one(
    State(state): State<V1State>,
    visibility: SecretVisibility,
    PathParams(revision): PathParams<u64>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    check_reached(&*state.admin.store, revision)?;
    let found =
        // The upper bound of `history` is exclusive.
        run_blocking(move || state.admin.store.history(Some(Revision(revision.saturating_add(1))), 1))
            .await?;
    let committed = found.into_iter().find(|one| one.revision.0 == revision);
    let committed = committed.ok_or_else(|| ApiRefusal::from(StoreError::Compacted(Revision(revision))))?;
    let mut body = summary(&committed);
    body["changes"] = committed.changes.iter().map(|one| difference::shown(one, visibility)).collect();
    Ok(reply::json(StatusCode::OK, &body))
}

/// The compared revisions.
#[derive(Debug, Deserialize)]
pub(super) struct RevisionSpan {
    from: u64,
    /// By default the newest.
    to: Option<u64>,
}

impl ArgumentNames for RevisionSpan {
    const NAMES: &'static [&'static str] = &["from", "to"];
}

/// `GET /yumen/v1/diff?from=R1&to=R2`.
pub(super) async fn diff(
    State(state): State<V1State>,
    visibility: SecretVisibility,
    StrictQuery(span): StrictQuery<RevisionSpan>,
) -> Result<Response, ApiRefusal> {
    for revision in [Some(span.from), span.to].into_iter().flatten() {
        check_reached(&*state.admin.store, revision)?;
    }
    let (from, to, changes) = run_blocking(move || {
        let from = state.admin.store.state_at(Revision(span.from))?;
        let to = span
            .to
            .map_or_else(|| Ok(state.admin.store.state()), |to| state.admin.store.state_at(Revision(to)))?;
        let changes = between(&from, &to, |entry| entry.json.clone());
        Ok((from.revision, to.revision, changes))
    })
    .await?;
    let changes: Vec<Value> = changes.iter().map(|one| difference::shown(one, visibility)).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "from": from.0, "to": to.0, "changes": changes })))
}

/// The changes from one state to another that differ in `aspect`, ascending by key. Author and times are ignored.
fn between<T: PartialEq>(
    from: &StoreState,
    to: &StoreState,
    aspect: fn(&StoreEntry) -> T,
) -> Vec<EntryChange> {
    let differs = from.differences(to).filter(|(_, before, after)| before.map(aspect) != after.map(aspect));
    let changed = differs.map(|(key, before, after)| EntryChange {
        key: key.clone(),
        before: before.cloned(),
        after: after.cloned(),
    });
    changed.collect()
}

/// Unchanged objects of the revision that are served although the store has deleted them.
fn restored_entries(draft: &Draft, past: &StoreState) -> Vec<EntryChange> {
    let json =
        |state: &StoreState, key: &ResourceKey| state.get(key.kind, &key.id).map(|entry| entry.json.clone());
    let kept_entries = past
        .entries()
        .filter(|(key, entry)| draft.is_held(key) && json(draft.state(), key).as_ref() == Some(&entry.json));
    kept_entries
        .map(|(key, entry)| EntryChange {
            key: key.clone(),
            before: Some(entry.clone()),
            after: Some(entry.clone()),
        })
        .collect()
}

/// The changes that restore a revision.
struct RollbackChanges {
    changes: Vec<EntryChange>,
    /// Objects that have expired since, which are not restored.
    expired: Vec<ResourceKey>,
}

impl RollbackChanges {
    fn new(now: &StoreState, past: &StoreState, now_ms: u64) -> RollbackChanges {
        let (mut changes, mut expired) = (Vec::new(), BTreeSet::new());
        // The expiry is part of the difference: a rollback restores it as well.
        for changed in between(now, past, |entry| (entry.json.clone(), entry.expires_ms)) {
            let ends = changed.after.as_ref().and_then(|entry| entry.expires_ms);
            // An object whose time has passed must not return with a rollback.
            match ends.is_some_and(|at_ms| at_ms <= now_ms) {
                true => drop(expired.insert(changed.key)),
                false => changes.push(changed),
            }
        }
        // Deleting a consumer deletes its credentials.
        changes.retain(|changed| {
            let owner = consumer_of(&changed.key).filter(|owner| expired.contains(owner));
            let owner_exists = owner.is_none_or(|owner| now.get(owner.kind, &owner.id).is_some());
            if !owner_exists {
                expired.insert(changed.key.clone());
            }
            owner_exists
        });
        RollbackChanges { changes, expired: expired.into_iter().collect() }
    }

    /// Requires a confirmation for changes as large as those of an import that requires one.
    fn guard(&self, state: &V1State, now: &StoreState) -> Result<(), ApiRefusal> {
        let put = |changed: &EntryChange| {
            let json = changed.after.as_ref()?.json.clone();
            Some(Resource { kind: changed.key.kind, id: changed.key.id.clone(), json })
        };
        let puts: Vec<Resource> = self.changes.iter().filter_map(put).collect();
        let doomed = self.changes.iter().filter(|changed| changed.after.is_none());
        let doomed: Vec<ResourceKey> = doomed.map(|changed| changed.key.clone()).collect();
        plan::guard(state, now, &puts, &doomed)
    }

    /// Refuses to delete an object that others refer to.
    fn check_whole(&self, state: &V1State, draft: &Draft) -> Result<(), ApiRefusal> {
        // Only omitted objects can be missing; the restored ones were consistent in their revision.
        if self.expired.is_empty() {
            return Ok(());
        }
        let known = state.admin.index.catch_up(&state.admin.registry, draft.state());
        let absent = self.expired.iter().filter(|key| draft.state().get(key.kind, &key.id).is_none());
        let used = absent.filter_map(|key| Some((key, references::used_by(&known, key)?)));
        let errors: Vec<Value> = used
            .map(|(key, user)| {
                let error = format!("it has expired, and {user} uses it");
                json!({ "object": key.to_string(), "error": error })
            })
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        let message =
            "nothing was written: expired objects are not restored, but other objects refer to them";
        let body = json!({ "error_msg": message, "errors": errors });
        Err(ApiRefusal::of(StatusCode::CONFLICT, body))
    }
}

fn consumer_of(key: &ResourceKey) -> Option<ResourceKey> {
    let (username, _) = key.id.split_once("/credentials/").filter(|_| key.kind == Kind::Credentials)?;
    Some(ResourceKey::new(Kind::Consumers, username))
}

/// Conditions of a rollback.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RollbackQuery {
    /// Whether a large change is confirmed.
    #[serde(default)]
    confirm: bool,
    /// The revision that the store must have.
    expected_revision: Option<u64>,
}

impl ArgumentNames for RollbackQuery {
    const NAMES: &'static [&'static str] = &["confirm", "expected_revision"];
}

impl RollbackQuery {
    /// Refuses to undo changes that the client has not seen.
    fn check_revision(&self, stands: Revision) -> Result<(), ApiRefusal> {
        match self.expected_revision.filter(|expected| *expected != stands.0) {
            None => Ok(()),
            Some(expected) => {
                let message = format!(
                    "the store is at revision {}, not {expected}: compare the revisions again",
                    stands.0
                );
                Err(ApiRefusal::new(StatusCode::CONFLICT, message))
            }
        }
    }
}

/// `POST /yumen/v1/revisions/{R}/rollback`: a new revision with the content of an old one.
pub(super) async fn rollback(
    State(state): State<V1State>,
    PathParams(revision): PathParams<u64>,
    StrictWriteQuery(query): StrictWriteQuery<RollbackQuery>,
    by: Option<Extension<Authorship>>,
) -> Result<Response, ApiRefusal> {
    check_reached(&*state.admin.store, revision)?;
    let past = run_blocking({
        let store = state.admin.store.clone();
        // Revision 0 is empty, so a rollback to it is a mistake.
        move || match Revision(revision) {
            none if none == Revision::default() => Err(StoreError::Compacted(none)),
            some => store.state_at(some),
        }
    })
    .await?;
    query.check_revision(state.admin.store.state().revision)?;
    if !query.confirm {
        // The plan compiles two states, so it runs outside of the writer and of the runtime.
        let (state, past) = (state.clone(), past.clone());
        let guard = move || {
            let now = state.admin.store.state();
            RollbackChanges::new(&now, &past, state.live.now().unix_ms).guard(&state, &now)
        };
        let guarded = tokio::task::spawn_blocking(guard).await;
        guarded.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    }
    let mut by = by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by);
    // A reason of the client takes precedence.
    by.reason.get_or_insert_with(|| format!("rollback to revision {revision}"));
    let deciding = state.clone();
    let decide = move |draft: &mut Draft| -> Result<(usize, Vec<ResourceKey>), ApiRefusal> {
        // Compared within the writer, so no other write intervenes.
        query.check_revision(draft.state().revision)?;
        let RollbackChanges { mut changes, expired } =
            // Computed again on the state of the writer; the one above only served the confirmation.
            RollbackChanges::new(draft.state(), &past, draft.now_ms());
        // An object that is served although the store has deleted it is in no difference. Writing it restores it.
        changes.extend(restored_entries(draft, &past));
        for changed in &changes {
            match &changed.after {
                Some(entry) => draft.put(changed.key.clone(), entry.json.clone(), entry.expires_ms),
                None => drop(draft.delete(changed.key.kind, &changed.key.id)),
            }
        }
        let rollback = RollbackChanges { changes, expired };
        rollback.check_whole(&deciding, draft)?;
        Ok((rollback.changes.len(), rollback.expired))
    };
    let ((changed, expired), committed) = commit(&*state.admin.store, by, decide).await??;
    let newest =
        committed.as_ref().map_or_else(|| state.admin.store.state().revision, |committed| committed.revision);
    let expired: Vec<String> = expired.iter().map(ResourceKey::to_string).collect();
    let body = json!({ "revision": newest.0, "restored": revision, "changed": changed, "expired": expired });
    let mut response = reply::json(StatusCode::OK, &body);
    set_revision(&mut response, newest);
    if let Some(committed) = committed {
        response.extensions_mut().insert(WrittenObjects::Commit(committed));
    }
    Ok(response)
}

/// Refuses a future revision, as opposed to one that is no longer retained.
pub(super) fn check_reached(store: &dyn Store, revision: u64) -> Result<(), ApiRefusal> {
    let newest = store.state().revision.0;
    match revision <= newest {
        true => Ok(()),
        false => Err(ApiRefusal::new(
            StatusCode::NOT_FOUND,
            format!("revision {revision} does not exist yet: the newest is {newest}"),
        )),
    }
}

/// Reads the history off the runtime, since it is on disk.
pub(super) async fn run_blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ApiRefusal> {
    let done = tokio::task::spawn_blocking(read).await;
    done.map_err(|_| StoreError::Ended)?.map_err(ApiRefusal::from)
}
