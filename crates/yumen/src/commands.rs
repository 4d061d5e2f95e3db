//! The commands other than `run`, each with its arguments. [`crate::cli`] lists them.
//!
//! `remote` and `client` talk to a running gateway; `offline` compiles a file, or Kubernetes manifests, in this process.

pub(crate) mod backup;
pub(crate) mod check;
mod client;
mod confirmation;
pub(crate) mod debug_token;
pub(crate) mod demo;
pub(crate) mod echo;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod keys;
pub(crate) mod lint;
pub(crate) mod manifest_args;
pub(crate) mod migrate;
pub(crate) mod offline;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod proxy;
pub(crate) mod reference;
pub(crate) mod remote;
pub(crate) mod revision_arg;
pub(crate) mod secrets;
mod session_dir;
pub(crate) mod top;
pub(crate) mod upgrade;
