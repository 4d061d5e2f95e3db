//! An answer the gateway gives itself.

use std::sync::Arc;

use bytes::Bytes;
use yumen_http::Fields;

/// A local answer: status, fields, body. A clone shares fields and bytes, so an answer that never changes is made
/// once, when its plugin is built.
#[derive(Debug, Clone, Default)]
pub struct LocalResponse {
    /// Status code.
    pub status: u16,
    fields: Arc<Fields>,
    /// The body.
    pub body: Bytes,
}

impl LocalResponse {
    /// An answer without a body.
    pub fn status(status: u16) -> LocalResponse {
        LocalResponse { status, ..LocalResponse::default() }
    }

    /// An answer whose body is this JSON document, with a line end as tools expect.
    pub fn json(status: u16, body: &serde_json::Value) -> LocalResponse {
        let mut bytes = body.to_string().into_bytes();
        bytes.push(b'\n');
        LocalResponse::status(status).field("Content-Type", "application/json").body(bytes)
    }

    /// `{"message": message}`: how authentication and restriction plugins refuse.
    pub fn message(status: u16, message: &str) -> LocalResponse {
        LocalResponse::json(status, &serde_json::json!({ "message": message }))
    }

    /// `{"error_msg": message}`: how routing and limits refuse.
    pub fn error_msg(status: u16, message: &str) -> LocalResponse {
        LocalResponse::json(status, &serde_json::json!({ "error_msg": message }))
    }

    /// Its fields, in order; the length is written by the encoder.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Its fields, to be changed.
    pub fn fields_mut(&mut self) -> &mut Fields {
        Arc::make_mut(&mut self.fields)
    }

    /// The same answer with one field more.
    pub fn field(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> LocalResponse {
        self.fields_mut().add(name.as_ref(), value.as_ref().as_bytes());
        self
    }

    /// The same answer with this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> LocalResponse {
        self.body = body.into();
        self
    }
}

#[cfg(test)]
mod tests;
