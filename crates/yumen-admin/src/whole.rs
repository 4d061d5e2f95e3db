//! Bodies taken whole: as far as the route's limit allows, and refused in the shape of the API.

use std::error::Error;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use crate::refusal::Refusal;
use crate::serve::Stalled;

/// A whole body.
pub(crate) struct Whole(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Whole, Refusal> {
        let read = Bytes::from_request(request, state).await;
        read.map(Whole).map_err(|error| {
            let status = if is_stalled(&error) { StatusCode::REQUEST_TIMEOUT } else { error.status() };
            Refusal::new(status, format!("invalid request body: {}", error.body_text()))
        })
    }
}

/// Whether the client did not go on sending.
pub(crate) fn is_stalled(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<Stalled>() {
            return true;
        }
        cause = error.source();
    }
    false
}
