//! HTTP/3 to clients: QUIC endpoints, one per worker and listener, and their streams as bytes in and out.
//!
//! The libraries know packets, frames, flow control and header compression; here they meet the worker's
//! timers and limits. Knows no route and no plugin, nor who drives a connection.

mod duplex;
mod endpoint;
mod head;
mod link;
mod outgoing;
mod quic;
mod runtime;
mod steer;
mod transport;

pub(crate) use duplex::Duplex;
pub use endpoint::{Http3Identity, Http3Leave, Http3Listener, listen};
pub(crate) use head::{Incoming, Resolver, Unread, resolved};
pub use link::Pipe;
pub(crate) use outgoing::{Outgoing, send_all, silence_ms};
pub(crate) use quic::{Quic, is_too_long};
