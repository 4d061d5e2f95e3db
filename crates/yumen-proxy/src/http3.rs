//! HTTP/3 to clients: QUIC endpoints, one per worker and listener, and their streams as bytes in and out.
//!
//! The libraries know packets, frames, flow control and header compression; here they meet the worker's
//! timers and limits. Knows no route and no plugin, nor who drives a connection.

mod datagram_link;
mod duplex;
mod endpoint;
mod head;
mod quic;
mod runtime;
mod send_queue;
mod steering;
mod transport;

pub use datagram_link::DatagramForwarder;
pub(crate) use duplex::Http3Duplex;
pub use endpoint::{Http3HandoverSender, Http3Identity, Http3Listener, listen};
pub(crate) use head::{HeadReadFailure, Incoming, Resolver, resolved};
pub(crate) use quic::{QuicConnection, is_too_long};
pub(crate) use send_queue::{Http3SendQueue, send_all, silence_ms};
