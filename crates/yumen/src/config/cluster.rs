//! View of the nodes that share the store: the record of this node, lagging nodes, and their lag.
//!
//! Reads node records from the store, which owns their transport.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use yumen_admin::{ClusterView, NodeView};
use yumen_base::Problem;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::NodeConfig;
use yumen_store::etcd::{AnnouncedNode, EtcdStatus, MirrorPosition, NodeAnnouncement};
use yumen_store::{EtcdStore, StateOrigin, Store};

use super::origin::ConfigSource;
use crate::control::{ControlHandle, ControlMessage, ProblemSource};

/// Interval of lag checks without changes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Minimum pause between two lag checks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Minimum distance of recorded moments, and their maximum number.
const MOMENT_EVERY: Duration = Duration::from_millis(100);
const MOMENTS_MAX: usize = 4096;
/// Name of a node on a host without one.
const NAMELESS: &str = "yumen";

/// Record of a node in the store. Other nodes read it, possibly of other versions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct ClusterNodeRecord {
    name: String,
    version: String,
    addresses: BTreeMap<String, Vec<String>>,
    /// Revision of the store that all workers of the node serve.
    applied: u64,
    lag_revisions: u64,
    problems: u64,
    workers: u64,
    config_source: String,
    started_unix_ms: u64,
}

/// Properties of this node that do not change during its lifetime.
pub(crate) struct LocalNode {
    pub(crate) name: String,
    /// Addresses by listener type.
    pub(crate) addresses: BTreeMap<String, Vec<String>>,
    pub(crate) workers: usize,
}

/// Nodes that share a store.
pub(crate) struct NodeCluster {
    id: String,
    own: LocalNode,
    started_unix_ms: u64,
    source: ConfigSource,
    store: Arc<dyn Store>,
    control: ControlHandle,
    lease: Duration,
    drift: Duration,
    /// Times at which the newest revision first reached each value.
    moments: Mutex<VecDeque<(u64, Instant)>>,
    /// Never changes: for stores that no other node shares.
    quiet: watch::Sender<u64>,
}

impl NodeCluster {
    /// Creates the view for the opened `source`.
    pub(crate) fn new(
        node: &NodeConfig,
        own: LocalNode,
        source: ConfigSource,
        store: Arc<dyn Store>,
        control: ControlHandle,
    ) -> anyhow::Result<NodeCluster> {
        let id = match &source {
            ConfigSource::Etcd(store) => store.node_id()?,
            _ => own.name.clone(),
        };
        Ok(NodeCluster {
            id,
            own,
            started_unix_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |at| at.as_millis() as u64),
            source,
            store,
            control,
            lease: Duration::from_secs(node.store.etcd.lease_s.into()),
            drift: Duration::from_secs(node.store.etcd.drift_s.into()),
            moments: Mutex::default(),
            quiet: watch::Sender::new(0),
        })
    }

    /// Announces this node in etcd; `None` for stores that are not shared.
    pub(crate) fn announce(self: &Arc<NodeCluster>) -> Option<AnnouncedNode> {
        let ConfigSource::Etcd(store) = &self.source else { return None };
        // The store owns this closure: a strong reference would be a cycle that keeps the store open.
        let cluster = Arc::downgrade(self);
        let describe = move |position: MirrorPosition, status: &EtcdStatus| {
            let record = cluster.upgrade()?.record(position, status);
            Some(serde_json::to_string(&record).expect("a record is plain data"))
        };
        Some(store.announce(NodeAnnouncement {
            id: self.id.clone(),
            lease: self.lease,
            describe: Box::new(describe),
            applied: self.control.applied.clone(),
        }))
    }

    /// Reports lagging nodes as problems; never returns.
    pub(crate) async fn watch_over(self: Arc<NodeCluster>) {
        let (mut applied, mut moved) = (self.control.applied.clone(), self.moved());
        let mut ticks = interval(LOOK_EVERY);
        // Missed ticks of a suspended process need no catching up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = Vec::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = applied.changed() => {}
                Ok(()) = moved.changed() => {}
            }
            let problems = self.problems(&self.view());
            // The control thread receives changes only.
            if problems != reported {
                // Fails only if the process is ending and the control thread with it.
                let _ = self
                    .control
                    .messages
                    .send(ControlMessage::Problems(ProblemSource::Cluster, problems.clone()));
                reported = problems;
            }
            // Bounds the work when revisions arrive every few milliseconds.
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Current view of the nodes.
    pub(crate) fn view(&self) -> ClusterView {
        let mut view = match &self.source {
            ConfigSource::Etcd(store) => self.shared(store),
            ConfigSource::Embedded(_) => self.alone("embedded"),
            ConfigSource::File => self.alone("file"),
            ConfigSource::Kubernetes(_) => self.alone("kubernetes"),
        };
        let now = Instant::now();
        let mut moments = lock(&self.moments);
        record_moment(&mut moments, view.revision, now);
        for node in &mut view.nodes {
            node.lag_revisions = view.revision.saturating_sub(node.applied);
            node.lag_ms = if node.lag_revisions > 0 { lag_ms(&moments, node.applied, now) } else { 0 };
        }
        view.nodes.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        view.behind = view.nodes.iter().filter(|node| node.lag_revisions > 0).count();
        view
    }

    /// Notifies of changes in other nodes' records.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        match &self.source {
            ConfigSource::Etcd(store) => store.nodes_moved(),
            _ => self.quiet.subscribe(),
        }
    }

    fn shared(&self, store: &EtcdStore) -> ClusterView {
        let (position, status) = (store.position(), store.status());
        let mut nodes = BTreeMap::new();
        for (id, node) in store.nodes() {
            // A record that cannot be parsed, such as one of a newer version, is left out.
            if let Ok(record) = serde_json::from_str::<ClusterNodeRecord>(&node.text) {
                nodes.insert(id.to_string(), shown(&id, record, node.received.elapsed()));
            }
        }
        // The local record is newer than the copy in etcd.
        let mut own = shown(&self.id, self.record(position, &status), Duration::ZERO);
        own.is_self = true;
        nodes.insert(self.id.clone(), own);
        ClusterView {
            store: "etcd",
            connected: status.error.is_none(),
            age_ms: status.staleness.as_millis() as u64,
            revision: position.changed,
            behind: 0,
            nodes: nodes.into_values().collect(),
        }
    }

    fn alone(&self, store: &'static str) -> ClusterView {
        let revision = self.store.state().revision.0;
        let applied = self.control.applied.borrow().0;
        let source = if self.source.origin() == StateOrigin::Store { "store" } else { "last_good" };
        let mut own = shown(&self.id, self.record_at(applied, source), Duration::ZERO);
        own.is_self = true;
        ClusterView { store, connected: source == "store", age_ms: 0, revision, behind: 0, nodes: vec![own] }
    }

    fn record(&self, position: MirrorPosition, status: &EtcdStatus) -> ClusterNodeRecord {
        let source = if status.origin == StateOrigin::Store { "store" } else { "last_good" };
        // Records themselves create revisions, so the raw number would always trail (decision 29).
        let applied = position.reached(self.control.applied.borrow().0);
        let lag_revisions = position.changed.saturating_sub(applied);
        ClusterNodeRecord { lag_revisions, ..self.record_at(applied, source) }
    }

    fn record_at(&self, applied: u64, source: &str) -> ClusterNodeRecord {
        ClusterNodeRecord {
            name: self.own.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            addresses: self.own.addresses.clone(),
            applied,
            lag_revisions: 0,
            problems: self.control.status.problems().len() as u64,
            workers: self.own.workers as u64,
            config_source: source.into(),
            started_unix_ms: self.started_unix_ms,
        }
    }

    fn drifts(&self, node: &NodeView) -> bool {
        u128::from(node.lag_ms) > self.drift.as_millis()
    }

    fn problems(&self, view: &ClusterView) -> Vec<Problem> {
        let problem = |node: &NodeView| {
            let (name, id, seconds) = (&node.name, &node.id, self.drift.as_secs());
            Problem::warning(
                "cluster",
                "",
                format!("node {name} ({id}) has not applied the newest revision for more than {seconds} s"),
            )
            .hint("see GET /yumen/v1/cluster")
        };
        view.nodes.iter().filter(|node| self.drifts(node)).map(problem).collect()
    }
}

/// Configured node name, or else the host name.
pub(crate) fn node_name(node: &NodeConfig) -> String {
    let name = Some(node.store.etcd.node_name.clone()).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(crate::process::host_name);
    match name.trim() {
        "" => NAMELESS.into(),
        name => name.into(),
    }
}

fn shown(id: &str, record: ClusterNodeRecord, silence: Duration) -> NodeView {
    NodeView {
        id: id.to_owned(),
        name: record.name,
        version: record.version,
        addresses: record.addresses,
        applied: record.applied,
        lag_revisions: 0,
        lag_ms: 0,
        problems: record.problems,
        workers: record.workers,
        config_source: record.config_source,
        started_unix_ms: record.started_unix_ms,
        last_seen_ms: silence.as_millis() as u64,
        is_self: false,
    }
}

/// Records the time at which a revision was first seen. Revisions closer than `MOMENT_EVERY` share one
/// moment.
fn record_moment(moments: &mut VecDeque<(u64, Instant)>, revision: u64, now: Instant) {
    // The store may have been reset to an older revision: drop the moments after it.
    moments.retain(|(seen, _)| *seen <= revision);
    let is_news = moments
        .back()
        // A thousand revisions a second would fill the list in seconds.
        .is_none_or(|(seen, at)| *seen < revision && now.saturating_duration_since(*at) >= MOMENT_EVERY);
    if is_news {
        moments.push_back((revision, now));
    }
    if moments.len() > MOMENTS_MAX {
        moments.pop_front();
    }
}

/// Milliseconds since a revision newer than `applied` first appeared.
fn lag_ms(moments: &VecDeque<(u64, Instant)>, applied: u64, now: Instant) -> u64 {
    // The lag counts from the first newer revision: a node under constant writes is not behind by that alone.
    let first_newer = moments.partition_point(|(revision, _)| *revision <= applied);
    moments.get(first_newer).map_or(0, |(_, at)| now.saturating_duration_since(*at).as_millis() as u64)
}

impl MetricSource for NodeCluster {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        // Without a cluster the series would only be constants.
        if !matches!(self.source, ConfigSource::Etcd(_)) {
            return;
        }
        let view = self.view();
        let spread = view.nodes.iter().map(|node| node.lag_revisions).max().unwrap_or(0);
        let drifts = view.nodes.iter().any(|node| self.drifts(node));
        families(Some([view.nodes.len() as u64, view.behind as u64, spread, u64::from(drifts)]), out);
    }
}

/// Metric families of this module, without values, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    families(None, out);
}

fn families(values: Option<[u64; 4]>, out: &mut Vec<MetricFamily>) {
    let about = [
        ("yumen_cluster_nodes", "Live nodes that share the store, including this one."),
        ("yumen_cluster_nodes_behind", "Nodes that have not applied the newest revision."),
        (
            "yumen_cluster_revision_spread",
            "Revision lag of the slowest node; revisions of unrelated keys count.",
        ),
        ("yumen_cluster_drift", "1 if a node has lagged for longer than `store.etcd.drift_s`, else 0."),
    ];
    for (i, (name, help)) in about.into_iter().enumerate() {
        let sample = |values: [u64; 4]| MetricSeries {
            labels: Vec::new(),
            value: MetricValue::Number(values[i] as f64),
        };
        let samples = values.map(sample).into_iter().collect();
        out.push(MetricFamily { name: name.into(), help: help.into(), kind: MetricKind::Gauge, samples });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_behind_since_there_was_something_newer_than_what_it_serves() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut moments = VecDeque::new();
        // Revision 6 follows 5 by less than `MOMENT_EVERY`.
        for (revision, ms) in [(1, 0), (5, 1000), (6, 1050), (9, 3000)] {
            record_moment(&mut moments, revision, at(ms));
        }
        for (applied, lag) in [(0, 4000), (1, 3000), (4, 3000), (5, 1000), (8, 1000), (9, 0)] {
            assert_eq!(lag_ms(&moments, applied, at(4000)), lag, "{applied}");
        }
        // A store reset to revision 3 removes the moments of later revisions.
        record_moment(&mut moments, 3, at(5000));
        assert_eq!(lag_ms(&moments, 1, at(6000)), 1000);
    }

    #[test]
    fn moments_are_bounded() {
        let (mut moments, begin) = (VecDeque::new(), Instant::now());
        for i in 0..2 * MOMENTS_MAX as u64 {
            record_moment(&mut moments, i, begin + MOMENT_EVERY * i as u32);
        }
        assert_eq!(moments.len(), MOMENTS_MAX);
    }

    #[test]
    fn a_record_of_another_version_is_read() {
        let record: ClusterNodeRecord =
            serde_json::from_str(r#"{"name": "a", "applied": 7, "new": {}}"#).unwrap();
        assert_eq!((&*record.name, record.applied, record.workers), ("a", 7, 0));
    }
}
