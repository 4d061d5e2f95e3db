//! The data plane: workers, listeners, TLS, connections, exchanges, forwarding, health.
//!
//! This crate serves from a snapshot. It must not know stores, the Admin API or any concrete plugin.
//!
//! Each folder has one subject. A folder may depend on those after it in this list, never on those
//! before it: `run`, `listen`, `downstream` and `l4`, `exchange`, `worker`, `upstream`, `copy`, `tls`,
//! `transport`, `observe`, `settings`, `runtime`. The files `fault`, `grpc`, `debug` and `sys` depend on none
//! of them, and any may use them.

mod copy;
mod downstream;
mod exchange;
mod grpc;
mod l4;
mod listen;
mod observe;
mod runtime;
#[cfg(test)]
mod simulation;
mod sys;
mod transport;
mod upstream;
mod worker;

pub mod debug;
pub mod fault;
pub mod run;
pub mod settings;
pub mod tls;

pub use l4::udp::{Datagrams, bind as bind_datagrams, bind_more as bind_more_datagrams};
pub use listen::dynamic::{
    CommandConfirmation, CommandReceipt, DynamicListener, ListenAddress, ListenTransport, ListenerCommand,
    WorkerListenSockets,
};
pub use listen::listener::{self, Listener};
pub use listen::quic::{
    DatagramForwarder, Http3HandoverSender, Http3Identity, Http3Listener, listen as listen_http3,
};
pub use observe::RecentRequest;
pub use observe::access_log;
pub use observe::all_counters::AllCounters;
pub use observe::counters::WorkerCounters;
pub use runtime::minimum_rate::MinimumRate;
pub use runtime::overload::OverloadSettings;
pub use runtime::worker_duty::WorkerDuty;
pub use runtime::{clock, huge_pages, malloc_trim};
pub use settings::{ListenerProtocol, ListenerSettings, StreamProtocol, WorkerSettings};
pub use upstream::{probe, protection};
pub use worker::WorkerParts;
