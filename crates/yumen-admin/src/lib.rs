//! The admin and the status listener: HTTP for operators and their tools, on the control plane's runtime.
//!
//! Knows the house only through closures and gatherers; must not know workers, snapshots or stores.

mod admin;
mod api;
mod exposition;
mod reply;
mod serve;
mod status;
#[cfg(test)]
mod tests;
mod v1;
mod validate;

pub use admin::serve_admin;
pub use api::AdminState;
pub use exposition::exposition;
pub use status::{Document, StatusState, serve_status};
pub use v1::{Live, V1State};
