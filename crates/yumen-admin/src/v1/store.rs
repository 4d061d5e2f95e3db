//! Operations on the store itself.

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

/// `POST /yumen/v1/store/confirm`: releases deletions on every node that were held back because of their
/// number.
pub(super) async fn confirm(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
    by: Option<Extension<Authorship>>,
) -> Result<Response, ApiRefusal> {
    let by = by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by);
    let (sender, receiver) = oneshot::channel();
    // A failed send means that the client has closed its connection.
    state.admin.store.confirm(by, Box::new(move |result| drop(sender.send(result))));
    let confirmed = receiver.await.map_err(|_| StoreError::Ended)??;
    Ok(reply::json(StatusCode::OK, &json!({ "confirmed": confirmed })))
}
