//! Times of one exchange: of plugins by phase and of attempts. Explanations, samples and traces read them.

use std::net::SocketAddr;

use yumen_base::Now;

use crate::{Origin, Phase};

/// The time of a plugin in one phase.
#[derive(Debug, Clone)]
pub struct PluginTiming {
    /// Name of the plugin.
    pub name: &'static str,
    /// The phase.
    pub phase: Phase,
    /// The object with the settings of the plugin; recorded for explanations only.
    pub origin: Option<Origin>,
    /// Start of the first call in nanoseconds since the start of the exchange.
    pub started_ns: u64,
    /// Running time in nanoseconds.
    pub run_ns: u64,
    /// Waiting time in nanoseconds.
    pub wait_ns: u64,
    /// Whether the plugin responded.
    pub answered: bool,
}

/// The times of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptTiming {
    /// The endpoint.
    pub endpoint: SocketAddr,
    /// Start in nanoseconds since the start of the exchange.
    pub started_ns: u64,
    /// Time to connect; `None` for a pooled connection.
    pub connect_ns: Option<u64>,
    /// Time from the connection to the response head or the fault.
    pub head_ns: u64,
    /// The word of the fault; empty if the endpoint responded.
    pub fault: &'static str,
}

/// The times of one exchange.
#[derive(Debug, Clone, Default)]
pub struct ExchangeTimeline {
    /// The time at which the recording started, by the exact clock.
    pub started: Now,
    /// Plugins by phase, in the order of their first call.
    pub plugins: Vec<PluginTiming>,
    /// Attempts in their order.
    pub attempts: Vec<AttemptTiming>,
}
