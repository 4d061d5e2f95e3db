//! The API beyond the compatible Admin API, under `/yumen/v1`. The running gateway is known only through [`LiveGateway`].

mod applied;
mod arguments;
mod backup;
mod cluster;
mod convert;
mod difference;
mod endpoints;
mod history;
mod insight;
mod keys;
mod live;
mod objects;
mod plan;
mod secrets;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod transaction;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post, put};
use serde_json::Value;
use tokio::sync::watch;
use yumen_base::{Now, Problem};
use yumen_config::Resource;
use yumen_snapshot::Snapshot;
use yumen_snapshot::plan::{ChangePlan, PlanLimits};
use yumen_store::{Revision, StoreError};

use crate::api::AdminState;
use crate::secrets::SecretVisibility;

pub(crate) use applied::wait_for_applied;
pub(crate) use arguments::{NoArguments, StrictWriteQuery};
pub use cluster::{ClusterView, NodeView};

/// Maximum size of a document in bytes, enough for some hundred thousand objects.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The running gateway.
pub trait LiveGateway: Send + Sync {
    /// The newest published revision: every new exchange sees it.
    fn applied(&self) -> watch::Receiver<Revision>;

    /// The number of the publication that each worker serves, and of the newest one.
    fn workers(&self) -> (Vec<u64>, u64);

    /// The problems of the current configuration.
    fn problems(&self) -> Vec<Problem>;

    /// The nodes that share the store.
    fn cluster(&self) -> ClusterView;

    /// Changes with the status of any other node.
    fn cluster_moved(&self) -> watch::Receiver<u64>;

    /// The current snapshot.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Compiles resources without publishing them. May take as long as a start.
    fn trial(&self, resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>);

    /// The effects of a change, on recent requests too. May take as long as two starts. A reader without secrets gets a
    /// plan that reads neither values of references nor files.
    fn plan(
        &self,
        before: &[Resource],
        after: &[Resource],
        limits: PlanLimits,
        visibility: SecretVisibility,
    ) -> ChangePlan;

    /// Problems and style findings of resources.
    fn lint(&self, resources: &[Resource], strict: bool) -> Vec<Problem>;

    /// A backup of the store in an unlinked file, whose space is freed when the file is closed. May take long.
    fn backup(&self) -> Result<File, StoreError>;

    /// The states of the configuration's listeners, by id.
    fn listeners(&self) -> Value;

    /// The use of routes, upstreams, plugins and consumers since the start.
    fn top(&self) -> Value;

    /// Recent requests, the latest first; `None` if the settings keep them from lists.
    fn recent(&self) -> Option<Value>;

    /// The validity of the server certificates in use, by id of their objects.
    fn certificates(&self) -> Value;

    /// The states of the secrets in use, by manager and key, without their values: `vault/1/jack/key`.
    fn secrets(&self) -> BTreeMap<String, Value>;

    /// Fetches the values of all secrets now; returns their number.
    fn refresh_secrets(&self) -> usize;

    /// Drops the value of a secret by manager and key, and fetches it again. False if no object uses it.
    fn forget_secret(&self, name: &str) -> bool;

    /// The text with asterisks in place of values of secrets.
    fn without_secrets(&self, text: String) -> String;

    /// The current time.
    fn now(&self) -> Now;
}

/// State of the handlers under `/yumen/v1`.
#[derive(Clone)]
pub struct V1State {
    /// State of the Admin API.
    pub admin: AdminState,
    /// The running gateway.
    pub live: Arc<dyn LiveGateway>,
    /// Rates of the last minutes.
    pub(crate) samples: Arc<live::LiveSamples>,
}

impl V1State {
    /// The state of handlers for a running gateway.
    pub fn new(admin: AdminState, live: Arc<dyn LiveGateway>) -> V1State {
        V1State { admin, live, samples: Arc::default() }
    }
}

/// Paths and handlers.
pub(crate) fn routes() -> [(&'static str, MethodRouter<V1State>); 28] {
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
        ("/yumen/v1/convert", convert::handler()),
        ("/yumen/v1/backup", get(backup::backup)),
        ("/yumen/v1/apply", post(transaction::apply)),
        ("/yumen/v1/import", post(transaction::import)),
        ("/yumen/v1/export", get(transaction::export)),
        ("/yumen/v1/problems", get(applied::problems)),
        ("/yumen/v1/listeners", get(insight::listeners)),
        ("/yumen/v1/store/confirm", post(store::confirm)),
        ("/yumen/v1/top", get(insight::top)),
        ("/yumen/v1/live", get(live::live)),
        ("/yumen/v1/objects/{kind}", get(objects::objects)),
        ("/yumen/v1/upstreams", get(endpoints::upstreams)),
        ("/yumen/v1/certificates", get(insight::certificates)),
        ("/yumen/v1/recent", get(insight::recent)),
        ("/yumen/v1/secrets", get(secrets::list)),
        ("/yumen/v1/secrets/refresh", post(secrets::refresh)),
        ("/yumen/v1/secrets/forget", post(secrets::forget)),
        ("/yumen/v1/keys", get(keys::list)),
        ("/yumen/v1/keys/{name}", put(keys::rotate).delete(keys::revoke)),
    ]
}

/// The router under `/yumen/v1`. The caller requires a key.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(state: V1State) -> Router<S> {
    let add = |router: Router<V1State>, (path, serve)| router.route(path, serve);
    let router = routes().into_iter().fold(Router::new(), add);
    router.layer(DefaultBodyLimit::max(DOCUMENT_BYTES_MAX)).with_state(state)
}
