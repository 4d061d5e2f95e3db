//! The nodes that share a store: which there are, and how far each is.
//!
//! Shows what the running gateway tells; must not know how nodes hear of each other.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::V1State;
use super::arguments::{NoArguments, StrictQuery};
use crate::reply;

/// The nodes as one of them sees them.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterView {
    /// The kind of store.
    pub store: &'static str,
    /// Whether the node hears of changes now.
    pub connected: bool,
    /// How old what is said here may be, in milliseconds.
    pub age_ms: u64,
    /// The newest revision that changed an object.
    pub revision: u64,
    /// How many nodes do not serve it yet.
    pub behind: usize,
    /// The nodes that are there, by their names.
    pub nodes: Vec<NodeView>,
}

/// One node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// The same on every start.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Of the gateway.
    pub version: String,
    /// Where it listens: `http`, `https`, `admin`, `status`.
    pub addresses: BTreeMap<String, Vec<String>>,
    /// Its workers serve everything up to this revision.
    pub applied: u64,
    /// How many revisions it is behind; those of other keys count too.
    pub lag_revisions: u64,
    /// For how long it has been behind, in milliseconds.
    pub lag_ms: u64,
    /// What it finds wrong with what it serves.
    pub problems: u64,
    /// How many workers it has.
    pub workers: u64,
    /// `store`, or `last_good` where it started without one.
    pub config_source: String,
    /// When its process began, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// When it last said something, in milliseconds before now.
    pub last_seen_ms: u64,
    /// Whether it is the one that was asked.
    pub is_self: bool,
}

/// `GET /yumen/v1/cluster`.
pub(super) async fn cluster(State(state): State<V1State>, _: StrictQuery<NoArguments>) -> Response {
    let view = serde_json::to_value(state.live.cluster());
    reply::json(StatusCode::OK, &view.expect("a view is plain data"))
}
