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
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use foldhash::fast::RandomState;
use yumen_plugin::{Now, Setup};

/// How many keys a table holds at most.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// How long a key is that a table keeps as it is, with the number of its limit. Clients choose what keys
/// say: a bound on their number alone would bound no memory.
const KEY_BYTES_MAX: usize = 64;
/// How long the beginning of a limit's keys is.
const NUMBER_BYTES: usize = 8;
const SHARDS: usize = 256;

/// State of one key.
pub(crate) trait Slot: Default {
    /// From when on it tells no more than a fresh one, in milliseconds of the monotonic clock;
    /// `None` while it must stay.
    fn useless_at_ms(&self) -> Option<u64>;

    /// What the process that takes over must know, as numbers; `None` where there is nothing.
    fn numbers(&self) -> Option<Vec<u64>> {
        None
    }

    /// Adds what another process told by [`Slot::numbers`] or [`Slot::since`].
    fn take_over(&mut self, _numbers: &[u64], _now: Now) {}

    /// What is told of a key of which there is nothing to tell any more; `None` is nothing.
    fn gone() -> Option<Vec<u64>> {
        None
    }

    /// The other process has ended: nothing is under way there.
    fn go_on_alone(&self) {}

    /// What has come between two tellings; `None` is nothing.
    fn since(_before: Option<&[u64]>, _now: &[u64]) -> Option<Vec<u64>> {
        None
    }
}

/// A key as a table keeps it.
enum Kept<'k> {
    Whole(&'k [u8]),
    /// The number of the limit, how the key goes on, and the digest of all behind the number, which is another
    /// one in the next process. It is a byte longer than any key that is kept whole, so none can pass for it.
    Digested([u8; KEY_BYTES_MAX + 1]),
}

impl<'k> Kept<'k> {
    fn of(key: &'k [u8]) -> Kept<'k> {
        if key.len() <= KEY_BYTES_MAX { Kept::Whole(key) } else { Kept::digested(key) }
    }

    /// A key as [`Table::each`] shows it, with a number before it.
    fn again(key: &'k [u8]) -> Kept<'k> {
        if key.len() == KEY_BYTES_MAX + 1 { Kept::Whole(key) } else { Kept::of(key) }
    }

    #[cold]
    fn digested(key: &[u8]) -> Kept<'k> {
        let mut kept = [0; KEY_BYTES_MAX + 1];
        let (begins, ends) = kept.split_at_mut(KEY_BYTES_MAX + 1 - SHA256_OUTPUT_LEN);
        begins.copy_from_slice(&key[..begins.len()]);
        ends.copy_from_slice(digest(&SHA256, &key[NUMBER_BYTES..]).as_ref());
        Kept::Digested(kept)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Kept::Whole(key) => key,
            Kept::Digested(key) => key,
        }
    }
}

type Map<V> = HashMap<Box<[u8]>, V, RandomState>;

/// Shards stand on cache lines of their own, so that neighbours do not slow each other down.
#[repr(align(128))]
struct Shard<V>(RwLock<Inner<V>>);

struct Inner<V> {
    map: Map<V>,
    /// How many keys to grow to before looking for useless ones again.
    sweep_at: usize,
}

/// Counters by key.
pub(crate) struct Table<V> {
    shards: Box<[Shard<V>]>,
    hasher: RandomState,
    shard_keys_max: usize,
    owners: AtomicU64,
    /// The names of the limits, by their numbers.
    names: Mutex<HashMap<[u8; NUMBER_BYTES], Box<str>, RandomState>>,
}

impl<V: Slot> Table<V> {
    /// A table for [`KEYS_MAX`] keys.
    pub(crate) fn new() -> Self {
        Table::bounded(SHARDS, KEYS_MAX)
    }

    fn bounded(shards: usize, keys_max: usize) -> Self {
        let hasher = RandomState::default();
        let shard = |_| {
            let map = HashMap::with_hasher(hasher.clone());
            Shard(RwLock::new(Inner { map, sweep_at: 16 }))
        };
        Table {
            shards: (0..shards).map(shard).collect(),
            hasher: hasher.clone(),
            shard_keys_max: (keys_max / shards).max(1),
            owners: AtomicU64::new(0),
            names: Mutex::default(),
        }
    }

    fn shard(&self, key: &[u8]) -> &RwLock<Inner<V>> {
        // The map inside uses the low and the highest bits of the same hash.
        let at = (self.hasher.hash_one(key) >> 32) as usize % self.shards.len();
        &self.shards[at].0
    }

    /// What `look` makes of the key's slot; `None` where there is no slot, or where it says so.
    pub(crate) fn look<R>(&self, key: &[u8], look: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let kept = Kept::of(key);
        let key = kept.bytes();
        let inner = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        inner.map.get(key).and_then(look)
    }

    /// What `change` makes of the key's slot, a fresh one where there is none, with no one else
    /// looking at it.
    pub(crate) fn change<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        self.change_kept(Kept::of(key).bytes(), now_ms, change)
    }

    /// [`Table::change`] of a key as [`Table::each`] shows it.
    pub(super) fn change_shown<R>(
        &self,
        number: [u8; NUMBER_BYTES],
        key: &[u8],
        now_ms: u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> R {
        self.change_kept(Kept::again(&[&number, key].concat()).bytes(), now_ms, change)
    }

    fn change_kept<R>(&self, key: &[u8], now_ms: u64, change: impl FnOnce(&mut V) -> R) -> R {
        let mut inner = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = inner.map.get_mut(key) {
            return change(slot);
        }
        if inner.map.len() >= inner.sweep_at.min(self.shard_keys_max) {
            make_room(&mut inner, now_ms, self.shard_keys_max);
        }
        change(inner.map.entry(key.into()).or_default())
    }

    /// Has a look at every slot, beside the name of the limit it is of and its key as it is kept.
    pub(super) fn each(&self, mut look: impl FnMut(&str, &[u8], &V)) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for shard in &self.shards {
            let inner = shard.0.read().unwrap_or_else(PoisonError::into_inner);
            for (key, slot) in &inner.map {
                if let Some((number, key)) = key.split_first_chunk::<NUMBER_BYTES>()
                    && let Some(name) = names.get(number)
                {
                    look(name, key, slot);
                }
            }
        }
    }

    /// The numbers that the keys of limits begin with, by name.
    pub(super) fn numbers_by_name(&self) -> HashMap<Box<str>, [u8; NUMBER_BYTES]> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|(number, name)| (name.clone(), *number)).collect()
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let len = |shard: &Shard<V>| shard.0.read().unwrap_or_else(PoisonError::into_inner).map.len();
        self.shards.iter().map(len).sum()
    }
}

/// Forgets useless slots; if that leaves a full shard, also a quarter of the others, the ones that
/// become useless first.
fn make_room<V: Slot>(inner: &mut Inner<V>, now_ms: u64, keys_max: usize) {
    let keeps =
        |until_ms: u64| move |slot: &V| slot.useless_at_ms().is_none_or(|useless_ms| useless_ms > until_ms);
    let keep = keeps(now_ms);
    inner.map.retain(|_, slot| keep(slot));
    if inner.map.len() >= keys_max {
        let mut ends: Vec<u64> = inner.map.values().filter_map(V::useless_at_ms).collect();
        if !ends.is_empty() {
            let quarter = ends.len() / 4;
            let keep = keeps(*ends.select_nth_unstable(quarter).1);
            inner.map.retain(|_, slot| keep(slot));
        }
    }
    inner.sweep_at = (inner.map.len() * 2).max(16);
    if inner.map.capacity() > 4 * inner.sweep_at {
        inner.map.shrink_to(inner.sweep_at);
    }
}

/// One limit's share of a table: the keys that begin with its number.
pub(crate) struct Share<V: Slot> {
    table: Arc<Table<V>>,
    number: [u8; NUMBER_BYTES],
}

impl<V: Slot> Share<V> {
    /// How long the beginning of a key is.
    pub(crate) const NUMBER_BYTES: usize = NUMBER_BYTES;

    fn new(table: Arc<Table<V>>, name: &str) -> Self {
        let number = table.owners.fetch_add(1, Relaxed).to_ne_bytes();
        table.names.lock().unwrap_or_else(PoisonError::into_inner).insert(number, name.into());
        Share { table, number }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Table<V> {
        &self.table
    }

    /// Begins a key.
    pub(crate) fn begin(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.number);
    }
}

impl<V: Slot> Drop for Share<V> {
    fn drop(&mut self) {
        self.table.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// The share carried under `plugin/name`. All shares of a plugin are in one table per process, so
/// the bound on keys is the process's and an idle limit costs next to nothing.
pub(crate) fn share<V: Slot + Send + Sync + 'static>(
    setup: &Setup<'_>,
    plugin: &str,
    name: &str,
) -> Arc<Share<V>> {
    let table = setup.carry.keep_portable(plugin, Table::new);
    setup.carry.keep(&format!("{plugin}/{name}"), || Share::new(table, name))
}

#[cfg(test)]
pub(crate) fn bounded_share<V: Slot>(shards: usize, keys_max: usize) -> Share<V> {
    Share::new(Arc::new(Table::bounded(shards, keys_max)), "")
}
