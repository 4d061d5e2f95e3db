//! The client side of a Kubernetes API server: reads, lists, watches and writes of objects as raw JSON, a lease for
//! leader election, and a writer of statuses.
//!
//! Independent of the meaning of objects: kinds are data ([`WatchTarget`]), objects are JSON texts with a lean head
//! ([`RawObject`]). Transport, TLS, kubeconfig, service account tokens and exec credentials come from `kube-client`.

mod client;
mod error;
mod json_slice;
mod kind;
mod lease;
mod line_stream;
mod object;
mod server_config;
#[cfg(test)]
mod simulation;
mod status_writer;
mod watch_backoff;
mod watch_machine;
mod watch_task;

pub use client::{ApiClient, ObjectPatch, PatchMethod, ServedKind};
pub use error::{ApiError, ApiVerb};
pub use kind::WatchTarget;
pub use lease::{LeaseElection, LeaseSettings, LeaseView};
pub use line_stream::LineStream;
pub use object::{ObjectAddress, RawObject, RawObjectChange};
pub use server_config::ApiServerConfig;
pub use status_writer::{StatusDecider, StatusReport, StatusWrite, StatusWriter};
pub use watch_machine::{WatchInput, WatchMachine, WatchOutput, WatchStep};
pub use watch_task::{KindHealth, WatchReport, WatchSet, WatchStage};
