//! HTTP/1 heads, bodies and their rules (RFC 9110, RFC 9112), what may stand before them on a connection, and
//! what of HTTP/3 is looked at before its library sees it: bytes in, structures out.
//!
//! Owns no socket, clock or configuration. A peer's bytes never panic it: they become a
//! [`HeadError`] or a [`BodyError`].

mod ascii;
pub mod body;
pub mod client_hello;
pub mod encode;
pub mod field_section;
pub mod fields;
pub mod head;
pub mod http3_frames;
pub mod parse;
pub mod proxy_protocol;
pub mod uri;
pub mod websocket;

pub use body::{BodyError, ChunkDecodeStep, ChunkedDecoder};
pub use fields::{ByteSpan, FieldLine, FieldName, Fields, KnownField};
pub use head::{Framing, HttpVersion, Method, RequestHead, ResponseHead};
pub use parse::{HeadError, HeadLimits, ParsedHead};
