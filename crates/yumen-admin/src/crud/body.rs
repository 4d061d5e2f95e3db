//! Bodies: bounded, and JSON.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::refusal::Refusal;

const BODY_BYTES_MAX: usize = 1_572_864;

/// The body as JSON; `None` where there is none.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Option<Value>, Refusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(size) = declared.filter(|size: &usize| *size > BODY_BYTES_MAX) {
        return Err(too_large(&size.to_string()));
    }
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        let is_too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.to_string().contains("length limit exceeded"));
        match is_too_large {
            true => too_large("of the chunks read"),
            false => Refusal::invalid(format!("invalid request body: {error}")),
        }
    })?;
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let message = format!("invalid request body: {error}");
        let text = String::from_utf8_lossy(&bytes);
        Refusal { body: json!({ "error_msg": message, "req_body": text }), ..Refusal::invalid("") }
    })
}

fn too_large(size: &str) -> Refusal {
    Refusal::invalid(format!(
        "invalid request body: request size {size} is greater than the maximum size {BODY_BYTES_MAX} allowed"
    ))
}
