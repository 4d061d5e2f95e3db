//! Endpoints that the configuration only names: addresses of host names, nodes of discovered services.
//!
//! Inputs of compilation. The control thread exports the required names and receives the results.

pub(crate) mod discovery;
pub(crate) mod dns;
pub(crate) mod inputs;
