//! Byte streams to and from a peer: sockets, HTTP/2 and HTTP/3 streams, body framing.
//!
//! Both sides of the proxy use them. Must not depend on TLS settings, on exchanges or on the side that a
//! stream belongs to.

pub(crate) mod body;
pub(crate) mod http2;
pub(crate) mod http2_transport;
pub(crate) mod http3;
pub(crate) mod stream;
pub(crate) mod tcp;
