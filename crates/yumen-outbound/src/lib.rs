//! Calls of the control runtime to the servers of plugins.
//!
//! Plugins and workers never wait for these servers. This crate must not know plugins, stores or configuration.

mod batch;
mod connector;
mod file_sink;
mod grpc_sink;
mod http_sink;
mod sender;
mod standing;
mod stream_sink;
mod tls;
mod transport;

pub use sender::{SenderTools, run_sender};
pub use standing::SinkStanding;
pub use tls::TlsClients;
