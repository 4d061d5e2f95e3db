//! Parsers and serializers of HTTP/1 heads and bodies (RFC 9110, RFC 9112), of the PROXY protocol and the TLS
//! client hello ahead of them, and filters for HTTP/3 and WebSocket frames.
//!
//! Owns no sockets, clocks or configuration. No input of a peer panics: invalid bytes become a [`HeadError`]
//! or a [`BodyError`].

mod ascii;
pub mod body;
pub mod client_hello;
pub mod encode;
pub mod field_section;
pub mod fields;
pub mod head;
pub mod http3_frames;
mod logged_target;
pub mod parse;
pub mod proxy_protocol;
pub mod uri;
pub mod websocket;

pub use body::{BodyError, ChunkDecodeStep, ChunkedDecoder};
pub use fields::{ByteSpan, FieldLine, FieldName, Fields, KnownField};
pub use head::{Framing, HttpVersion, Method, RequestHead, ResponseHead};
pub use parse::{HeadError, HeadLimits, ParsedHead};
