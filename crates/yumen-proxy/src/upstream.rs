//! The client of upstream endpoints: connections, their pools, admission, attempts, subrequests, health checks.
//!
//! Must not know the clients of listeners, routes or plugins beyond the exchange that it serves.

pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod h2_pool;
pub(crate) mod health;
pub(crate) mod mirror_limit;
pub(crate) mod pool;
pub mod probe;
pub(crate) mod removed;
pub(crate) mod replay;
pub(crate) mod subrequest;
