//! Writes the objects that the controller owns: Services and EndpointSlices of Gateways, finalizers of classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use yumen_base::Problem;
use yumen_kubernetes::{DesiredObject, ObjectKey};
use yumen_kubernetes_client::{ApiClient, ApiError, LeaseView, ObjectPatch, PatchMethod};

use super::api_paths::ServedVersions;

/// Pause before failed writes are repeated, and before a write that a conflict ended.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct ApplierState {
    /// Every object as it shall be; `None` for one that shall not exist.
    desired: BTreeMap<ObjectKey, Option<Value>>,
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
            let (key, form) = match object {
                DesiredObject::Apply(path, form) => (path.key, Some(form)),
                DesiredObject::Remove(path) => (path.key, None),
            };
            state.due.insert(key.clone());
            state.desired.insert(key, form);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Writes that fail at present.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let state = self.shared.state();
        let failed = state.failures.iter();
        failed.map(|(key, error)| Problem::warning(key.to_string(), "", format!("not written: {error}"))).collect()
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
        let form = {
            let mut state = shared.state();
            state.due.remove(&key);
            state.desired.get(&key).cloned().flatten()
        };
        let path = versions.lock().unwrap_or_else(PoisonError::into_inner).path(&key);
        let result = match &form {
            Some(form) => {
                let text = form.to_string();
                client.patch(&path, ObjectPatch { method: PatchMethod::Apply, is_status: false, body: &text }).await.map(drop)
            }
            None => match client.delete(&path, None).await {
                Err(ApiError::NotFound(_)) => Ok(()),
                other => other,
            },
        };
        let mut state = shared.state();
        match result {
            Ok(()) => {
                state.failures.remove(&key);
                if form.is_none() && !state.due.contains(&key) {
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
