//! HTTP/3 to clients: QUIC endpoints, one per worker and listener, whose streams become exchanges.
//!
//! The libraries know packets, frames, flow control and header compression; here they meet the worker's
//! timers and limits. Knows no route and no plugin.

mod accept;
mod duplex;
mod endpoint;
mod head;
mod link;
mod outgoing;
mod runtime;
mod steer;

pub(crate) use accept::serve;
pub(crate) use duplex::Duplex;
pub use endpoint::{Http3Identity, Http3Leave, Http3Listener, bind, listen};
pub use link::Pipe;
