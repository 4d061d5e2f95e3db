//! Series of a worker: lookup, counting and retirement.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::{FixedState, RandomState};
use yumen_base::{Counter, Histogram};
use yumen_plugin::ExchangeOutcome;

use super::export::DisabledLabels;

/// Most series of a worker; further labels are folded into `other`.
pub(super) const SERIES_MAX: usize = 20_000;

/// Value of folded labels.
const OTHER: &str = "other";

/// Upper bounds of the latency buckets in microseconds, 1 ms to 60 s as in APISIX.
const BOUNDS_US: &[u64] = &[
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000,
];

/// The source of streams, which have their own metric families.
pub(super) const STREAM: &str = "stream";

/// The labels of one exchange; `node` is `None` if no endpoint was chosen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeriesLabels<'a> {
    pub(super) status: u16,
    pub(super) source: &'static str,
    pub(super) route: &'a str,
    pub(super) service: &'a str,
    pub(super) matched_uri: &'a str,
    pub(super) matched_host: &'a str,
    pub(super) consumer: &'a str,
    pub(super) node: Option<IpAddr>,
}

impl SeriesLabels<'_> {
    fn hash(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        // The length stands for the source: a collision costs a comparison only, see [`SeriesTable::seek`].
        hasher.write_u32(u32::from(self.status) << 8 | self.source.len() as u32);
        match self.node {
            None => hasher.write_u8(0),
            Some(IpAddr::V4(ip)) => hasher.write_u32(ip.to_bits()),
            Some(IpAddr::V6(ip)) => hasher.write_u128(ip.to_bits()),
        }
        for text in [self.route, self.service, self.matched_uri, self.matched_host, self.consumer] {
            hasher.write(text.as_bytes());
        }
        hasher.finish()
    }

    fn folded(&self) -> SeriesLabels<'static> {
        SeriesLabels {
            status: self.status,
            source: self.source,
            route: OTHER,
            service: OTHER,
            matched_uri: OTHER,
            matched_host: OTHER,
            consumer: OTHER,
            node: None,
        }
    }
}

/// The counters of one worker under one set of labels.
pub(super) struct WorkerSeries {
    pub(super) status: u16,
    pub(super) source: &'static str,
    pub(super) route: Box<str>,
    pub(super) service: Box<str>,
    pub(super) matched_uri: Box<str>,
    pub(super) matched_host: Box<str>,
    pub(super) consumer: Box<str>,
    pub(super) node: Option<IpAddr>,
    pub(super) requests: Counter,
    pub(super) received_bytes: Counter,
    pub(super) sent_bytes: Counter,
    /// Latencies in microseconds: of the request, of the upstream, and their difference.
    pub(super) latency_us: [Histogram; 3],
    /// Time of the last write in seconds since the Unix epoch.
    used_s: AtomicU64,
    /// Not exported any more; the worker creates a new series at the next use.
    retired: AtomicBool,
}

impl WorkerSeries {
    fn new(labels: &SeriesLabels<'_>) -> WorkerSeries {
        WorkerSeries {
            status: labels.status,
            source: labels.source,
            route: labels.route.into(),
            service: labels.service.into(),
            matched_uri: labels.matched_uri.into(),
            matched_host: labels.matched_host.into(),
            consumer: labels.consumer.into(),
            node: labels.node,
            requests: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            latency_us: std::array::from_fn(|_| Histogram::new(BOUNDS_US)),
            used_s: AtomicU64::new(0),
            retired: AtomicBool::new(false),
        }
    }

    fn labels(&self) -> SeriesLabels<'_> {
        SeriesLabels {
            status: self.status,
            source: self.source,
            route: &self.route,
            service: &self.service,
            matched_uri: &self.matched_uri,
            matched_host: &self.matched_host,
            consumer: &self.consumer,
            node: self.node,
        }
    }

    fn is(&self, labels: &SeriesLabels<'_>) -> bool {
        self.status == labels.status
            && self.source == labels.source
            && self.node == labels.node
            && *self.route == *labels.route
            && *self.service == *labels.service
            && *self.matched_uri == *labels.matched_uri
            && *self.matched_host == *labels.matched_host
            && *self.consumer == *labels.consumer
    }

    fn record(&self, outcome: &ExchangeOutcome<'_>, now_s: u64) {
        self.requests.add(1);
        self.received_bytes.add(outcome.received_bytes);
        self.sent_bytes.add(outcome.sent_bytes);
        let [request, upstream, rest] = &self.latency_us;
        request.observe(outcome.duration_us);
        if let Some(upstream_us) = outcome.upstream_us {
            upstream.observe(upstream_us);
        }
        rest.observe(outcome.duration_us.saturating_sub(outcome.upstream_us.unwrap_or(0)));
        self.used_s.store(now_s, Relaxed);
    }
}

/// The series of a worker by the hash of their labels. A collision moves to the next free number.
struct SeriesTable {
    metrics: u64,
    series: HashMap<u64, Arc<WorkerSeries>, RandomState>,
    retirements_seen: u64,
}

thread_local! {
    static TABLE: RefCell<Option<SeriesTable>> = const { RefCell::new(None) };
}

/// The metrics of all workers.
pub struct PrometheusMetrics {
    /// Distinguishes these metrics from earlier ones in the tables of workers.
    id: u64,
    all: Mutex<Vec<Arc<WorkerSeries>>>,
    retirements: AtomicU64,
    disabled: Mutex<Arc<DisabledLabels>>,
}

impl Default for PrometheusMetrics {
    fn default() -> PrometheusMetrics {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        PrometheusMetrics {
            id: NEXT.fetch_add(1, Relaxed),
            all: Mutex::default(),
            retirements: AtomicU64::new(0),
            disabled: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PrometheusMetrics {
    /// Counts one exchange on the current worker.
    pub(super) fn record(&self, labels: &SeriesLabels<'_>, outcome: &ExchangeOutcome<'_>, now_s: u64) {
        TABLE.with_borrow_mut(|slot| {
            // The table may belong to metrics that were dropped while no plugin used them.
            if slot.as_ref().is_none_or(|table| table.metrics != self.id) {
                *slot =
                    Some(SeriesTable { metrics: self.id, series: HashMap::default(), retirements_seen: 0 });
            }
            let table = slot.as_mut().expect("it was just put there");
            table.find(self, labels).record(outcome, now_s);
        });
    }

    /// Drops series without a write since `before_s`, in seconds since the Unix epoch, such as those of
    /// removed routes. Returns their number. A series that reappears starts at zero, as after a restart.
    pub fn retire(&self, before_s: u64) -> usize {
        let mut all = lock(&self.all);
        let before = all.len();
        all.retain(|series| {
            let stays = series.used_s.load(Relaxed) >= before_s;
            // The worker that owns the series checks the flag and creates a new series.
            series.retired.store(!stays, Relaxed);
            stays
        });
        let retired = before - all.len();
        self.retirements.fetch_add(retired as u64, Relaxed);
        retired
    }

    pub(super) fn disable(&self, labels: DisabledLabels) {
        *lock(&self.disabled) = Arc::new(labels);
    }

    pub(super) fn disabled(&self) -> Arc<DisabledLabels> {
        lock(&self.disabled).clone()
    }

    /// All series, cloned so that the export does not block workers.
    pub(super) fn all(&self) -> Vec<Arc<WorkerSeries>> {
        lock(&self.all).clone()
    }
}

impl SeriesTable {
    fn find(&mut self, metrics: &PrometheusMetrics, labels: &SeriesLabels<'_>) -> &WorkerSeries {
        let key = match self.seek(labels) {
            (key, true) => key,
            (key, false) => self.add(metrics, labels, key),
        };
        &self.series[&key]
    }

    /// The key of the series with these labels, and whether it exists and is not retired.
    fn seek(&self, labels: &SeriesLabels<'_>) -> (u64, bool) {
        let mut key = labels.hash();
        loop {
            match self.series.get(&key) {
                None => return (key, false),
                Some(series) if series.is(labels) => return (key, !series.retired.load(Relaxed)),
                // Another series has this hash: try the next key.
                Some(_) => key = key.wrapping_add(1),
            }
        }
    }

    #[cold]
    fn add(&mut self, metrics: &PrometheusMetrics, labels: &SeriesLabels<'_>, mut key: u64) -> u64 {
        let retirements = metrics.retirements.load(Relaxed);
        // Only a new series pays for the removal of retired ones.
        if self.retirements_seen != retirements {
            self.retirements_seen = retirements;
            self.drop_retired();
            key = self.seek(labels).0;
        }
        let mut labels = *labels;
        // Beyond the bound, all other labels are folded into one series per status and source.
        if self.series.len() >= SERIES_MAX {
            labels = labels.folded();
            let (folded, found) = self.seek(&labels);
            if found {
                return folded;
            }
            key = folded;
        }
        let series = Arc::new(WorkerSeries::new(&labels));
        lock(&metrics.all).push(series.clone());
        self.series.insert(key, series);
        key
    }

    fn drop_retired(&mut self) {
        // Every series is inserted again, because removals would break the search for colliding hashes.
        for (_, series) in std::mem::take(&mut self.series) {
            if !series.retired.load(Relaxed) {
                let key = self.seek(&series.labels()).0;
                self.series.insert(key, series);
            }
        }
    }
}
