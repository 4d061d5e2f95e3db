//! Configuration: where it comes from, how it is compiled and tested, and which node of a cluster has it.
//!
//! [`crate::control`] publishes it. No module here serves traffic.

pub(crate) mod cluster;
pub(crate) mod compiler;
pub(crate) mod exclusive_store;
pub(crate) mod findings;
pub(crate) mod given;
pub(crate) mod guard;
pub(crate) mod handover_store;
pub(crate) mod origin;
pub(crate) mod source;
pub(crate) mod trial;
