//! Bodies taken whole: as far as the route's limit allows, and refused in the shape of the API.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};

use crate::refusal::Refusal;

/// A whole body.
pub(crate) struct Whole(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Whole, Refusal> {
        let read = Bytes::from_request(request, state).await;
        read.map(Whole).map_err(|error| {
            Refusal::new(error.status(), format!("invalid request body: {}", error.body_text()))
        })
    }
}
