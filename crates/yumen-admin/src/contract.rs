//! Everything of the Admin API that is not about one stored resource, as one router.
//!
//! Asks for no key: whoever merges it puts the guard in front.

use axum::Router;

use crate::api::AdminState;
use crate::{configs, openapi, plugins, schema};

/// Schemas, plugins, whole configurations, and the description of all of it.
pub fn contract_router() -> Router<AdminState> {
    Router::new()
        .merge(schema::router())
        .merge(plugins::router())
        .merge(configs::router())
        .merge(openapi::router())
}
