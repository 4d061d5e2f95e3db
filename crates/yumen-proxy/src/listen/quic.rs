//! QUIC endpoints of HTTP/3: one per worker and listener, and the steering of datagrams between workers and
//! processes.
//!
//! The `quinn` library owns packets and streams. Must not depend on HTTP/3 streams.

mod datagram_link;
mod endpoint;
mod runtime;
mod steering;

pub use datagram_link::DatagramForwarder;
pub use endpoint::{Http3HandoverSender, Http3Identity, Http3Listener, listen};
