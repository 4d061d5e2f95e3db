//! The admin and the status listener: HTTP for operators and their tools, on the control plane's runtime.
//!
//! Knows the house only through closures, gatherers and the store's trait; must not know workers or snapshots.

mod access;
mod admin;
mod api;
mod crud;
mod exposition;
pub mod keys;
mod reply;
mod serve;
mod status;
#[cfg(test)]
mod tests;
mod tls;
mod validate;

pub use access::Access;
pub use admin::{serve_admin, serve_api};
pub use api::AdminState;
pub use exposition::exposition;
pub use status::{Document, StatusState, serve_status};
pub use tls::AdminTls;
