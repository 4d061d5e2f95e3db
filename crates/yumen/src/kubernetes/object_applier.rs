//! Writes the objects that the controller owns: Services and EndpointSlices of Gateways, finalizers of classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use yumen_base::Problem;
use yumen_kubernetes::{DesiredObject, ObjectKey};
use yumen_kubernetes_client::{ApiClient, ApiError, LeaseView, ObjectAddress, ObjectPatch, PatchMethod};

use super::api_paths::ServedVersions;

/// Pause before failed writes are repeated, and before a write that a conflict ended.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct ApplierState {
    /// Every object as it shall be.
    desired: BTreeMap<ObjectKey, DesiredObject>,
    /// Objects whose newest form is not written.
    due: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, String>,
    /// Versions that the newest writes made.
    written: BTreeMap<ObjectKey, Arc<str>>,
    /// Objects that others changed, and the time of their next write: two controllers that disagree must not write
    /// without a pause.
    changed: BTreeSet<ObjectKey>,
    changed_until: Option<Instant>,
}

impl ApplierState {
    /// Makes changed objects due, if their pause is over. Returns the time until then.
    fn take_changed(&mut self, now: Instant) -> Option<Duration> {
        let until = self.changed_until?;
        if until > now {
            return Some(until - now);
        }
        self.changed_until = None;
        self.due.append(&mut self.changed);
        None
    }
}

struct SharedApplier {
    state: Mutex<ApplierState>,
    changed: Notify,
}

/// A queue of objects to write, newest form first. Dropping it ends the writes.
pub(super) struct ObjectApplier {
    shared: Arc<SharedApplier>,
    task: JoinHandle<()>,
}

impl Drop for ObjectApplier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ObjectApplier {
    /// Starts the writer. It writes while the lease is held, and everything again after each gain.
    pub(super) fn start(
        client: ApiClient,
        lease: LeaseView,
        versions: Arc<Mutex<ServedVersions>>,
    ) -> ObjectApplier {
        let shared =
            Arc::new(SharedApplier { state: Mutex::new(ApplierState::default()), changed: Notify::new() });
        let task = tokio::spawn(write(client, lease, versions, shared.clone()));
        ObjectApplier { shared, task }
    }

    pub(super) fn submit(&self, objects: Vec<DesiredObject>) {
        if objects.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        for object in objects {
            let key = key_of(&object).clone();
            if matches!(object, DesiredObject::Leave(_)) {
                state.desired.remove(&key);
                state.due.remove(&key);
                state.failures.remove(&key);
                continue;
            }
            state.due.insert(key.clone());
            state.desired.insert(key, object);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Takes the news that an object was deleted (no version) or changed: one that shall exist is written again, unless
    /// the change is our own write. Its form did not change, so the translation reports no difference.
    pub(super) fn restore(&self, key: &ObjectKey, version: Option<&str>) {
        let mut state = self.shared.state();
        let is_ours = version.is_some() && state.written.get(key).map(|written| &**written) == version;
        if is_ours || !matches!(state.desired.get(key), Some(DesiredObject::Apply(..))) {
            return;
        }
        if version.is_some() {
            state.changed.insert(key.clone());
            state.changed_until.get_or_insert_with(|| Instant::now() + PAUSE);
        } else {
            state.due.insert(key.clone());
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Writes that fail at present.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let state = self.shared.state();
        let failed = state.failures.iter();
        failed
            .map(|(key, error)| Problem::warning(key.to_string(), "", format!("not written: {error}")))
            .collect()
    }
}

impl SharedApplier {
    fn state(&self) -> std::sync::MutexGuard<'_, ApplierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(
    client: ApiClient,
    mut lease: LeaseView,
    versions: Arc<Mutex<ServedVersions>>,
    shared: Arc<SharedApplier>,
) {
    let mut was_held = false;
    loop {
        let is_held = lease.is_held();
        if is_held && !was_held {
            // Another leader may have written other forms meanwhile.
            let mut state = shared.state();
            state.due = state.desired.keys().cloned().collect();
        }
        was_held = is_held;
        let wait = shared.state().take_changed(Instant::now());
        let has_failed = is_held && write_due(&client, &lease, &versions, &shared).await;
        let pause = if has_failed { PAUSE } else { wait.unwrap_or(Duration::from_secs(3600)) };
        tokio::select! {
            () = shared.changed.notified() => {}
            held = lease.changed() => if held.is_none() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Writes every object that is due; whether some failed.
async fn write_due(
    client: &ApiClient,
    lease: &LeaseView,
    versions: &Mutex<ServedVersions>,
    shared: &SharedApplier,
) -> bool {
    let due: Vec<ObjectKey> = shared.state().due.iter().cloned().collect();
    for key in due {
        if !lease.is_held() {
            return false;
        }
        let object = {
            let mut state = shared.state();
            state.due.remove(&key);
            state.desired.get(&key).cloned()
        };
        let Some(object) = object else { continue };
        let at = versions.lock().unwrap_or_else(PoisonError::into_inner).path(&key);
        let result = write_one(client, &at, &object).await;
        let mut state = shared.state();
        match result {
            Ok(version) => {
                state.failures.remove(&key);
                match version {
                    Some(version) => state.written.insert(key.clone(), version),
                    None => state.written.remove(&key),
                };
                // Nothing has to be written again for these by another leader.
                let is_final =
                    matches!(object, DesiredObject::Remove(_) | DesiredObject::RemoveFinalizer(..));
                if is_final && !state.due.contains(&key) {
                    state.desired.remove(&key);
                }
            }
            Err(error) => {
                tracing::warn!(object = %key, %error, "an object of the controller cannot be written");
                state.failures.insert(key.clone(), error.to_string());
                state.due.insert(key);
            }
        }
    }
    !shared.state().due.is_empty()
}

fn key_of(object: &DesiredObject) -> &ObjectKey {
    match object {
        DesiredObject::Apply(path, _)
        | DesiredObject::Remove(path)
        | DesiredObject::AddFinalizer(path, _)
        | DesiredObject::RemoveFinalizer(path, _)
        | DesiredObject::Leave(path) => &path.key,
    }
}

/// Writes an object. Returns its version, if the controller made it.
async fn write_one(
    client: &ApiClient,
    at: &ObjectAddress,
    object: &DesiredObject,
) -> Result<Option<Arc<str>>, ApiError> {
    let result = match object {
        DesiredObject::Apply(_, form) => match apply(client, at, form).await {
            // Others write Services too, such as the address of a load balancer.
            Err(ApiError::Conflict(_)) => apply(client, at, form).await.map(Some),
            result => result.map(Some),
        },
        DesiredObject::Remove(_) => remove(client, at).await.map(|()| None),
        DesiredObject::AddFinalizer(_, name) => set_finalizer(client, at, name, true).await.map(|()| None),
        DesiredObject::RemoveFinalizer(_, name) => {
            set_finalizer(client, at, name, false).await.map(|()| None)
        }
        DesiredObject::Leave(_) => Ok(None),
    };
    match (result, object) {
        // The object is gone, as wanted, or the write is pointless.
        (Err(ApiError::NotFound(_)), object) if !matches!(object, DesiredObject::Apply(..)) => Ok(None),
        (result, _) => result,
    }
}

/// Applies the form of an object. An object of the name that belongs to another owner is left alone.
async fn apply(client: &ApiClient, at: &ObjectAddress, form: &Value) -> Result<Arc<str>, ApiError> {
    let existing = match client.get(at).await {
        Ok(existing) => Some(existing),
        Err(ApiError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    let mut form = form.clone();
    let method = match &existing {
        Some(existing) => {
            if !is_of_owner(&existing.json, &form["metadata"]["ownerReferences"][0]["uid"]) {
                let message =
                    "an object of this name exists that does not belong to the Gateway; delete or rename it";
                return Err(ApiError::Unusable(message.to_owned()));
            }
            // A precondition: an object that replaced this one meanwhile is not touched.
            form["metadata"]["resourceVersion"] = (&*existing.resource_version).into();
            PatchMethod::Apply
        }
        None => PatchMethod::ApplyUnforced,
    };
    let body = form.to_string();
    let written = client.patch(at, ObjectPatch { method, is_status: false, body: &body }).await?;
    Ok(written.resource_version.to_string().into())
}

/// Deletes an object that the controller made.
async fn remove(client: &ApiClient, at: &ObjectAddress) -> Result<(), ApiError> {
    let existing = client.get(at).await?;
    let Some(uid) = uid_of_own(&existing.json) else { return Ok(()) };
    client.delete(at, Some(&uid)).await
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct OwnedObject {
    metadata: OwnedMetadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnedMetadata {
    uid: String,
    labels: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnerReference {
    api_version: String,
    kind: String,
    uid: String,
    controller: bool,
}

impl OwnedMetadata {
    /// The uid of the Gateway for which the controller made the object.
    fn owner(&self) -> Option<&str> {
        let is_managed = self.labels.get("app.kubernetes.io/managed-by").is_some_and(|by| by == "yumen");
        let owner = self.owner_references.iter().find(|owner| owner.controller).filter(|_| is_managed)?;
        let is_gateway =
            owner.kind == "Gateway" && owner.api_version.starts_with("gateway.networking.k8s.io/");
        is_gateway.then_some(&*owner.uid)
    }
}

/// Whether the controller made the object for the Gateway with the uid.
fn is_of_owner(json: &[u8], uid: &Value) -> bool {
    let object: OwnedObject = serde_json::from_slice(json).unwrap_or_default();
    object.metadata.owner().is_some_and(|owner| uid == owner)
}

/// The uid of an object that the controller made.
fn uid_of_own(json: &[u8]) -> Option<String> {
    let object: OwnedObject = serde_json::from_slice(json).unwrap_or_default();
    object.metadata.owner().is_some().then_some(object.metadata.uid)
}

/// Adds or removes a finalizer; others keep theirs, since the version of the list is a precondition.
async fn set_finalizer(
    client: &ApiClient,
    at: &ObjectAddress,
    name: &str,
    is_wanted: bool,
) -> Result<(), ApiError> {
    #[derive(serde::Deserialize)]
    struct FinalizedObject {
        metadata: FinalizedMetadata,
    }
    #[derive(serde::Deserialize)]
    struct FinalizedMetadata {
        #[serde(default)]
        finalizers: Vec<String>,
    }
    let current = client.get(at).await?;
    let Ok(FinalizedObject { metadata }) = serde_json::from_slice(&current.json) else { return Ok(()) };
    let mut finalizers = metadata.finalizers;
    if finalizers.iter().any(|one| one == name) == is_wanted {
        return Ok(());
    }
    match is_wanted {
        true => finalizers.push(name.to_owned()),
        false => finalizers.retain(|one| one != name),
    }
    let body =
        json!({ "metadata": { "resourceVersion": &*current.resource_version, "finalizers": finalizers } });
    let body = body.to_string();
    client
        .patch(at, ObjectPatch { method: PatchMethod::Merge, is_status: false, body: &body })
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(metadata: Value, is_own: bool) {
        let json = json!({ "metadata": metadata }).to_string();
        assert_eq!(is_of_owner(json.as_bytes(), &"uid-1".into()), is_own, "{json}");
        assert_eq!(uid_of_own(json.as_bytes()).is_some(), is_own, "{json}");
    }

    #[test]
    fn only_labelled_objects_of_a_gateway_are_own() {
        let labels = json!({ "app.kubernetes.io/managed-by": "yumen" });
        let owner = |kind: &str, is_controller: bool| {
            json!([{
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "name": "web", "uid": "uid-1",
                "controller": is_controller,
            }])
        };
        check(json!({ "uid": "s", "labels": labels, "ownerReferences": owner("Gateway", true) }), true);
        check(json!({ "uid": "s", "labels": labels, "ownerReferences": owner("Gateway", false) }), false);
        check(json!({ "uid": "s", "labels": labels, "ownerReferences": owner("HTTPRoute", true) }), false);
        check(json!({ "uid": "s", "labels": labels }), false);
        check(json!({ "uid": "s", "ownerReferences": owner("Gateway", true) }), false);
        assert!(!is_of_owner(b"{}", &"uid-1".into()));
    }
}
