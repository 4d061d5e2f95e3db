//! A table of counters that all workers share. Knows no plugin, no key's meaning and no clock.
//!
//! Counters are atomics behind a sharded read-write lock that requests take for reading only: they
//! wait for each other no more than atomics do. The write side is taken when a key is seen first,
//! when its window turns, and to make room. So whoever holds the read side can rely on a counter's
//! window standing still, which is what makes limits exact without packing count and window into
//! one word and bounding both.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use foldhash::fast::RandomState;
use yumen_plugin::{Now, PluginBuildContext};

use super::eviction::EvictionPlan;
use super::usage::{self, LimitRecord, LimitTables, TableUsage};

/// How many keys a table holds at most, of all limits together. In a full table the limits with the most keys give way,
/// see [`super::eviction`]. Unit tests fill a smaller one.
pub(crate) const KEYS_MAX: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };
/// How long a key is that a table keeps as it is, with the number of its limit. Clients choose what keys
/// say: a bound on their number alone would bound no memory.
const KEY_BYTES_MAX: usize = 64;
/// How long the beginning of a limit's keys is: its number, and the number of the rule in the last byte.
const NUMBER_BYTES: usize = 8;
const RULE_AT: usize = NUMBER_BYTES - 1;
/// How long a key of which a digest is kept is without its number.
pub(super) const KEPT_BYTES_DIGESTED: usize = KEY_BYTES_MAX + 1 - NUMBER_BYTES;
const SHARDS: usize = 256;

/// State of one key.
pub(crate) trait KeyedState: Default {
    /// From when on it tells no more than a fresh one, in milliseconds of the monotonic clock;
    /// `None` while it must stay.
    fn useless_at_ms(&self) -> Option<u64>;

    /// The numbers that a successor needs; `None` without state.
    fn numbers(&self) -> Option<Vec<u64>> {
        None
    }

    /// Adds numbers that another process has exported by [`KeyedState::numbers`] or [`KeyedState::since`].
    fn take_over(&mut self, _numbers: &[u64], _now: Now) {}

    /// The export of a key whose state has ended; `None` exports nothing.
    fn gone() -> Option<Vec<u64>> {
        None
    }

    /// The other process has ended: nothing is under way there.
    fn go_on_alone(&self) {}

    /// The changes between two exports; `None` for none.
    fn since(_before: Option<&[u64]>, _now: &[u64]) -> Option<Vec<u64>> {
        None
    }
}

/// A key as a table keeps it.
enum StoredKey<'k> {
    Whole(&'k [u8]),
    /// The number of the limit, how the key goes on, and the digest of all behind the number, which is another
    /// one in the next process. It is a byte longer than any key that is kept whole, so none can pass for it.
    Digested([u8; KEY_BYTES_MAX + 1]),
}

impl<'k> StoredKey<'k> {
    fn of(key: &'k [u8]) -> StoredKey<'k> {
        if key.len() <= KEY_BYTES_MAX { StoredKey::Whole(key) } else { StoredKey::digested(key) }
    }

    /// A key as [`LimitTable::each`] shows it, with a number before it.
    fn again(key: &'k [u8]) -> StoredKey<'k> {
        if key.len() == KEY_BYTES_MAX + 1 { StoredKey::Whole(key) } else { StoredKey::of(key) }
    }

    #[cold]
    fn digested(key: &[u8]) -> StoredKey<'k> {
        let mut kept = [0; KEY_BYTES_MAX + 1];
        let (begins, ends) = kept.split_at_mut(KEY_BYTES_MAX + 1 - SHA256_OUTPUT_LEN);
        begins.copy_from_slice(&key[..begins.len()]);
        ends.copy_from_slice(digest(&SHA256, &key[NUMBER_BYTES..]).as_ref());
        StoredKey::Digested(kept)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            StoredKey::Whole(key) => key,
            StoredKey::Digested(key) => key,
        }
    }
}

type Map<V> = HashMap<Box<[u8]>, V, RandomState>;

/// Shards stand on cache lines of their own, so that neighbours do not slow each other down.
#[repr(align(128))]
struct TableShard<V>(RwLock<ShardMap<V>>);

struct ShardMap<V> {
    map: Map<V>,
    /// How many keys to grow to before looking for useless ones again.
    sweep_at: usize,
}

/// Counters by key.
pub(crate) struct LimitTable<V> {
    shards: Box<[TableShard<V>]>,
    hasher: RandomState,
    shard_keys_max: usize,
    limits_made: AtomicU64,
    /// Workers read it where they make room; the control thread changes it.
    limits: RwLock<LimitsByNumber>,
}

/// The limits of a table, by their number with the rule 0.
type LimitsByNumber = HashMap<[u8; NUMBER_BYTES], Arc<LimitRecord>, RandomState>;

/// The limit that a key is of, as its number with the rule 0, and the rule.
fn split_number(key: &[u8]) -> Option<([u8; NUMBER_BYTES], u8, &[u8])> {
    let (number, rest) = key.split_first_chunk::<NUMBER_BYTES>()?;
    let mut limit = *number;
    limit[RULE_AT] = 0;
    Some((limit, number[RULE_AT], rest))
}

/// The rule that a key is of: what keys compete as.
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
        // The map inside uses the low and the highest bits of the same hash.
        let at = (self.hasher.hash_one(key) >> 32) as usize % self.shards.len();
        &self.shards[at].0
    }

    /// Returns the result of `look` on the key's slot; `None` without a slot or if `look` returns it.
    pub(crate) fn look<R>(&self, key: &[u8], look: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let kept = StoredKey::of(key);
        let key = kept.bytes();
        let inner = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        inner.map.get(key).and_then(look)
    }

    /// What `change` makes of the key's slot, a fresh one where there is none, with no one else
    /// looking at it.
    pub(crate) fn change<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        self.change_kept(StoredKey::of(key).bytes(), now_ms, change)
    }

    /// [`LimitTable::change`] of a key as [`LimitTable::each`] shows it.
    pub(super) fn change_shown<R>(
        &self,
        mut number: [u8; NUMBER_BYTES],
        rule: u8,
        key: &[u8],
        now_ms: u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> R {
        number[RULE_AT] = rule;
        self.change_kept(StoredKey::again(&[&number, key].concat()).bytes(), now_ms, change)
    }

    fn change_kept<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        let mut inner = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = inner.map.get_mut(key) {
            return change(slot);
        }
        if inner.map.len() >= inner.sweep_at {
            self.make_room(&mut inner, now_ms);
        }
        change(inner.map.entry(key.into()).or_default())
    }

    /// Forgets slots that have ended and those of limits that are gone; if that leaves a full shard, also a quarter of
    /// the others, by [`EvictionPlan`].
    fn make_room(&self, inner: &mut ShardMap<V>, now_ms: u64) {
        let limits = self.limits();
        let limit_of = |key: &[u8]| limits.get(&split_number(key)?.0);
        let is_open = |slot: &V| slot.useless_at_ms().is_none_or(|useless_ms| useless_ms > now_ms);
        inner.map.retain(|key, slot| is_open(slot) && limit_of(key).is_some());
        let keys_max = self.shard_keys_max;
        if inner.map.len() >= keys_max {
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
        // Counters that must stay may have left no room: another look pays when there are more.
        inner.sweep_at = if len < keys_max { (len * 2).max(16).min(keys_max) } else { len + len / 4 + 1 };
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

    /// Has a look at every slot, beside the limit and the rule it is of and its key as it is kept.
    pub(super) fn each(&self, mut look: impl FnMut(&LimitRecord, u8, &[u8], &V)) {
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

    /// The numbers that the keys of limits begin with, and how many rules they have, by name.
    pub(super) fn limits_by_name(&self) -> HashMap<Box<str>, ([u8; NUMBER_BYTES], usize)> {
        self.limits().iter().map(|(number, limit)| (limit.name.clone(), (*number, limit.rules))).collect()
    }

    /// Keys evicted before their counters had ended, by the object that has the limit.
    #[cfg(test)]
    pub(crate) fn evictions(&self) -> impl Iterator<Item = (String, u64)> {
        self.records().into_iter().map(|limit| (limit.owner.to_string(), limit.evicted()))
    }

    /// Number of keys.
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

/// One limit's share of a table: the keys that begin with its number.
pub(crate) struct TableShare<V: KeyedState + Send + Sync> {
    table: Arc<LimitTable<V>>,
    number: [u8; NUMBER_BYTES],
    /// The table stays registered as long as there is a limit.
    _registered: Arc<LimitTables>,
}

impl<V: KeyedState + Send + Sync> TableShare<V> {
    /// Length of the prefix of a key.
    pub(crate) const NUMBER_BYTES: usize = NUMBER_BYTES;

    fn new(table: Arc<LimitTable<V>>, registered: Arc<LimitTables>, record: LimitRecord) -> Self {
        let number = (table.limits_made.fetch_add(1, Relaxed) << 8).to_be_bytes();
        table.limits_mut().insert(number, Arc::new(record));
        TableShare { table, number, _registered: registered }
    }

    /// The table.
    pub(crate) fn table(&self) -> &LimitTable<V> {
        &self.table
    }

    /// Begins a key of the limit's rule at this place; rules compete for room with each other as limits do.
    pub(crate) fn begin(&self, rule: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.number[..RULE_AT]);
        key.push(u8::try_from(rule).unwrap_or(u8::MAX));
    }
}

impl<V: KeyedState + Send + Sync> Drop for TableShare<V> {
    fn drop(&mut self) {
        self.table.limits_mut().remove(&self.number);
    }
}

/// The share carried under `plugin/name`, of a limit with so many rules. All shares of a plugin are in one table per
/// process, so the bound on memory is the process's and an idle limit costs next to nothing.
pub(crate) fn share<V: KeyedState + Send + Sync + 'static>(
    setup: &PluginBuildContext<'_>,
    plugin: &str,
    name: &str,
    rules: usize,
) -> Arc<TableShare<V>> {
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
