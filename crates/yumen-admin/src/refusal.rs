//! A request that is refused: its status and what is said.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yumen_store::StoreError;

use crate::reply;

/// A request that is not done, as its client is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiRefusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    /// The methods that are served where one is not.
    allow: Option<HeaderValue>,
}

impl ApiRefusal {
    /// `{"error_msg": message}`, what most refusals look like.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiRefusal {
        ApiRefusal::of(status, json!({ "error_msg": message.into() }))
    }

    /// With a body of its own.
    pub(crate) fn of(status: StatusCode, body: Value) -> ApiRefusal {
        ApiRefusal { status, body, allow: None }
    }

    /// 405, and what is served instead (RFC 9110 §15.5.6).
    pub(crate) fn method(message: impl Into<String>, served: &[&str]) -> ApiRefusal {
        let allow = HeaderValue::from_str(&served.join(",")).ok();
        ApiRefusal { allow, ..ApiRefusal::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// What the store of the contract answers for a key it does not hold.
    pub(crate) fn key_not_found() -> ApiRefusal {
        ApiRefusal::of(StatusCode::NOT_FOUND, json!({ "message": "Key not found" }))
    }

    /// 400 with a message.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiRefusal {
        ApiRefusal::new(StatusCode::BAD_REQUEST, message)
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            // The contract has one refusal that is a plain sentence.
            Value::String(sentence) => (self.status, format!("{sentence}\n")).into_response(),
            body => reply::json(self.status, &body),
        };
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.headers_mut().extend(self.allow.map(|methods| (header::ALLOW, methods)));
        response
    }
}

/// The client's request was fine; the store is not.
impl From<StoreError> for ApiRefusal {
    fn from(error: StoreError) -> ApiRefusal {
        let status = match error {
            StoreError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            StoreError::Compacted(_) => StatusCode::GONE,
            StoreError::Refused(_) => StatusCode::BAD_REQUEST,
            StoreError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        ApiRefusal::new(status, error.to_string())
    }
}
