//! Refusals of requests: status and body.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yumen_store::StoreError;

use crate::reply;

/// A refused request, as its client sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiRefusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    /// The supported methods, for `Allow`.
    allow: Option<HeaderValue>,
    /// Seconds for `Retry-After`.
    retry_after_s: Option<u64>,
}

impl ApiRefusal {
    /// `{"error_msg": message}`, the form of most refusals.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiRefusal {
        ApiRefusal::of(status, json!({ "error_msg": message.into() }))
    }

    /// A refusal with a body of another form.
    pub(crate) fn of(status: StatusCode, body: Value) -> ApiRefusal {
        ApiRefusal { status, body, allow: None, retry_after_s: None }
    }

    /// 405 with the supported methods (RFC 9110 §15.5.6).
    pub(crate) fn method(message: impl Into<String>, served: &[&str]) -> ApiRefusal {
        let allow = HeaderValue::from_str(&served.join(",")).ok();
        ApiRefusal { allow, ..ApiRefusal::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// 429 for an address that has failed to log in too often (RFC 6585 §4).
    pub(crate) fn too_many_logins(wait: Duration) -> ApiRefusal {
        let wait_s = wait.as_millis().div_ceil(1000).max(1) as u64;
        let message =
            format!("too many failed logins from this address: the next attempt is possible in {wait_s} s");
        let refusal = ApiRefusal::new(StatusCode::TOO_MANY_REQUESTS, message);
        ApiRefusal { retry_after_s: Some(wait_s), ..refusal }
    }

    /// The response of the contract's store to an unknown key.
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
            // One refusal of the contract is a plain sentence.
            Value::String(sentence) => (self.status, format!("{sentence}\n")).into_response(),
            body => reply::json(self.status, &body),
        };
        // The store recovers by itself, so the client should repeat the request (RFC 9110 §10.2.3).
        let is_down = self.status == StatusCode::SERVICE_UNAVAILABLE;
        if let Some(wait_s) = self.retry_after_s.or(is_down.then_some(1)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        }
        response.headers_mut().extend(self.allow.map(|methods| (header::ALLOW, methods)));
        response
    }
}

/// The request is valid, but the store cannot process it.
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
