//! Writes the objects that the controller owns: Services and EndpointSlices of Gateways, finalizers of classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
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
            state.due.insert(key.clone());
            state.desired.insert(key, object);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Takes the news that an object was deleted: one that shall exist is written again, since its form did not change and
    /// the translation reports no difference.
    pub(super) fn restore(&self, key: &ObjectKey) {
        let mut state = self.shared.state();
        if matches!(state.desired.get(key), Some(DesiredObject::Apply(..))) {
            state.due.insert(key.clone());
            drop(state);
            self.shared.changed.notify_one();
        }
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
        let has_failed = is_held && write_due(&client, &lease, &versions, &shared).await;
        let pause = if has_failed { PAUSE } else { Duration::from_secs(3600) };
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
            Ok(()) => {
                state.failures.remove(&key);
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
        | DesiredObject::RemoveFinalizer(path, _) => &path.key,
    }
}

async fn write_one(client: &ApiClient, at: &ObjectAddress, object: &DesiredObject) -> Result<(), ApiError> {
    let result = match object {
        DesiredObject::Apply(_, form) => {
            let body = form.to_string();
            client
                .patch(at, ObjectPatch { method: PatchMethod::Apply, is_status: false, body: &body })
                .await
                .map(drop)
        }
        DesiredObject::Remove(_) => client.delete(at, None).await,
        DesiredObject::AddFinalizer(_, name) => set_finalizer(client, at, name, true).await,
        DesiredObject::RemoveFinalizer(_, name) => set_finalizer(client, at, name, false).await,
    };
    match (result, object) {
        // The object is gone, as wanted, or the write is pointless.
        (Err(ApiError::NotFound(_)), object) if !matches!(object, DesiredObject::Apply(..)) => Ok(()),
        (result, _) => result,
    }
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
