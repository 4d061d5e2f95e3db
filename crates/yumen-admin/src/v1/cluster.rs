//! The nodes that share a store, and their progress.
//!
//! Shows the view of the running gateway; independent of how nodes exchange their status.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::V1State;
use super::arguments::{NoArguments, StrictQuery};
use crate::reply;

/// The cluster as seen by one node.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterView {
    /// The kind of store.
    pub store: &'static str,
    /// Whether the node currently receives changes.
    pub connected: bool,
    /// How old this view may be, in milliseconds.
    pub age_ms: u64,
    /// The newest revision that changed an object.
    pub revision: u64,
    /// The number of nodes that do not serve it yet.
    pub behind: usize,
    /// The live nodes, by name.
    pub nodes: Vec<NodeView>,
}

/// The status of one node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// Stable over restarts.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The version of the gateway.
    pub version: String,
    /// Addresses by listener: `http`, `https`, `admin`, `status`.
    pub addresses: BTreeMap<String, Vec<String>>,
    /// The revision that all its workers serve.
    pub applied: u64,
    /// The number of revisions it lags; revisions of unrelated keys count.
    pub lag_revisions: u64,
    /// How long it has lagged, in milliseconds.
    pub lag_ms: u64,
    /// The number of problems in its configuration.
    pub problems: u64,
    /// The number of workers.
    pub workers: u64,
    /// `store`, or `last_good` if the node started without a store.
    pub config_source: String,
    /// Start of its process, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Time since its last message, in milliseconds.
    pub last_seen_ms: u64,
    /// Whether it is the node that responds.
    pub is_self: bool,
}

/// `GET /yumen/v1/cluster`.
pub(super) async fn cluster(State(state): State<V1State>, _: StrictQuery<NoArguments>) -> Response {
    let view = serde_json::to_value(state.live.cluster());
    reply::json(StatusCode::OK, &view.expect("a view is plain data"))
}
