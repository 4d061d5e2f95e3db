//! The real binary on real sockets: one test for each promise that is visible from outside.
//!
//! Requires nginx, curl and openssl (`scripts/deps.sh test`). The only crates of the workspace in use are the
//! load generator and the test support.

// A panic in a helper already shows its location.
#![allow(clippy::unwrap_used)]

mod harness;

mod abuse;
mod abuse_resources;
mod abuse_smuggling;
mod access_log;
mod acme;
mod admin_client_certificates;
mod balancing;
mod body_inspection;
mod broken_bodies;
mod broken_ends;
mod cli;
mod client_certificates;
mod clients_that_leave;
mod cluster;
mod cluster_history;
mod compression;
mod cut_answers;
mod datagrams;
mod discovery;
mod documented_requests;
mod drain;
mod dynamics;
mod embedded;
mod endpoints;
mod error_output;
mod etcd;
mod explain;
mod first_publication;
mod forward_auth;
mod grpc;
mod grpc_retries;
mod grpc_transcode;
mod grpc_web;
mod guides;
mod health;
mod held_back;
mod http2;
mod http2_abuse;
mod http2_connecting;
mod http2_patience;
mod http2_windows;
mod http3;
mod http3_ends;
mod http3_frames;
mod http3_heads;
mod http3_moves;
mod import;
mod import_plugins;
mod killed;
mod l4;
mod limits;
mod listeners;
mod long_bodies;
mod looking_into_bodies;
mod missing_guards;
mod mqtt;
mod node;
mod observe;
mod operators;
mod partitions;
mod plugin_framing;
mod plugins;
mod protection;
mod protection_node;
mod protocol_changes;
mod proxying;
mod redis_limits;
mod refused_clients;
mod routing;
mod secrets;
mod sent_fields;
mod slow_readers;
mod slow_writers;
mod soak;
mod stalled_logs;
mod staples;
mod stream_ends;
mod streams;
mod tls;
mod traffic;
mod unread_answers;
mod upgrade;
mod upstream_names;
mod upstream_records;
mod upstream_tls;
mod without_effect;
