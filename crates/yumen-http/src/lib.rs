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

pub use body::{BodyError, Chunked, Decoded};
pub use fields::{Field, FieldName, Fields, Known, Span};
pub use head::{Framing, Method, RequestHead, ResponseHead, Version};
pub use parse::{HeadError, HeadLimits, Parsed};
