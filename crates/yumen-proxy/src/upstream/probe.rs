//! Active checks: asks endpoints whether they answer, on the control runtime and never on a worker.
//!
//! One checker runs per endpoint and check settings, however many upstreams and snapshots share
//! them. What an observation means is decided in `health`.

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

use crate::upstream::health::{HealthObservation, judge};
pub use report::{HealthMetrics, NodeCounter, NodeHealth, NodeStatus, UpstreamHealth, report, status_family};
use request::ProbeRequest;

/// Probes that run at once, of all endpoints together.
const PROBES_MAX: usize = 256;

/// First probes are spread over this time, or the interval where that is shorter, so that those of
/// many endpoints do not fall together.
const SPREAD_MAX: Duration = Duration::from_secs(1);

/// A checker looks this often whether traffic has changed the state, and with it the interval.
const LOOK: Duration = Duration::from_secs(1);

/// After a change, so long is waited for more of them.
const SETTLE: Duration = Duration::from_millis(20);

/// The shortest pause between probes, whatever the settings say.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// What checkers count, all of them together.
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

/// Keeps the checkers that the snapshot in force asks for.
pub struct Supervisor {
    /// The upstreams of the snapshot before, by slot: held, so that an address stands for one of them.
    seen: Vec<Option<Arc<Upstream>>>,
    /// By address of the health, which `seen` holds for as long; it is compared, never followed.
    checkers: HashMap<usize, Checker>,
    tasks: JoinSet<()>,
    permits: Arc<Semaphore>,
    counters: Arc<ProbeCounters>,
    random: RandomState,
}

struct Checker {
    task: AbortHandle,
    /// Endpoints of upstreams that share it.
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
    /// What the checkers count, for the status listener.
    pub fn counters(&self) -> Arc<ProbeCounters> {
        self.counters.clone()
    }

    /// Runs checkers for each snapshot sent, until the sender is gone; must be polled in a tokio
    /// runtime with network and time. Dropping the future ends all checkers.
    pub async fn supervise(mut self, mut snapshots: watch::Receiver<Arc<Snapshot>>) {
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            self.reconcile(snapshot.upstreams().map(|(slot, upstream)| (slot.0 as usize, upstream)));
            drop(snapshot);
            if snapshots.changed().await.is_err() {
                return;
            }
            // All upstreams are looked at: not for each of a thousand changes a second.
            sleep(SETTLE).await;
        }
    }

    /// Compares by address, and looks only into upstreams that changed.
    fn reconcile<'u>(&mut self, upstreams: impl Iterator<Item = (usize, &'u Arc<Upstream>)>) {
        let mut gone: Vec<Arc<Upstream>> = Vec::new();
        let mut next = 0;
        for (slot, upstream) in upstreams {
            let skipped = next.min(self.seen.len())..slot.min(self.seen.len());
            gone.extend(self.seen[skipped].iter_mut().filter_map(Option::take));
            next = slot + 1;
            if self.seen.len() < next {
                self.seen.resize(next, None);
            }
            if self.seen[slot].as_ref().is_some_and(|before| Arc::ptr_eq(before, upstream)) {
                continue;
            }
            gone.extend(self.seen[slot].replace(upstream.clone()));
            self.add(upstream);
        }
        gone.extend(self.seen.drain(next.min(self.seen.len())..).flatten());
        // Last, so that a checker whose endpoint only moved goes on.
        for upstream in gone {
            self.remove(&upstream);
        }
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
            question: ProbeRequest::new(&checks.active, endpoint, &upstream.tls),
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

/// One checker at work.
struct Watch {
    question: ProbeRequest,
    endpoint: std::net::SocketAddr,
    /// Of the upstream that named the endpoint first, for the log.
    origin: Arc<str>,
    health: Arc<EndpointHealth>,
    checks: Arc<HealthChecks>,
    permits: Arc<Semaphore>,
    counters: Arc<ProbeCounters>,
    /// Drawn once, decides when the first probe is.
    lot: u32,
}

impl Watch {
    async fn run(self) {
        let spread = self.interval().min(SPREAD_MAX);
        sleep(spread.mul_f64(f64::from(self.lot) / f64::from(u32::MAX))).await;
        while let Ok(permit) = self.permits.acquire().await {
            let seen = self.question.ask(self.checks.active.timeout_ms).await;
            drop(permit);
            self.conclude(seen);
            let asked = Instant::now();
            while let Some(left) = self.interval().checked_sub(asked.elapsed()).filter(|left| !left.is_zero())
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
        if let Some(up) = judge(&self.health, &self.health.active, &rule, seen) {
            let (endpoint, upstream) = (self.endpoint, &self.origin);
            tracing::info!(%endpoint, %upstream, up, ?seen, "endpoint health changed by an active check");
        }
    }
}
