//! Writes of the translation to the store.

use std::sync::Arc;

use tokio::sync::oneshot;
use yumen_store::{Authorship, Draft, MemoryStore, Proposal, Store};

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
