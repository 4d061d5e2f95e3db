//! Calls of the control runtime to the servers of plugins.
//!
//! Plugins and workers never wait for these servers. This crate must not know plugins, stores or configuration.
