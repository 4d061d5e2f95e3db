//! Resources of a process without a store of its own, such as that of `yumen proxy`.
//!
//! Holds their text and the words about them; opens and serves nothing.

use std::net::SocketAddr;

/// Resources that a command gives to the gateway it starts. They are in memory and end with the process.
pub(crate) struct GivenResources {
    /// Document in the standalone format.
    pub(crate) document: String,
    /// Reason why the Admin API refuses changes; `None` admits them.
    pub(crate) refusal: Option<String>,
    /// Text at the start: a line about the resources, the first request to try, and more.
    pub(crate) announcement: GivenAnnouncement,
    /// Called once the gateway serves, with the addresses of its HTTP listeners.
    pub(crate) on_ready: Option<ReadyFn>,
}

/// Function that is called once the gateway serves.
pub(crate) type ReadyFn = Box<dyn FnOnce(&[SocketAddr])>;

/// Lines of the text at the start.
pub(crate) struct GivenAnnouncement {
    /// Line in the list of listeners about the origin of the resources.
    pub(crate) origin: String,
    /// Path of the first request to try.
    pub(crate) path: &'static str,
    /// Whether the address of the dashboard is shown.
    pub(crate) has_dashboard: bool,
    /// Lines after the first request.
    pub(crate) advice: String,
}
