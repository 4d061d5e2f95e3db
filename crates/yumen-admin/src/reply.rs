//! JSON replies, ending in a line feed as tools of this resource model expect.

use axum::http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// A reply of `body` as JSON.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    text(status, format!("{body}\n"))
}

/// A reply of a text that is JSON already.
pub(crate) fn text(status: StatusCode, text: String) -> Response {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, [content_type], text).into_response()
}
