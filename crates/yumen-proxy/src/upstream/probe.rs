//! Active checks: probes of endpoints, on the control runtime and never on a worker.
//!
//! One checker runs per endpoint and check settings, shared by upstreams and snapshots. The rule that turns
//! observations into states is in `health`.

mod grpc;
mod report;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_base::{Counter, Gauge};
use yumen_snapshot::upstream::{Endpoint, EndpointHealth, HealthChecks};
use yumen_snapshot::{Snapshot, Upstream};

use crate::upstream::health::{HealthObservation, count_observation};
pub use report::{HealthMetrics, NodeCounter, NodeHealth, NodeStatus, UpstreamHealth, report, status_family};
use request::ProbeRequest;

/// The most probes at once, over all endpoints.
const PROBES_MAX: usize = 256;

/// First probes are spread over this time, or over the interval if that is shorter, so that those of many
/// endpoints do not coincide.
const SPREAD_MAX: Duration = Duration::from_secs(1);

/// The interval at which a checker notices that traffic has changed the state, and with it the probe
/// interval.
const LOOK: Duration = Duration::from_secs(1);

/// Time after a change in which further changes are collected.
const SETTLE: Duration = Duration::from_millis(20);

/// The shortest pause between probes of an endpoint, whatever the settings.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Counters of all checkers together.
#[derive(Debug, Default)]
pub struct ProbeCounters {
    checkers: Gauge,
    answered: Counter,
    failed: Counter,
    timed_out: Counter,
}

impl MetricSource for ProbeCounters {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let sample = |label: Option<(&'static str, &str)>, value: f64| MetricSeries {
            labels: label.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
            value: MetricValue::Number(value),
        };
        let count =
            |label, value: &str, counter: &Counter| sample(Some((label, value)), counter.get() as f64);
        out.push(MetricFamily {
            name: "yumen_health_checkers".into(),
            help: "Checkers running, one per endpoint and check settings.".into(),
            kind: MetricKind::Gauge,
            samples: vec![sample(None, self.checkers.get() as f64)],
        });
        out.push(MetricFamily {
            name: "yumen_health_probes_total".into(),
            help: "Active health probes, by outcome.".into(),
            kind: MetricKind::Counter,
            samples: vec![
                count("outcome", "answered", &self.answered),
                count("outcome", "failed", &self.failed),
                count("outcome", "timed_out", &self.timed_out),
            ],
        });
    }
}

/// Starts and stops checkers as the current snapshot requires.
pub struct Supervisor {
    /// The upstreams of the previous snapshot, by slot. Holding them keeps their addresses unique.
    seen: Vec<Option<Arc<Upstream>>>,
    /// By the address of the endpoint's health, which `seen` keeps alive. The address is only compared.
    checkers: HashMap<usize, Checker>,
    tasks: JoinSet<()>,
    permits: Arc<Semaphore>,
    counters: Arc<ProbeCounters>,
    random: RandomState,
}

struct Checker {
    task: AbortHandle,
    /// The number of endpoints that share the checker.
    users: usize,
}

impl Default for Supervisor {
    fn default() -> Self {
        Supervisor {
            seen: Vec::new(),
            checkers: HashMap::new(),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new(PROBES_MAX)),
            counters: Arc::default(),
            random: RandomState::new(),
        }
    }
}

impl Supervisor {
    /// The counters, for the status listener.
    pub fn counters(&self) -> Arc<ProbeCounters> {
        self.counters.clone()
    }

    /// Runs checkers for each snapshot received until the sender is dropped. Requires a tokio runtime with
    /// I/O and time. Dropping the future ends all checkers.
    pub async fn supervise(mut self, mut snapshots: watch::Receiver<Arc<Snapshot>>) {
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            self.reconcile(snapshot.upstreams().map(|(slot, upstream)| (slot.0 as usize, upstream)));
            // The snapshot must not stay alive during the wait for the next one.
            drop(snapshot);
            if snapshots.changed().await.is_err() {
                return;
            }
            // A pass compares all upstreams, so it must not run for each of a thousand changes per second.
            sleep(SETTLE).await;
        }
    }

    /// Compares upstreams by address and updates only the changed ones.
    fn reconcile<'u>(&mut self, upstreams: impl Iterator<Item = (usize, &'u Arc<Upstream>)>) {
        let mut removed: Vec<Arc<Upstream>> = Vec::new();
        let mut next = 0;
        for (slot, upstream) in upstreams {
            let skipped = next.min(self.seen.len())..slot.min(self.seen.len());
            removed.extend(self.seen[skipped].iter_mut().filter_map(Option::take));
            next = slot + 1;
            if self.seen.len() < next {
                self.seen.resize(next, None);
            }
            if self.seen[slot].as_ref().is_some_and(|before| Arc::ptr_eq(before, upstream)) {
                continue;
            }
            removed.extend(self.seen[slot].replace(upstream.clone()));
            self.add(upstream);
        }
        removed.extend(self.seen.drain(next.min(self.seen.len())..).flatten());
        // Removals come last, so that a checker whose endpoint only moved continues.
        for upstream in removed {
            self.remove(&upstream);
        }
        // A `JoinSet` keeps aborted tasks until they are joined.
        while self.tasks.try_join_next().is_some() {}
        self.counters.checkers.set(self.checkers.len() as i64);
    }

    fn add(&mut self, upstream: &Arc<Upstream>) {
        let Some(checks) = &upstream.checks else { return };
        for endpoint in &upstream.endpoints {
            let Some(health) = &endpoint.health else { continue };
            if let Some(checker) = self.checkers.get_mut(&address(health)) {
                checker.users += 1;
                continue;
            }
            let watch = self.watch(upstream, checks, endpoint, health);
            let task = self.tasks.spawn(watch.run());
            self.checkers.insert(address(health), Checker { task, users: 1 });
        }
    }

    fn watch(
        &self,
        upstream: &Upstream,
        checks: &Arc<HealthChecks>,
        endpoint: &Endpoint,
        health: &Arc<EndpointHealth>,
    ) -> Watch {
        Watch {
            request: ProbeRequest::new(&checks.active, endpoint, &upstream.tls.settings),
            endpoint: endpoint.addr,
            origin: upstream.origin.clone(),
            health: health.clone(),
            checks: checks.clone(),
            permits: self.permits.clone(),
            counters: self.counters.clone(),
            lot: self.random.hash_one(address(health)) as u32,
        }
    }

    fn remove(&mut self, upstream: &Upstream) {
        if upstream.checks.is_none() {
            return;
        }
        for health in upstream.endpoints.iter().filter_map(|endpoint| endpoint.health.as_ref()) {
            let Some(checker) = self.checkers.get_mut(&address(health)) else { continue };
            checker.users -= 1;
            if checker.users == 0 {
                checker.task.abort();
                self.checkers.remove(&address(health));
            }
        }
    }
}

fn address(health: &Arc<EndpointHealth>) -> usize {
    Arc::as_ptr(health) as usize
}

/// The task of one checker.
struct Watch {
    request: ProbeRequest,
    endpoint: std::net::SocketAddr,
    /// The name of the first upstream with the endpoint, for logs.
    origin: Arc<str>,
    health: Arc<EndpointHealth>,
    checks: Arc<HealthChecks>,
    permits: Arc<Semaphore>,
    counters: Arc<ProbeCounters>,
    /// A random number that decides the time of the first probe.
    lot: u32,
}

impl Watch {
    async fn run(self) {
        let spread = self.interval().min(SPREAD_MAX);
        sleep(spread.mul_f64(f64::from(self.lot) / f64::from(u32::MAX))).await;
        while let Ok(permit) = self.permits.acquire().await {
            let seen = self.request.send(self.checks.active.timeout_ms).await;
            drop(permit);
            self.conclude(seen);
            let started = Instant::now();
            while let Some(left) =
                self.interval().checked_sub(started.elapsed()).filter(|left| !left.is_zero())
            {
                sleep(left.min(LOOK)).await;
            }
        }
    }

    fn interval(&self) -> Duration {
        let active = &self.checks.active;
        let up = self.health.is_up();
        let interval_ms = if up { active.healthy_interval_ms } else { active.unhealthy_interval_ms };
        Duration::from_millis(interval_ms).max(PAUSE_MIN)
    }

    fn conclude(&self, seen: HealthObservation) {
        let counter = match seen {
            HealthObservation::TcpFailure | HealthObservation::Malformed => &self.counters.failed,
            HealthObservation::Timeout => &self.counters.timed_out,
            HealthObservation::Status(_) | HealthObservation::Connected => &self.counters.answered,
        };
        counter.add_shared(1);
        let rule = (&self.checks.active).into();
        if let Some(up) = count_observation(&self.health, &self.health.active, &rule, seen) {
            let (endpoint, upstream) = (self.endpoint, &self.origin);
            tracing::info!(%endpoint, %upstream, up, ?seen, "endpoint health changed by an active check");
        }
    }
}
