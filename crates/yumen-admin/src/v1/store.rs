//! What is said to the store itself, and not to what it keeps.

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tokio::sync::oneshot;
use yumen_store::{Authorship, StoreError};

use super::V1State;
use super::arguments::{NoArguments, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;

/// `POST /yumen/v1/store/confirm`: deletions that were held back, as they were so many, pass on every node.
pub(super) async fn confirm(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
    by: Option<Extension<Authorship>>,
) -> Result<Response, ApiRefusal> {
    let by = by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by);
    let (tell, told) = oneshot::channel();
    // Whoever no longer waits does not want to know.
    state.admin.store.confirm(by, Box::new(move |result| drop(tell.send(result))));
    let confirmed = told.await.map_err(|_| StoreError::Ended)??;
    Ok(reply::json(StatusCode::OK, &json!({ "confirmed": confirmed })))
}
