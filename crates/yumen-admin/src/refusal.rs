//! A request that is refused: its status and what is said.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yumen_store::StoreError;

use crate::reply;

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
