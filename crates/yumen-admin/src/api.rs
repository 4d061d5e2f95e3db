//! What every handler of the Admin API shares: where resources live, what plugins there are, how it refuses.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yumen_plugin::Registry;
use yumen_snapshot::compile::LoadCertificate;
use yumen_store::{Store, StoreError};

use crate::reply;

/// Where the Admin API finds what it serves.
#[derive(Clone)]
pub struct AdminState {
    /// Where resources live.
    pub store: Arc<dyn Store>,
    /// All plugins there are.
    pub registry: Arc<Registry>,
    /// Plugins that may be configured although they are not built yet.
    pub known_inactive_plugins: &'static [&'static str],
    /// Loads a certificate and its key, to tell whether they fit.
    pub load_certificate: LoadCertificate,
}

/// A request that is not done, as its client is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Refusal {
    /// `{"error_msg": message}`, what most refusals look like.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, body: json!({ "error_msg": message.into() }) }
    }

    /// 400 with a message.
    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        reply::json(self.status, &self.body)
    }
}

/// The client's request was fine; the store is not.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        let status = match error {
            StoreError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            StoreError::Compacted(_) => StatusCode::GONE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal::new(status, error.to_string())
    }
}
