//! Limits with counters in this process: names, numbers of keys, and evictions, for metrics and problems.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_plugin::Carry;

/// One limit of a counter table.
#[derive(Debug)]
pub(crate) struct LimitRecord {
    /// Name across processes.
    pub(super) name: Box<str>,
    /// The object with the settings, as `kind/id`.
    pub(super) owner: Box<str>,
    /// Number of rules, each with its own keys.
    pub(super) rules: usize,
    evicted: AtomicU64,
}

impl LimitRecord {
    pub(super) fn new(name: &str, owner: &str, rules: usize) -> LimitRecord {
        LimitRecord { name: name.into(), owner: owner.into(), rules, evicted: AtomicU64::new(0) }
    }

    /// Number of keys that were evicted before their counters had ended.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Counts a key that was evicted before its counter had ended.
    pub(super) fn count_eviction(&self) {
        // Relaxed: the count publishes no other memory.
        self.evicted.fetch_add(1, Relaxed);
    }
}

/// A counter table as a source of metrics.
pub(super) trait TableUsage: Send + Sync {
    fn keys(&self) -> usize;
    fn keys_max(&self) -> usize;
    fn records(&self) -> Vec<Arc<LimitRecord>>;
}

/// The counter tables of this process, by plugin.
#[derive(Default)]
pub struct LimitTables(Mutex<BTreeMap<Box<str>, Weak<dyn TableUsage>>>);

/// Evictions of one object's limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitEvictions {
    /// The plugin with the full table.
    pub plugin: Box<str>,
    /// The object that lost the keys, as `kind/id`.
    pub owner: Box<str>,
    /// Number of keys that were evicted before their counters had ended.
    pub evicted: u64,
}

/// The counter tables of this process. The exporter must retain the returned reference.
pub fn metrics(carry: &Carry) -> Arc<LimitTables> {
    carry.keep("limits", LimitTables::default)
}

/// One series of each family, from which the reference page of the metrics is generated.
pub fn example() -> LimitTables {
    struct Example;

    impl TableUsage for Example {
        fn keys(&self) -> usize {
            1
        }

        fn keys_max(&self) -> usize {
            1
        }

        fn records(&self) -> Vec<Arc<LimitRecord>> {
            let record = LimitRecord::new("", "routes/1", 1);
            record.count_eviction();
            vec![Arc::new(record)]
        }
    }

    let tables = LimitTables::default();
    let table: Arc<dyn TableUsage> = Arc::new(Example);
    tables.register("limit-count", &table);
    // Leaked on purpose: the registry keeps weak references, and the process only writes the reference page.
    std::mem::forget(table);
    tables
}

impl LimitTables {
    pub(super) fn register(&self, plugin: &str, table: &Arc<dyn TableUsage>) {
        // A weak reference, so that a table without limits is dropped.
        self.tables().insert(plugin.into(), Arc::downgrade(table));
    }

    /// Objects with evictions and their counts.
    pub fn evictions(&self) -> Vec<LimitEvictions> {
        let mut all: BTreeMap<(Box<str>, Box<str>), u64> = BTreeMap::new();
        for (plugin, table) in self.live_tables() {
            for record in table.records() {
                let evicted = record.evicted();
                if evicted > 0 {
                    *all.entry((plugin.clone(), record.owner.clone())).or_default() += evicted;
                }
            }
        }
        all.into_iter().map(|((plugin, owner), evicted)| LimitEvictions { plugin, owner, evicted }).collect()
    }

    fn live_tables(&self) -> Vec<(Box<str>, Arc<dyn TableUsage>)> {
        // Cloned, so that the lock is not held while the tables are read.
        let tables = self.tables();
        tables.iter().filter_map(|(plugin, table)| Some((plugin.clone(), table.upgrade()?))).collect()
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, BTreeMap<Box<str>, Weak<dyn TableUsage>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_plugin(&self, read: fn(&dyn TableUsage) -> usize) -> Vec<MetricSeries> {
        let sample = |(plugin, table): (Box<str>, Arc<dyn TableUsage>)| MetricSeries {
            labels: vec![("plugin", plugin.into_string())],
            value: MetricValue::Number(read(&*table) as f64),
        };
        self.live_tables().into_iter().map(sample).collect()
    }
}

impl MetricSource for LimitTables {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        out.push(MetricFamily {
            name: "yumen_limit_keys".into(),
            help: "Keys in the counter table of a plugin.".into(),
            kind: MetricKind::Gauge,
            samples: self.by_plugin(|table| table.keys()),
        });
        out.push(MetricFamily {
            name: "yumen_limit_keys_max".into(),
            help: "Keys that the counter table of a plugin holds at most.".into(),
            kind: MetricKind::Gauge,
            samples: self.by_plugin(|table| table.keys_max()),
        });
        let sample = |one: LimitEvictions| MetricSeries {
            labels: vec![("plugin", one.plugin.into_string()), ("owner", one.owner.into_string())],
            value: MetricValue::Number(one.evicted as f64),
        };
        out.push(MetricFamily {
            name: "yumen_limit_keys_evicted_total".into(),
            help:
                "Keys evicted from a full counter table before their counters had ended, by the object whose \
                   limit held most."
                    .into(),
            kind: MetricKind::Counter,
            samples: self.evictions().into_iter().map(sample).collect(),
        });
    }
}
