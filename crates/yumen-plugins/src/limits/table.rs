//! A table of counters that all workers share.
//!
//! Counters are atomics behind a sharded read-write lock. Requests take the lock for reading, so they contend
//! no more than on the atomics. The write lock is taken for a new key, for a new window, and for eviction. A
//! reader can therefore rely on the window of a counter, which makes limits exact without a packed word of
//! count and window.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use foldhash::fast::RandomState;
use yumen_plugin::{Now, PluginBuildContext};

use super::eviction::EvictionPlan;
use super::usage::{self, LimitRecord, LimitTables, TableUsage};

/// Most keys in a table, for all limits together. A full table evicts keys of the limits with the most keys,
/// see [`super::eviction`]. Unit tests use a smaller table.
pub(crate) const KEYS_MAX: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };
/// Longest key that is stored as it is, with the number of its limit. Clients choose the content of keys, so
/// a bound on the number of keys alone would not bound memory.
const KEY_BYTES_MAX: usize = 64;
/// Length of the prefix of a key: the number of the limit, with the number of the rule in the last byte.
const NUMBER_BYTES: usize = 8;
const RULE_AT: usize = NUMBER_BYTES - 1;
/// Length of a digested key without its prefix.
pub(super) const KEPT_BYTES_DIGESTED: usize = KEY_BYTES_MAX + 1 - NUMBER_BYTES;
const SHARDS: usize = 256;

/// The state of one key.
pub(crate) trait KeyedState: Default {
    /// Time from which the state equals a fresh one, in milliseconds of the monotonic clock; `None` if it
    /// must not be evicted.
    fn useless_at_ms(&self) -> Option<u64>;

    /// State for the successor; `None` if there is none to hand over.
    fn numbers(&self) -> Option<Vec<u64>> {
        None
    }

    /// Adds state that another process exported by [`KeyedState::numbers`] or [`KeyedState::since`].
    fn take_over(&mut self, _numbers: &[u64], _now: Now) {}

    /// Export for a key without state; `None` for no export.
    fn ended() -> Option<Vec<u64>> {
        None
    }

    /// Discards the state of the predecessor after its exit.
    fn go_on_alone(&self) {}

    /// The difference between two exports; `None` for no difference.
    fn since(_before: Option<&[u64]>, _now: &[u64]) -> Option<Vec<u64>> {
        None
    }
}

/// A key as stored in a table.
enum StoredKey<'k> {
    Whole(&'k [u8]),
    /// The prefix, the beginning of the key, and a digest of all after the prefix; the prefix differs in the
    /// next process. One byte longer than any key that is stored as it is, so the two cannot be equal.
    Digested([u8; KEY_BYTES_MAX + 1]),
}

impl<'k> StoredKey<'k> {
    fn of(key: &'k [u8]) -> StoredKey<'k> {
        if key.len() <= KEY_BYTES_MAX { StoredKey::Whole(key) } else { StoredKey::digested(key) }
    }

    /// A key as [`LimitTable::each`] passes it, with the prefix.
    fn again(key: &'k [u8]) -> StoredKey<'k> {
        if key.len() == KEY_BYTES_MAX + 1 { StoredKey::Whole(key) } else { StoredKey::of(key) }
    }

    #[cold]
    fn digested(key: &[u8]) -> StoredKey<'k> {
        let mut stored = [0; KEY_BYTES_MAX + 1];
        let (begins, ends) = stored.split_at_mut(KEY_BYTES_MAX + 1 - SHA256_OUTPUT_LEN);
        // The prefix stays readable, because evictions are by rule.
        begins.copy_from_slice(&key[..begins.len()]);
        ends.copy_from_slice(digest(&SHA256, &key[NUMBER_BYTES..]).as_ref());
        StoredKey::Digested(stored)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            StoredKey::Whole(key) => key,
            StoredKey::Digested(key) => key,
        }
    }
}

type Map<V> = HashMap<Box<[u8]>, V, RandomState>;

/// Each shard has its own cache lines, which avoids false sharing.
#[repr(align(128))]
struct TableShard<V>(RwLock<ShardMap<V>>);

struct ShardMap<V> {
    map: Map<V>,
    /// Number of keys at which ended ones are removed.
    sweep_at: usize,
}

/// Counters by key.
pub(crate) struct LimitTable<V> {
    shards: Box<[TableShard<V>]>,
    hasher: RandomState,
    shard_keys_max: usize,
    limits_made: AtomicU64,
    /// Workers read the map during eviction; the control thread changes it.
    limits: RwLock<LimitsByNumber>,
}

/// The limits of a table by their number, with rule 0.
type LimitsByNumber = HashMap<[u8; NUMBER_BYTES], Arc<LimitRecord>, RandomState>;

/// Splits a key into the number of its limit (with rule 0), the rule, and the rest.
fn split_number(key: &[u8]) -> Option<([u8; NUMBER_BYTES], u8, &[u8])> {
    let (number, rest) = key.split_first_chunk::<NUMBER_BYTES>()?;
    let mut limit = *number;
    limit[RULE_AT] = 0;
    Some((limit, number[RULE_AT], rest))
}

/// Number and rule of a key, the unit of fairness in evictions.
fn rule_of(key: &[u8]) -> [u8; NUMBER_BYTES] {
    key.first_chunk::<NUMBER_BYTES>().copied().unwrap_or_default()
}

impl<V: KeyedState + Send + Sync> LimitTable<V> {
    /// A table for [`KEYS_MAX`] keys.
    pub(crate) fn new() -> Self {
        LimitTable::bounded(SHARDS, KEYS_MAX)
    }

    fn bounded(shards: usize, keys_max: usize) -> Self {
        let hasher = RandomState::default();
        let shard_keys_max = (keys_max / shards).max(1);
        let shard = |_| {
            let map = HashMap::with_hasher(hasher.clone());
            TableShard(RwLock::new(ShardMap { map, sweep_at: shard_keys_max.min(16) }))
        };
        LimitTable {
            shards: (0..shards).map(shard).collect(),
            hasher: hasher.clone(),
            shard_keys_max,
            limits_made: AtomicU64::new(0),
            limits: RwLock::default(),
        }
    }

    fn shard(&self, key: &[u8]) -> &RwLock<ShardMap<V>> {
        // The map in the shard uses the low and the highest bits of the same hash.
        let at = (self.hasher.hash_one(key) >> 32) as usize % self.shards.len();
        &self.shards[at].0
    }

    /// Runs `look` on the state of a key under the read lock; `None` without state or if `look` returns
    /// `None`.
    pub(crate) fn look<R>(&self, key: &[u8], look: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let stored = StoredKey::of(key);
        let key = stored.bytes();
        let inner = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        inner.map.get(key).and_then(look)
    }

    /// Runs `change` on the state of a key, or on a fresh one, under the write lock of its shard.
    pub(crate) fn change<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        self.change_stored(StoredKey::of(key).bytes(), now_ms, change)
    }

    /// [`LimitTable::change`] for a key as [`LimitTable::each`] passes it.
    pub(super) fn change_shown<R>(
        &self,
        mut number: [u8; NUMBER_BYTES],
        rule: u8,
        key: &[u8],
        now_ms: u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> R {
        number[RULE_AT] = rule;
        self.change_stored(StoredKey::again(&[&number, key].concat()).bytes(), now_ms, change)
    }

    fn change_stored<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        let mut inner = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = inner.map.get_mut(key) {
            return change(slot);
        }
        if inner.map.len() >= inner.sweep_at {
            self.make_room(&mut inner, now_ms);
        }
        change(inner.map.entry(key.into()).or_default())
    }

    /// Removes ended state and that of removed limits. If the shard is still full, evicts a quarter of the
    /// rest by [`EvictionPlan`].
    fn make_room(&self, inner: &mut ShardMap<V>, now_ms: u64) {
        let limits = self.limits();
        let limit_of = |key: &[u8]| limits.get(&split_number(key)?.0);
        let is_open = |slot: &V| slot.useless_at_ms().is_none_or(|useless_ms| useless_ms > now_ms);
        inner.map.retain(|key, slot| is_open(slot) && limit_of(key).is_some());
        let keys_max = self.shard_keys_max;
        if inner.map.len() >= keys_max {
            // A quarter at once, so that evictions are rare.
            let keys_left = keys_max - (keys_max / 4).max(1);
            let keys = inner.map.iter().map(|(key, slot)| (rule_of(key), slot.useless_at_ms()));
            let mut plan = EvictionPlan::new(keys, keys_left);
            inner.map.retain(|key, slot| {
                let is_evicted = plan.evicts(rule_of(key), slot.useless_at_ms());
                if is_evicted && let Some(limit) = limit_of(key) {
                    limit.count_eviction();
                }
                !is_evicted
            });
        }
        let len = inner.map.len();
        // State that must stay may have prevented evictions: the next attempt waits for more keys.
        inner.sweep_at = if len < keys_max { (len * 2).max(16).min(keys_max) } else { len + len / 4 + 1 };
        // Returns memory after a flood of keys.
        if inner.map.capacity() > 4 * inner.sweep_at {
            inner.map.shrink_to(inner.sweep_at);
        }
    }

    fn limits(&self) -> RwLockReadGuard<'_, LimitsByNumber> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits_mut(&self) -> RwLockWriteGuard<'_, LimitsByNumber> {
        self.limits.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `look` on all states, with their limit, rule and stored key.
    pub(super) fn each(&self, mut look: impl FnMut(&LimitRecord, u8, &[u8], &V)) {
        // A copy, because `make_room` locks a shard before the limits.
        let limits = self.limits().clone();
        for shard in &self.shards {
            let inner = shard.0.read().unwrap_or_else(PoisonError::into_inner);
            for (key, slot) in &inner.map {
                if let Some((number, rule, key)) = split_number(key)
                    && let Some(limit) = limits.get(&number)
                {
                    look(limit, rule, key, slot);
                }
            }
        }
    }

    /// The numbers of the limits and their rule counts, by name.
    pub(super) fn limits_by_name(&self) -> HashMap<Box<str>, ([u8; NUMBER_BYTES], usize)> {
        self.limits().iter().map(|(number, limit)| (limit.name.clone(), (*number, limit.rules))).collect()
    }

    /// Keys evicted before their counters had ended, by the object with the limit.
    #[cfg(test)]
    pub(crate) fn evictions(&self) -> impl Iterator<Item = (String, u64)> {
        self.records().into_iter().map(|limit| (limit.owner.to_string(), limit.evicted()))
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        let len = |shard: &TableShard<V>| shard.0.read().unwrap_or_else(PoisonError::into_inner).map.len();
        self.shards.iter().map(len).sum()
    }
}

impl<V: KeyedState + Send + Sync> TableUsage for LimitTable<V> {
    fn keys(&self) -> usize {
        self.len()
    }

    fn keys_max(&self) -> usize {
        self.shard_keys_max * self.shards.len()
    }

    fn records(&self) -> Vec<Arc<LimitRecord>> {
        self.limits().values().cloned().collect()
    }
}

/// The keys of one limit in a table.
pub(crate) struct TableShare<V: KeyedState + Send + Sync> {
    table: Arc<LimitTable<V>>,
    number: [u8; NUMBER_BYTES],
    /// Keeps the registration of the table while a limit uses it.
    _registered: Arc<LimitTables>,
}

impl<V: KeyedState + Send + Sync> TableShare<V> {
    /// Length of the prefix of a key.
    pub(crate) const NUMBER_BYTES: usize = NUMBER_BYTES;

    fn new(table: Arc<LimitTable<V>>, registered: Arc<LimitTables>, record: LimitRecord) -> Self {
        // The last byte remains free for the rule.
        let number = (table.limits_made.fetch_add(1, Relaxed) << 8).to_be_bytes();
        table.limits_mut().insert(number, Arc::new(record));
        TableShare { table, number, _registered: registered }
    }

    /// The table of all limits of the plugin.
    pub(crate) fn table(&self) -> &LimitTable<V> {
        &self.table
    }

    /// Writes the prefix of a key. Rules compete in evictions as limits do.
    pub(crate) fn begin(&self, rule: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.number[..RULE_AT]);
        key.push(u8::try_from(rule).unwrap_or(u8::MAX));
    }
}

impl<V: KeyedState + Send + Sync> Drop for TableShare<V> {
    fn drop(&mut self) {
        // The keys of the limit remain until `make_room` finds no limit for them.
        self.table.limits_mut().remove(&self.number);
    }
}

/// The share carried under `plugin/name` of a limit with this number of rules. All limits of a plugin share
/// one table per process, so the bound applies to the process and an idle limit costs almost nothing.
pub(crate) fn share<V: KeyedState + Send + Sync + 'static>(
    setup: &PluginBuildContext<'_>,
    plugin: &str,
    name: &str,
    rules: usize,
) -> Arc<TableShare<V>> {
    // Outside the closure of `keep`, which must not use the registry again.
    let table = setup.carry.get_or_create_portable(plugin, LimitTable::new);
    let usage: Arc<dyn TableUsage> = table.clone();
    let registered = usage::metrics(setup.carry);
    registered.register(plugin, &usage);
    let make = || TableShare::new(table, registered, LimitRecord::new(name, setup.owner, rules));
    setup.carry.keep(&format!("{plugin}/{name}"), make)
}

#[cfg(test)]
pub(crate) fn bounded_shares<V: KeyedState + Send + Sync>(
    shards: usize,
    keys_max: usize,
    owners: &[&str],
) -> Vec<TableShare<V>> {
    let table = Arc::new(LimitTable::bounded(shards, keys_max));
    let share =
        |owner: &&str| TableShare::new(table.clone(), Arc::default(), LimitRecord::new(owner, owner, 1));
    owners.iter().map(share).collect()
}
