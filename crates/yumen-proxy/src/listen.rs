//! The arrival of connections at a worker: bound sockets, the accept loops, and the steering of QUIC
//! datagrams.
//!
//! Hands connections to `downstream` and `l4`. Must not depend on exchanges or upstreams.

pub(crate) mod dynamic;
pub mod listener;
pub(crate) mod quic;
