//! Records of traffic: counters, the access log, and observations from sampled requests (cost of plugins,
//! usage of routes and upstreams, recent requests).
//!
//! Must not depend on connections, workers or exchanges in progress.
//!
//! Each worker writes its own `WorkerObservations`; the status listener reads all of them. The lock between
//! the two is taken for sampled requests only, and a worker never waits for it.

pub mod access_log;
pub(crate) mod all_counters;
pub(crate) mod call_counters;
pub(crate) mod counters;
mod durations;
#[cfg(test)]
mod ended_exchange;
mod exemplars;
mod explain;
pub(crate) mod log_suppression;
pub(crate) mod otlp_record;
mod recent;
mod sampler;
pub(crate) mod sink_buffers;
mod stopwatch;
mod table;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, TryLockError};

use yumen_plugin::{ExchangeOutcome, PluginTiming};

pub(crate) use explain::explain;
pub use recent::RecentRequest;
pub(crate) use sampler::RequestSampler;
pub(crate) use stopwatch::ExchangeStopwatch;
pub(crate) use table::{UsageRow, UsageTable, UsageTotals};

/// The observations of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerObservations(Mutex<UsageTables>);

/// Usage tables by id, and the recent requests.
#[derive(Debug, Default)]
pub(crate) struct UsageTables {
    pub(crate) total: UsageTotals,
    pub(crate) routes: UsageTable,
    pub(crate) upstreams: UsageTable,
    pub(crate) plugins: UsageTable,
    pub(crate) consumers: UsageTable,
    pub(crate) recent: VecDeque<RecentRequest>,
}

/// An ended exchange that was sampled.
pub(crate) struct SampledExchange<'a> {
    /// Number of requests that the sample represents.
    pub(crate) weight: u32,
    /// Time from the complete request head to the end, in nanoseconds.
    pub(crate) total_ns: u64,
    /// Share of that time in which the worker ran the exchange.
    pub(crate) busy_ns: u64,
    /// Time from the choice of an endpoint to the end of its response, if an endpoint was chosen.
    pub(crate) upstream_ns: Option<u64>,
    pub(crate) outcome: &'a ExchangeOutcome<'a>,
    /// Id and name of the route.
    pub(crate) route: Option<(&'a str, &'a str)>,
    pub(crate) upstream: Option<&'a str>,
    pub(crate) consumer: Option<&'a str>,
    pub(crate) plugins: &'a [PluginTiming],
    pub(crate) recent: RecentRequest,
    /// Maximum number of recent requests; 0 stores none.
    pub(crate) recent_max: usize,
}

impl WorkerObservations {
    /// Records an exchange; false, without waiting, if a reader has the lock.
    pub(crate) fn note(&self, seen: SampledExchange<'_>) -> bool {
        let mut tables = match self.0.try_lock() {
            Ok(tables) => tables,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        tables.note(seen);
        true
    }

    /// Calls `look` with the tables while the lock is held.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&UsageTables) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl UsageTables {
    fn note(&mut self, seen: SampledExchange<'_>) {
        let weight = u64::from(seen.weight);
        seen.add_to(&mut self.total, seen.total_ns);
        if let Some((id, name)) = seen.route {
            seen.add_to(self.routes.at(id, name), seen.total_ns);
        }
        if let (Some(origin), Some(upstream_ns)) = (seen.upstream, seen.upstream_ns) {
            seen.add_to(self.upstreams.at(origin, ""), upstream_ns);
        }
        if let Some(username) = seen.consumer {
            seen.add_to(self.consumers.at(username, ""), seen.total_ns);
        }
        for (at, ran) in seen.plugins.iter().enumerate() {
            let usage = self.plugins.at(ran.name, "");
            usage.busy_ns += ran.run_ns * weight;
            usage.wait_ns += ran.wait_ns * weight;
            if ran.answered {
                usage.answers += weight;
                usage.errors += if seen.outcome.status >= 500 { weight } else { 0 };
            }
            // A plugin counts once per request, at its first phase.
            if !seen.plugins[..at].iter().any(|before| before.name == ran.name) {
                let phases = seen.plugins.iter().filter(|one| one.name == ran.name);
                usage.requests += weight;
                usage.durations.add(phases.map(|one| one.run_ns + one.wait_ns).sum(), weight);
            }
        }
        self.push_recent(seen.recent, seen.recent_max);
    }

    fn push_recent(&mut self, request: RecentRequest, recent_max: usize) {
        if recent_max == 0 {
            return;
        }
        while self.recent.len() >= recent_max {
            self.recent.pop_front();
        }
        self.recent.push_back(request);
    }

    /// Adds the tables of another worker, without its recent requests.
    pub(crate) fn merge(&mut self, other: &UsageTables) {
        self.total.merge(&other.total);
        self.routes.merge(&other.routes);
        self.upstreams.merge(&other.upstreams);
        self.plugins.merge(&other.plugins);
        self.consumers.merge(&other.consumers);
    }
}

impl SampledExchange<'_> {
    fn add_to(&self, usage: &mut UsageTotals, duration_ns: u64) {
        let weight = u64::from(self.weight);
        usage.requests += weight;
        usage.errors += if self.outcome.status >= 500 { weight } else { 0 };
        usage.answers += if self.plugins.iter().any(|ran| ran.answered) { weight } else { 0 };
        usage.busy_ns += self.busy_ns * weight;
        usage.wait_ns += self.upstream_ns.unwrap_or(0) * weight;
        usage.received_bytes += self.outcome.received_bytes * weight;
        usage.sent_bytes += self.outcome.sent_bytes * weight;
        usage.durations.add(duration_ns, weight);
    }
}

#[cfg(test)]
mod tests;
