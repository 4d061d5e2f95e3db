//! HTTP/3 of the downstream side: one QUIC endpoint per worker and listener, and its streams as transports.
//!
//! The `quinn` and `h3` libraries own packets, frames, flow control and QPACK; this module connects them to
//! the worker's timers and limits. Must not depend on routes, plugins or the connection driver.

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
