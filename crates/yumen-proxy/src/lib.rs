//! The data plane: workers, listeners, TLS, connections, exchanges, forwarding, health.
//!
//! This crate serves from a snapshot. It must not know stores, the Admin API or any concrete plugin.

mod all_counters;
mod backlog;
mod body;
mod body_edit;
mod buffer;
mod chains;
mod cold_future;

mod client_wait;
mod connection;
mod counters;
mod date;
mod deadline;
mod disposition;
mod downstream;
mod exchange_handle;
mod exchange_stats;
mod exchange_task;
mod forward;
mod forwarded;
mod grpc;
mod http2;
mod http2_transport;
mod http3;
mod l4;
mod log_suppression;
mod minimum_rate;
mod mirror;
mod observe;
mod offload_queue;
mod one_way_copy;
mod overload;
mod pinned_upstream;
mod plugin_host;
mod proxied;
mod reply;
mod serve;
#[cfg(test)]
mod simulation;
mod splice;
mod stream;
mod sys;
mod task;
mod tcp;
mod timers;
mod transfer;
mod tunnel;
mod tunnel_binding;
mod turn_budget;
mod upstream;
mod worker;
mod worker_duty;

pub mod access_log;
pub mod clock;
pub mod debug;
pub mod fault;
pub mod huge_pages;
pub mod listener;
pub mod malloc_trim;

pub mod protection;
pub mod run;
pub mod settings;
pub mod tls;

pub use all_counters::AllCounters;
pub use counters::WorkerCounters;
pub use http3::{
    DatagramForwarder, Http3HandoverSender, Http3Identity, Http3Listener, listen as listen_http3,
};
pub use l4::udp::{Datagrams, bind as bind_datagrams, bind_more as bind_more_datagrams};
pub use listener::Listener;
pub use minimum_rate::MinimumRate;
pub use observe::RecentRequest;
pub use overload::OverloadSettings;
pub use settings::{ListenerProtocol, ListenerSettings, StreamProtocol, WorkerSettings};
pub use upstream::probe;
pub use worker::WorkerParts;
pub use worker_duty::WorkerDuty;
