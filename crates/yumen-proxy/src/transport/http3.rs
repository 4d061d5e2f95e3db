//! HTTP/3 of the downstream side: streams of a QUIC connection as transports of exchanges.
//!
//! The `quinn` and `h3` libraries own packets, frames, flow control and QPACK; this module connects them to
//! the worker's timers and limits. Must not depend on routes, plugins or the connection driver.

mod duplex;
mod head;
mod quic;
mod send_queue;
mod transport;

pub(crate) use duplex::Http3Duplex;
pub(crate) use head::{HeadReadFailure, Incoming, Resolver, resolved};
pub(crate) use quic::{QuicConnection, is_too_long};
pub(crate) use send_queue::{Http3SendQueue, send_all, silence_ms};
