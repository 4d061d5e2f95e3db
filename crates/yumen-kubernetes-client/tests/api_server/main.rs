//! The client over TLS and sockets against an API server in the test, and against a real one if its programs exist.
#![allow(clippy::unwrap_used)]

mod cluster;
mod election;
mod requests;
mod server;
mod statuses;
mod watches;
