//! The admin and the status listener: HTTP for operators and their tools, on the control plane's runtime.
//!
//! Knows the house only through closures and gatherers; must not know workers, snapshots or stores.

mod admin;
mod exposition;
pub mod kong;
mod reply;
mod serve;
mod status;
#[cfg(test)]
mod tests;

pub use admin::serve_admin;
pub use exposition::exposition;
pub use status::{Document, StatusState, serve_status};
