//! Everything of the Admin API that is not about one stored resource, as one router.
//!
//! Asks for no key: whoever merges it puts the guard in front.

use axum::Router;
use axum::http::StatusCode;

use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::{configs, openapi, plugins, schema};

/// Schemas, plugins, whole configurations, and the description of all of it.
pub fn contract_router() -> Router<AdminState> {
    Router::new()
        .merge(schema::router())
        .merge(plugins::router())
        .merge(configs::router())
        .merge(openapi::router())
        .method_not_allowed_fallback(no_such_verb)
}

/// Tools expect a verb nobody serves to be told like a path nobody serves.
async fn no_such_verb() -> ApiRefusal {
    ApiRefusal::new(StatusCode::NOT_FOUND, "not found")
}
