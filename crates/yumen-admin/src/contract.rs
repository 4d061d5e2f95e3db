//! Routes of the Admin API apart from single resources, as one router.
//!
//! Requires no key: the caller that merges this router adds the guard.

use axum::Router;
use axum::http::StatusCode;

use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::{configs, openapi, plugins, schema};

/// Schemas, plugins, whole configurations, and the OpenAPI document.
pub fn contract_router() -> Router<AdminState> {
    Router::new()
        .merge(schema::router())
        .merge(plugins::router())
        .merge(configs::router())
        .merge(openapi::router())
        .method_not_allowed_fallback(no_such_verb)
}

/// Tools expect the same status for an unsupported method as for an unknown path.
async fn no_such_verb() -> ApiRefusal {
    ApiRefusal::new(StatusCode::NOT_FOUND, "not found")
}
