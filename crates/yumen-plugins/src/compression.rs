//! Common parts of `gzip`, `brotli` and `zstd`: the rules which responses to compress, and a coder over any
//! encoder that implements `Write`.

use std::io::Write;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_http::{Framing, HttpVersion, KnownField};
use yumen_plugin::{BodyChunk, BodyCoder, Exchange, ResponseCoding, ResponseHead};

/// Media types of the responses to compress.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum CompressibleTypes {
    /// Exactly these types; parameters are ignored.
    Listed(Vec<String>),
    /// `*`: every type.
    All(String),
}

impl Default for CompressibleTypes {
    fn default() -> CompressibleTypes {
        CompressibleTypes::Listed(vec!["text/html".to_owned()])
    }
}

impl serde::Serialize for CompressibleTypes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            CompressibleTypes::Listed(types) => types.serialize(serializer),
            CompressibleTypes::All(all) => all.serialize(serializer),
        }
    }
}

impl JsonSchema for CompressibleTypes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Types".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            {"enum": ["*"]},
        ]})
    }
}

pub(crate) fn min_length() -> u64 {
    20
}

pub(crate) fn http_version() -> f64 {
    1.1
}

pub(crate) fn http_version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [1.1, 1]})
}

/// The rules which responses to compress.
#[derive(Debug)]
pub(crate) struct CompressionRules {
    pub(crate) types: CompressibleTypes,
    /// Shortest response to compress in bytes. A response of unknown length is compressed.
    pub(crate) length_min: u64,
    /// Lowest HTTP version of requests to compress responses for.
    pub(crate) http_version: f64,
    pub(crate) varies: bool,
    /// The only statuses to compress; empty means every status.
    pub(crate) statuses: &'static [u16],
}

impl CompressionRules {
    fn admit(&self, ex: &Exchange<'_>, head: &ResponseHead) -> bool {
        let is_short = matches!(head.framing, Framing::Length(length) if length < self.length_min);
        let is_status = self.statuses.is_empty() || self.statuses.contains(&head.status);
        is_status && !self.is_too_old(ex) && !is_short && self.names(head)
    }

    /// A 304 may lack the type and the length of the content that it confirms (RFC 9110 §15.4.5).
    fn could_admit(&self, ex: &Exchange<'_>, not_modified: &ResponseHead) -> bool {
        let has_type = not_modified.fields.known(KnownField::ContentType).is_some();
        !self.is_too_old(ex) && (!has_type || self.names(not_modified))
    }

    fn is_too_old(&self, ex: &Exchange<'_>) -> bool {
        self.http_version > 1.0 && ex.request.version == HttpVersion::Http10
    }

    /// Whether the media type matches. `*` excludes gRPC, which compresses message by message.
    fn names(&self, head: &ResponseHead) -> bool {
        let Some(content_type) = head.fields.known(KnownField::ContentType) else { return false };
        let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
        let media_type = content_type[..end].trim_ascii();
        match &self.types {
            CompressibleTypes::All(_) => !media_type.starts_with(b"application/grpc"),
            CompressibleTypes::Listed(types) => {
                types.iter().any(|one| one.as_bytes().trim_ascii().eq_ignore_ascii_case(media_type))
            }
        }
    }
}

/// An encoder that writes into memory.
pub(crate) trait BodyEncoder: Write + 'static {
    /// Compressed bytes that are not taken yet.
    fn output(&mut self) -> &mut Vec<u8>;

    /// Ends the stream and returns the remaining bytes.
    fn end(self) -> std::io::Result<Vec<u8>>;
}

/// A content coding from rules and a constructor of encoders.
pub(crate) struct CompressionCoding<B> {
    pub(crate) name: &'static str,
    pub(crate) terms: CompressionRules,
    pub(crate) begin: B,
}

impl<B, E> CompressionCoding<B>
where
    B: Fn() -> E + Send + Sync + 'static,
    E: BodyEncoder,
{
    pub(crate) fn offer(self) -> Arc<dyn ResponseCoding> {
        Arc::new(self)
    }
}

impl<B, E> ResponseCoding for CompressionCoding<B>
where
    B: Fn() -> E + Send + Sync + 'static,
    E: BodyEncoder,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn admits(&self, ex: &Exchange<'_>, head: &ResponseHead) -> bool {
        self.terms.admit(ex, head)
    }

    fn could_admit(&self, ex: &Exchange<'_>, not_modified: &ResponseHead) -> bool {
        self.terms.could_admit(ex, not_modified)
    }

    fn varies(&self) -> bool {
        self.terms.varies
    }

    fn begin(&self) -> Box<dyn BodyCoder> {
        Box::new(EncodingBody { encoder: Some((self.begin)()), is_holding: false })
    }
}

/// A response body that streams through an encoder.
struct EncodingBody<E> {
    /// `None` after the end of the stream.
    encoder: Option<E>,
    /// Whether the encoder has input since the last flush. A flush without input would emit an empty block.
    is_holding: bool,
}

impl<E: BodyEncoder> BodyCoder for EncodingBody<E> {
    fn code(&mut self, chunk: &BodyChunk) -> Vec<u8> {
        // The end of the stream consumed the encoder; no content follows it.
        let Some(mut encoder) = self.encoder.take() else { return Vec::new() };
        const SINK: &str = "a vector takes every write";
        encoder.write_all(&chunk.data).expect(SINK);
        if chunk.last {
            return encoder.end().expect(SINK);
        }
        // A flush writes a block even without content, so it needs new content to be worthwhile.
        self.is_holding |= !chunk.data.is_empty();
        // The upstream pauses: the client gets all content so far.
        if chunk.pause && std::mem::take(&mut self.is_holding) {
            encoder.flush().expect(SINK);
        }
        let output = std::mem::take(encoder.output());
        self.encoder = Some(encoder);
        output
    }
}

#[cfg(test)]
mod tests;
