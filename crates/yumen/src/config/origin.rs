//! Origin of the active configuration (store or last good state), and the lag behind the cluster.
//!
//! Reads the status of a store; opens and repairs nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use yumen_base::Problem;
use yumen_base::metric::{self, MetricFamily, MetricKind, MetricSeries, MetricSource};
use yumen_config::Kind;
use yumen_store::etcd::EtcdStatus;
use yumen_store::last_good::damage_problem;
use yumen_store::{EtcdStore, FallbackStore, StateOrigin, Store, StoreState};

use crate::control::{ControlMessage, ProblemSource};
use crate::kubernetes::KubernetesStatus;

/// Interval of checks whether the open store is still the one in the data directory.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Handle from which the origin is read.
#[derive(Clone)]
pub(crate) enum ConfigSource {
    /// A resource file, or the resources of a command.
    File,
    /// The embedded store.
    Embedded(Arc<FallbackStore>),
    /// An etcd cluster.
    Etcd(Arc<EtcdStore>),
    /// The API server of a Kubernetes cluster.
    Kubernetes(Arc<KubernetesStatus>),
}

impl ConfigSource {
    pub(crate) fn origin(&self) -> StateOrigin {
        match self {
            ConfigSource::File => StateOrigin::Store,
            ConfigSource::Kubernetes(status) => status.origin(),
            ConfigSource::Embedded(fallback) => fallback.status(),
            ConfigSource::Etcd(store) => store.status().origin,
        }
    }

    /// Reports problems of an embedded store: failing writes, a deleted file, or an incomplete last good
    /// state. Other stores report their own.
    pub(crate) async fn watch_over(self, messages: Sender<ControlMessage>) {
        let ConfigSource::Embedded(fallback) = self else { return };
        loop {
            // Fails only if the process is ending and the control thread with it.
            let _ = messages.send(ControlMessage::Problems(ProblemSource::Store, problems_of(&fallback)));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether the process has begun to end and accepts connections only until load balancers have left it.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self, ConfigSource::Kubernetes(status) if status.is_ending.load(Ordering::Relaxed))
    }

    fn cluster(&self) -> Option<EtcdStatus> {
        match self {
            ConfigSource::Etcd(store) => Some(store.status()),
            _ => None,
        }
    }

    /// Members of `/status` about the origin.
    pub(crate) fn document(&self) -> Map<String, Value> {
        let mut members = Map::new();
        match self.origin() {
            StateOrigin::Store => drop(members.insert("config_source".into(), json!("store"))),
            StateOrigin::LastGood { reason, since, damage } => {
                members.insert("config_source".into(), json!("last_good"));
                members.insert("config_source_reason".into(), json!(reason));
                members.insert("config_source_since_unix_ms".into(), json!(unix_ms(since)));
                if let Some(damage) = damage {
                    members.insert("config_source_damage".into(), json!(damage));
                }
            }
        }
        if let Some(cluster) = self.cluster() {
            members.insert("store".into(), shown(&cluster));
        }
        if let ConfigSource::Kubernetes(status) = self {
            members.insert("store".into(), status.document());
        }
        members
    }
}

fn problems_of(store: &FallbackStore) -> Vec<Problem> {
    let damage = match store.status() {
        StateOrigin::LastGood { damage, .. } => damage,
        StateOrigin::Store => None,
    };
    refusal(store).into_iter().chain(damage.as_deref().map(damage_problem)).collect()
}

/// Reason why writes fail or would be lost.
fn refusal(store: &FallbackStore) -> Option<Problem> {
    let unavailable = store.check().err().map(|error| Problem::error("store", "", error.to_string()));
    let failed = || {
        let hint = match store.status() {
            StateOrigin::Store => "reported until a write succeeds",
            StateOrigin::LastGood { .. } => "the gateway keeps trying to open it",
        };
        Some(Problem::error("store", "", format!("writes fail: {}", store.failure()?)).hint(hint))
    };
    unavailable.or_else(failed)
}

fn shown(cluster: &EtcdStatus) -> Value {
    json!({
        "kind": "etcd",
        "connected": cluster.error.is_none(),
        "endpoint": cluster.endpoint.as_deref(),
        "error": cluster.error,
        "staleness_seconds": (cluster.staleness.as_secs_f64() * 1e3).round() / 1e3,
        "cluster_revision": cluster.cluster_revision,
        "lag_revisions": cluster.lag_revisions,
        "held_deletions": cluster.held,
    })
}

impl MetricSource for ConfigSource {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let is_store = self.origin() == StateOrigin::Store;
        let sample = |source: &str, holds: bool| MetricSeries {
            labels: vec![("source", source.to_owned())],
            value: metric::MetricValue::Number(f64::from(u8::from(holds))),
        };
        out.push(MetricFamily {
            name: "yumen_config_source".into(),
            help: "1 for the source of the active configuration: the store, or the last good state while the store is unavailable."
                .into(),
            kind: MetricKind::Gauge,
            samples: vec![sample("store", is_store), sample("last_good", !is_store)],
        });
        match self {
            ConfigSource::File => {}
            ConfigSource::Kubernetes(status) => gather_kubernetes(status, out),
            ConfigSource::Embedded(store) => gather_writable(Some(store), out),
            ConfigSource::Etcd(store) => {
                let cluster = store.status();
                gather_cluster(Some(&cluster), out);
                out.push(modify_indexes(&store.state(), cluster.cluster_revision));
            }
        }
    }
}

/// Metric families of this module, without values of a cluster, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    ConfigSource::File.gather(out);
    gather_writable(None, out);
    gather_cluster(None, out);
    gather_kubernetes(&KubernetesStatus::new(String::new()), out);
    out.push(modify_indexes(&StoreState::default(), 0));
}

/// Label of the APISIX metric, with the kinds whose newest revision it shows.
const INDEXED: &[(&str, &[Kind])] = &[
    ("consumers", &[Kind::Consumers, Kind::Credentials]),
    ("global_rules", &[Kind::GlobalRules]),
    ("protos", &[Kind::Protos]),
    ("routes", &[Kind::Routes]),
    ("services", &[Kind::Services]),
    ("ssls", &[Kind::Ssls]),
    ("stream_routes", &[Kind::StreamRoutes]),
    ("upstreams", &[Kind::Upstreams]),
];

fn modify_indexes(state: &StoreState, cluster_revision: u64) -> MetricFamily {
    let newest = |kinds: &[Kind]| {
        let entries = kinds.iter().flat_map(|kind| state.of_kind(*kind));
        entries.map(|(_, entry)| entry.modified.0).max().unwrap_or(0)
    };
    let mut indexes: Vec<(&str, u64)> = INDEXED.iter().map(|(key, kinds)| (*key, newest(kinds))).collect();
    let max = indexes.iter().map(|(_, index)| *index).max().unwrap_or(0);
    indexes.extend([("max_modify_index", max), ("x_etcd_index", cluster_revision)]);
    let sample = |(key, index): (&str, u64)| MetricSeries {
        labels: vec![("key", key.to_owned())],
        value: metric::MetricValue::Number(index as f64),
    };
    MetricFamily {
        name: "apisix_etcd_modify_indexes".into(),
        help: "Newest revision of the cluster that changed an object, by kind; `x_etcd_index` is that of the cluster."
            .into(),
        kind: MetricKind::Gauge,
        samples: indexes.into_iter().map(sample).collect(),
    }
}

fn gather_kubernetes(status: &KubernetesStatus, out: &mut Vec<MetricFamily>) {
    for (name, help, value) in status.gauges() {
        let samples = vec![MetricSeries { labels: Vec::new(), value: metric::MetricValue::Number(value) }];
        out.push(MetricFamily { name: name.into(), help: help.into(), kind: MetricKind::Gauge, samples });
    }
}

fn gather_writable(store: Option<&Arc<FallbackStore>>, out: &mut Vec<MetricFamily>) {
    let value = |store: &Arc<FallbackStore>| {
        metric::MetricValue::Number(f64::from(u8::from(refusal(store).is_none())))
    };
    let sample = |store| MetricSeries { labels: Vec::new(), value: value(store) };
    out.push(MetricFamily {
        name: "yumen_store_writable".into(),
        help: "Whether the local store is open and its last write succeeded.".into(),
        kind: MetricKind::Gauge,
        samples: store.map(sample).into_iter().collect(),
    });
}

fn gather_cluster(cluster: Option<&EtcdStatus>, out: &mut Vec<MetricFamily>) {
    let mut gauge = |name: &'static str, help: &'static str, read: fn(&EtcdStatus) -> f64| {
        let sample =
            |cluster| MetricSeries { labels: Vec::new(), value: metric::MetricValue::Number(read(cluster)) };
        let samples = cluster.map(sample).into_iter().collect();
        out.push(MetricFamily { name: name.into(), help: help.into(), kind: MetricKind::Gauge, samples });
    };
    gauge(
        "apisix_etcd_reachable",
        "The same as `yumen_store_connected`, by the name of APISIX.",
        |cluster| f64::from(u8::from(cluster.error.is_none())),
    );
    gauge("yumen_store_connected", "Whether the etcd watch is connected.", |cluster| {
        f64::from(u8::from(cluster.error.is_none()))
    });
    gauge(
        "yumen_store_staleness_seconds",
        "Time since the node was last in step with the cluster.",
        |cluster| cluster.staleness.as_secs_f64(),
    );
    gauge("yumen_store_cluster_revision", "Newest cluster revision known to the node.", |cluster| {
        cluster.cluster_revision as f64
    });
    gauge(
        "yumen_store_lag_revisions",
        "Cluster revisions not received yet; revisions of unrelated keys count.",
        |cluster| cluster.lag_revisions as f64,
    );
    gauge(
        "yumen_store_held_deletions",
        "Deleted objects that stay active until the deletion is confirmed.",
        |cluster| cluster.held as f64,
    );
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
