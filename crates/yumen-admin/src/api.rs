//! What every handler of the Admin API shares: where resources live, what plugins there are, how it refuses.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yumen_config::node::AdminApiVersion;
use yumen_plugin::Registry;
use yumen_snapshot::compile::LoadCertificate;
use yumen_store::{Store, StoreError};

use crate::access::Access;
use crate::crud::{Index, Lists};
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
    /// Who may ask what.
    pub access: Arc<Access>,
    /// Shape of answers.
    pub api_version: AdminApiVersion,
    /// Whether this node serves stream routes; if not, they are refused.
    pub stream_routes: bool,
    /// What refers to what, as of the newest state anybody decided on.
    pub(crate) index: Arc<Index>,
    /// Whole lists somebody asked for, as they are sent.
    pub(crate) lists: Arc<Lists>,
}

impl AdminState {
    /// The state of an API that asks for a key of the store, in the shape `v3`, without stream routes.
    pub fn new(
        store: Arc<dyn Store>,
        registry: Arc<Registry>,
        known_inactive_plugins: &'static [&'static str],
        load_certificate: LoadCertificate,
    ) -> AdminState {
        let index = Arc::new(Index::default());
        // The first writer need not wait for a large store to be read.
        drop(index.catch_up(&registry, &store.state()));
        AdminState {
            store,
            registry,
            known_inactive_plugins,
            load_certificate,
            access: Arc::new(Access::default()),
            api_version: AdminApiVersion::V3,
            stream_routes: false,
            index,
            lists: Arc::default(),
        }
    }
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

    /// What the store of the contract answers for a key it does not hold.
    pub(crate) fn key_not_found() -> Refusal {
        Refusal { status: StatusCode::NOT_FOUND, body: json!({ "message": "Key not found" }) }
    }

    /// 400 with a message.
    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            // The contract has one refusal that is a plain sentence.
            Value::String(sentence) => (self.status, format!("{sentence}\n")).into_response(),
            body => reply::json(self.status, &body),
        };
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The client's request was fine; the store is not.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        let status = match error {
            StoreError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            StoreError::Compacted(_) => StatusCode::GONE,
            StoreError::Refused(_) => StatusCode::BAD_REQUEST,
            StoreError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal::new(status, error.to_string())
    }
}
