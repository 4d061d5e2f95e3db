//! Calls of the control runtime to the servers of plugins.
//!
//! Workers never block on these servers; a request waits only for a directory. This crate must not know plugins,
//! stores or configuration.

mod batch;
mod connector;
mod directory;
mod file_sink;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod google_sink;
mod grpc_sink;
mod http_sink;
mod kafka_sink;
mod sender;
mod service_account;
mod standing;
mod stream_sink;
mod tls;
mod transport;

pub use directory::DirectoryClient;
pub use sender::{SenderTools, run_sender};
pub use service_account::{ASSERTION_LIFE_S, ServiceAccountKey};
pub use standing::SinkStanding;
pub use tls::{TlsClients, trust_anchors, unverified};
