//! What the gateway offers beyond the API it is compatible with, under `/yumen/v1`.
//!
//! Composes the parts; knows the running gateway only through [`Live`].

mod applied;
mod difference;
mod history;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::watch;
use yumen_base::Problem;
use yumen_store::{Revision, Store};

pub(crate) use applied::wait_for_applied;

/// What a running gateway tells about itself.
pub trait Live: Send + Sync {
    /// The newest revision that every next request is served by.
    fn applied(&self) -> watch::Receiver<Revision>;

    /// The publication each worker picked up last, and the newest one.
    fn workers(&self) -> (Vec<u64>, u64);

    /// The findings in force.
    fn problems(&self) -> Vec<Problem>;
}

/// Where `/yumen/v1` finds what it serves.
#[derive(Clone)]
pub struct V1State {
    /// Where resources live.
    pub store: Arc<dyn Store>,
    /// The running gateway.
    pub live: Arc<dyn Live>,
}

/// Everything under `/yumen/v1`, for holders of a key.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(state: V1State) -> Router<S> {
    Router::new()
        .route("/yumen/v1/revisions", get(history::list))
        .route("/yumen/v1/revisions/{revision}", get(history::one))
        .route("/yumen/v1/revisions/{revision}/rollback", post(history::rollback))
        .route("/yumen/v1/diff", get(history::diff))
        .route("/yumen/v1/applied", get(applied::applied))
        .route("/yumen/v1/problems", get(applied::problems))
        .with_state(state)
}
