//! Local responses.

use std::sync::Arc;

use bytes::Bytes;
use yumen_http::Fields;

/// A local response. Clones share fields and body, so a constant response is built once, with its plugin.
#[derive(Debug, Clone, Default)]
pub struct LocalResponse {
    /// Status code.
    pub status: u16,
    fields: Arc<Fields>,
    /// Response body.
    pub body: Bytes,
    /// Whether the body is a message of the gateway, which may have another form.
    pub is_message: bool,
}

impl LocalResponse {
    /// A response without a body.
    pub fn status(status: u16) -> LocalResponse {
        LocalResponse { status, ..LocalResponse::default() }
    }

    /// A JSON response that ends with a line feed.
    pub fn json(status: u16, body: &serde_json::Value) -> LocalResponse {
        let mut bytes = body.to_string().into_bytes();
        bytes.push(b'\n');
        LocalResponse::status(status).field("Content-Type", "application/json").body(bytes)
    }

    /// `{"message": message}`, the refusal of authentication and restriction plugins.
    pub fn message(status: u16, message: &str) -> LocalResponse {
        let json = serde_json::json!({ "message": message });
        LocalResponse { is_message: true, ..LocalResponse::json(status, &json) }
    }

    /// `{"error_msg": message}`, the refusal of routing and limits.
    pub fn error_msg(status: u16, message: &str) -> LocalResponse {
        let json = serde_json::json!({ "error_msg": message });
        LocalResponse { is_message: true, ..LocalResponse::json(status, &json) }
    }

    /// The fields in order; the encoder adds the length.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Mutable fields; copies them if they are shared.
    pub fn fields_mut(&mut self) -> &mut Fields {
        Arc::make_mut(&mut self.fields)
    }

    /// The same response with a further field.
    pub fn field(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> LocalResponse {
        self.fields_mut().add(name.as_ref(), value.as_ref().as_bytes());
        self
    }

    /// The same response with this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> LocalResponse {
        self.body = body.into();
        self.is_message = false;
        self
    }
}

#[cfg(test)]
mod tests;
