//! Writes of the translation to the store.

use std::sync::Arc;

use tokio::sync::oneshot;
use yumen_kubernetes::ResourceChange;
use yumen_store::{Authorship, Draft, MemoryStore, Proposal, ResourceKey, Store};

/// Writes to the store and waits for the revision.
pub(super) async fn propose(store: Arc<MemoryStore>, mut change: impl FnMut(&mut Draft) + Send + 'static) {
    let (done, committed) = oneshot::channel();
    store.propose(Proposal {
        by: Authorship::by("kubernetes"),
        decide: Box::new(move |draft| {
            change(draft);
            true
        }),
        done: Box::new(move |result| drop(done.send(result.map(drop)))),
    });
    match committed.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "translated resources cannot be stored"),
        // The store ends with the process.
        Err(_) => {}
    }
}

/// Writes changes of resources as one revision.
pub(super) async fn commit_changes(store: Arc<MemoryStore>, changes: Vec<ResourceChange>) {
    propose(store, move |draft| {
        for change in &changes {
            match change {
                ResourceChange::Put(resource) => {
                    if let Some(kind) = resource.name.kind.kind() {
                        let key = ResourceKey::new(kind, resource.name.id.clone());
                        draft.put(key, resource.json.clone(), None);
                    }
                }
                ResourceChange::Delete(name) => {
                    if let Some(kind) = name.kind.kind() {
                        draft.delete(kind, &name.id);
                    }
                }
            }
        }
    })
    .await;
}
