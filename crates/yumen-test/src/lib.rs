//! What tests of more than one crate stand on. No crate depends on it but for its tests, and it depends on none.

mod net;

pub use net::Net;
