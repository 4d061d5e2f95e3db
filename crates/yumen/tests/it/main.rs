//! The real binary on real sockets: every promise that can be seen from outside, one test each.
//!
//! Needs nginx, curl and openssl (`scripts/deps.sh test`); knows no crate of the gateway.

// A helper that cannot go on says where by its panic.
#![allow(clippy::unwrap_used)]

mod harness;

mod abuse;
mod access_log;
mod balancing;
mod cli;
mod drain;
mod dynamics;
mod embedded;
mod explain;
mod guides;
mod health;
mod import;
mod l4;
mod limits;
mod node;
mod observe;
mod operators;
mod plugins;
mod proxying;
mod routing;
mod soak;
mod streams;
mod tls;
mod upstream_tls;
