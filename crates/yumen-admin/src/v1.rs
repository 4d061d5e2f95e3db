//! What the gateway offers beyond the API it is compatible with, under `/yumen/v1`.
//!
//! Composes the parts; knows the running gateway only through [`LiveGateway`].

mod applied;
mod arguments;
mod backup;
mod cluster;
mod difference;
mod history;
mod insight;
mod plan;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod transaction;

use std::fs::File;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use tokio::sync::watch;
use yumen_base::{Now, Problem};
use yumen_config::Resource;
use yumen_snapshot::Snapshot;
use yumen_snapshot::plan::{ChangePlan, PlanLimits};
use yumen_store::{Revision, StoreError};

use crate::api::AdminState;

pub(crate) use applied::wait_for_applied;
pub(crate) use arguments::{NoArguments, StrictWriteQuery};
pub use cluster::{ClusterView, NodeView};

/// A document of so many bytes holds some hundred thousand objects.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a running gateway tells about itself.
pub trait LiveGateway: Send + Sync {
    /// The newest revision that every next request is served by.
    fn applied(&self) -> watch::Receiver<Revision>;

    /// The publication each worker picked up last, and the newest one.
    fn workers(&self) -> (Vec<u64>, u64);

    /// The findings in force.
    fn problems(&self) -> Vec<Problem>;

    /// The nodes that share the store.
    fn cluster(&self) -> ClusterView;

    /// Changes when what another node says of itself did.
    fn cluster_moved(&self) -> watch::Receiver<u64>;

    /// What is in force.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Compiles resources beside what is in force. May take as long as a start.
    fn trial(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>);

    /// What a change would do, to requests like the recent ones too. May take as long as two starts.
    fn plan(&self, before: &[Resource], after: &[Resource], limits: PlanLimits) -> ChangePlan;

    /// What is wrong with these resources, and what they say that is probably not meant.
    fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem>;

    /// A backup of the store, whose name is gone already: it takes no room once it was read. May take long.
    fn backup(&self) -> Result<File, StoreError>;

    /// The time.
    fn now(&self) -> Now;
}

/// Where `/yumen/v1` finds what it serves.
#[derive(Clone)]
pub struct V1State {
    /// What the Admin API serves from.
    pub admin: AdminState,
    /// The running gateway.
    pub live: Arc<dyn LiveGateway>,
}

/// What is served where.
pub(crate) fn routes() -> [(&'static str, MethodRouter<V1State>); 15] {
    [
        ("/yumen/v1/revisions", get(history::list)),
        ("/yumen/v1/revisions/{revision}", get(history::one)),
        ("/yumen/v1/revisions/{revision}/rollback", post(history::rollback)),
        ("/yumen/v1/diff", get(history::diff)),
        ("/yumen/v1/applied", get(applied::applied)),
        ("/yumen/v1/cluster", get(cluster::cluster)),
        ("/yumen/v1/explain", post(insight::explain_request)),
        ("/yumen/v1/plan", post(plan::plan)),
        ("/yumen/v1/lint", get(plan::lint)),
        ("/yumen/v1/backup", get(backup::backup)),
        ("/yumen/v1/apply", post(transaction::apply)),
        ("/yumen/v1/import", post(transaction::import)),
        ("/yumen/v1/export", get(transaction::export)),
        ("/yumen/v1/problems", get(applied::problems)),
        ("/yumen/v1/store/confirm", post(store::confirm)),
    ]
}

/// Everything under `/yumen/v1`, for holders of a key.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(state: V1State) -> Router<S> {
    let add = |router: Router<V1State>, (path, serve)| router.route(path, serve);
    let router = routes().into_iter().fold(Router::new(), add);
    router.layer(DefaultBodyLimit::max(DOCUMENT_BYTES_MAX)).with_state(state)
}
