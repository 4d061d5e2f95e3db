//! Whole request bodies, up to the limit of the route; refusals have the form of the API.

use std::error::Error;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use crate::refusal::ApiRefusal;
use crate::serve::BodyStalled;

/// A request body up to the limit of the route.
pub(crate) struct WholeBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = ApiRefusal;

    async fn from_request(request: Request, state: &S) -> Result<WholeBody, ApiRefusal> {
        let read = Bytes::from_request(request, state).await;
        read.map(WholeBody).map_err(|error| {
            let status = if is_stalled(&error) { StatusCode::REQUEST_TIMEOUT } else { error.status() };
            ApiRefusal::new(status, format!("invalid request body: {}", error.body_text()))
        })
    }
}

/// Whether the client stopped sending.
pub(crate) fn is_stalled(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<BodyStalled>() {
            return true;
        }
        cause = error.source();
    }
    false
}
