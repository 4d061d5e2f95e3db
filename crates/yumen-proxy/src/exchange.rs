//! One request and its response, from the complete request head to the log line: route, plugins, forwarding,
//! response, outcome.
//!
//! Must not depend on the protocol drivers of `downstream`, on listeners, or on the effect of a plugin.

mod body_piece;
pub(crate) mod chains;
pub(crate) mod client_wait;
pub(crate) mod connection;
mod deadline;
mod decide;
pub(crate) mod disposition;
mod error_page;
mod exchange_stats;
mod forward;
mod forwarded;
mod mirror;
mod plugin_edit;
mod plugin_host;
mod proxied;
mod reply;
pub(crate) mod serve;
mod session;
mod tunnel;
mod weighted;
