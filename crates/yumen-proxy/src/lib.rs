//! The data plane: workers, listeners, TLS, connections, exchanges, forwarding, health.
//!
//! Knows the snapshot it serves from, and neither stores, nor the admin API, nor any concrete plugin.

mod all_counters;
mod apart;
mod backlog;
mod body;
mod body_edit;
mod buffer;
mod chains;

mod connection;
mod conversation;
mod counters;
mod date;
mod deadline;
mod desk;
mod direction;
mod disposition;
mod duty;
mod flow;
mod forward;
mod forwarded;
mod grpc;
mod host;
mod http2;
mod http3;
mod l4;
mod mirror;
mod observe;
mod offload_queue;
mod overload;
mod pace;
mod pinned_upstream;
mod proxied;
mod reply;
mod seat;
mod serve;
#[cfg(test)]
mod simulation;
mod splice;
mod stream;
mod sys;
mod task;
mod tcp;
mod telling;
mod ties;
mod timers;
mod transfer;
mod tunnel;
mod turn;
mod upstream;
mod wait;
mod wire;
mod worker;

pub mod access_log;
pub mod clock;
pub mod debug;
pub mod fault;
pub mod huge_pages;
pub mod listener;
pub mod memory;

pub mod protection;
pub mod run;
pub mod settings;
pub mod tls;

pub use all_counters::AllCounters;
pub use counters::Counters;
pub use duty::Duty;
pub use http3::{Http3Identity, Http3Leave, Http3Listener, Pipe, listen as listen_http3};
pub use l4::udp::{Datagrams, bind as bind_datagrams, bind_more as bind_more_datagrams};
pub use listener::Listener;
pub use observe::RecentRequest;
pub use overload::OverloadSettings;
pub use pace::Rate;
pub use settings::{ListenerSettings, Settings, StreamProtocol};
pub use upstream::probe;
pub use worker::WorkerParts;
