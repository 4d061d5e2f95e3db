//! Mass deletions, held until confirmed. Pure.

use imbl::{OrdMap, Vector};
use yumen_base::Problem;
use yumen_config::Kind;

use crate::state::{ResourceKey, StoreEntry};

/// Minimum number of deletions to hold. Smaller numbers are routine whatever their share.
const OBJECTS_MIN: usize = 10;

/// Deletions within this time, in milliseconds, count together.
const WINDOW_MS: u64 = 60_000;

/// The held deletions and the threshold for holding.
#[derive(Debug, Clone)]
pub(in crate::etcd) struct DeletionHold {
    /// Share of the served objects, in percent, above which deletions are held; 0 disables holding.
    percent: u32,
    /// Objects deleted in etcd and still served, with the revision of the deletion.
    keys: OrdMap<ResourceKey, u64>,
    window: DeletionWindow,
}

/// Revision and time of a batch of deletions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) revision: u64,
    pub(super) now_ms: u64,
}

/// The decision on the deletions of one revision.
#[derive(Debug, Default)]
pub(super) struct DeletionVerdict {
    /// Keys of accepted deletions.
    pub(super) passing: Vec<ResourceKey>,
    /// Objects with an accepted deletion that is now held: they are served again.
    pub(super) restored: Vec<(ResourceKey, StoreEntry)>,
}

impl DeletionVerdict {
    /// The resulting change of each object.
    pub(super) fn changes(self) -> impl Iterator<Item = (ResourceKey, Option<StoreEntry>)> {
        let deleted = self.passing.into_iter().map(|key| (key, None));
        deleted.chain(self.restored.into_iter().map(|(key, entry)| (key, Some(entry))))
    }
}

impl DeletionHold {
    pub(super) fn new(percent: u32) -> DeletionHold {
        DeletionHold { percent, keys: OrdMap::new(), window: DeletionWindow::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.keys.keys()
    }

    pub(super) fn holds(&self, key: &ResourceKey) -> bool {
        self.keys.contains_key(key)
    }

    /// Decides on the deletions of one revision; `served` is the number of served objects.
    ///
    /// A batch above the threshold is held. If the batch exceeds it only together with the window, the batch
    /// is held and the deletions of the window are undone.
    pub(super) fn admit(
        &mut self,
        mut deleted: Vec<(ResourceKey, StoreEntry)>,
        served: usize,
        at: Moment,
    ) -> DeletionVerdict {
        // Deletions already held stay held, and their objects do not count as served.
        deleted.retain(|(key, _)| !self.keys.contains_key(key));
        if self.percent == 0 || deleted.is_empty() {
            return DeletionVerdict { passing: keys_of(deleted), ..DeletionVerdict::default() };
        }
        self.window.expire(at.now_ms);
        // Held objects are served but were deleted already; counting them would raise the threshold.
        let (of, earlier) = (served.saturating_sub(self.keys.len()), self.window.len());
        if self.is_much(deleted.len(), of) {
            // Undoes nothing: the batch alone shows the mistake (decision 49).
            self.keep(keys_of(deleted), at);
            return DeletionVerdict::default();
        }
        // The window's objects belong to the state before the deletions.
        if self.is_much(deleted.len() + earlier, of + earlier) {
            self.keep(keys_of(deleted), at);
            let restored = self.window.take_back();
            // Restored objects are deleted in etcd, so their deletion is held as well.
            self.keys.extend(restored.iter().map(|(key, _)| (key.clone(), at.revision)));
            return DeletionVerdict { passing: Vec::new(), restored };
        }
        let passing = deleted.iter().map(|(key, _)| key.clone()).collect();
        deleted.into_iter().for_each(|(key, entry)| self.window.note(key, Some(entry), at.now_ms));
        DeletionVerdict { passing, restored: Vec::new() }
    }

    fn is_much(&self, deleted: usize, of: usize) -> bool {
        // Both bounds: a large share of few objects is routine, and so are many of a huge table.
        deleted >= OBJECTS_MIN && deleted * 100 > of * self.percent as usize
    }

    fn keep(&mut self, keys: Vec<ResourceKey>, at: Moment) {
        for key in keys {
            // Held deletions count in the window too, but have no object to restore.
            self.window.note(key.clone(), None, at.now_ms);
            self.keys.insert(key, at.revision);
        }
    }

    /// Ends the hold of a key that exists again.
    pub(super) fn release(&mut self, key: &ResourceKey) {
        self.keys.remove(key);
        self.window.forget(key);
    }

    /// Releases all held deletions and resets the window.
    pub(super) fn release_all(&mut self) -> Vec<ResourceKey> {
        // A confirmation covers the deletions before it, so the count starts anew (decision 49).
        self.window = DeletionWindow::default();
        std::mem::take(&mut self.keys).keys().cloned().collect()
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        let (first, _) = self.keys.get_min()?;
        let count = self.keys.len();
        let newest = self.keys.values().max()?;
        let when = match self.keys.values().all(|revision| revision == newest) {
            true => "at once (",
            false => "within a short time (up to ",
        };
        let found = format!(
            "{count} objects were deleted in etcd {when}revision {newest}, such as {first}); they stay active until the deletion is confirmed"
        );
        let hint = "POST /yumen/v1/store/confirm deletes them on every node; putting them back ends it too";
        Some(Problem::error("store", "", found).hint(hint))
    }
}

fn keys_of(deleted: Vec<(ResourceKey, StoreEntry)>) -> Vec<ResourceKey> {
    deleted.into_iter().map(|(key, _)| key).collect()
}

/// Deletions of the last [`WINDOW_MS`] that were neither confirmed nor undone.
#[derive(Debug, Clone, Default)]
struct DeletionWindow {
    /// Ascending by time. Entries without a matching item in `deletions` are stale.
    order: Vector<(u64, ResourceKey)>,
    deletions: OrdMap<ResourceKey, RecentDeletion>,
}

#[derive(Debug, Clone)]
struct RecentDeletion {
    at_ms: u64,
    /// The deleted object if its deletion passed.
    passed: Option<StoreEntry>,
}

impl DeletionWindow {
    fn len(&self) -> usize {
        self.deletions.len()
    }

    fn note(&mut self, key: ResourceKey, passed: Option<StoreEntry>, at_ms: u64) {
        self.order.push_back((at_ms, key.clone()));
        self.deletions.insert(key, RecentDeletion { at_ms, passed });
    }

    fn forget(&mut self, key: &ResourceKey) {
        self.deletions.remove(key);
    }

    /// Drops deletions older than the window, and ones in the future after a clock was set back.
    fn expire(&mut self, now_ms: u64) {
        let is_over = |at_ms: u64| at_ms > now_ms || now_ms - at_ms > WINDOW_MS;
        // Ascending by time, so the first current entry ends the clean-up.
        while let Some((at_ms, key)) = self.order.front().filter(|(at_ms, _)| is_over(*at_ms)).cloned() {
            self.order.pop_front();
            // A key that was deleted again has a newer item.
            if self.deletions.get(&key).is_some_and(|deletion| deletion.at_ms == at_ms) {
                self.deletions.remove(&key);
            }
        }
    }

    /// Returns the deleted objects that may be restored; they count as held.
    fn take_back(&mut self) -> Vec<(ResourceKey, StoreEntry)> {
        let mut taken = Vec::new();
        for (key, deletion) in self.deletions.clone() {
            // Not even by mistake: access that was revoked must stay revoked.
            if !may_return(key.kind) {
                continue;
            }
            if let Some(entry) = deletion.passed {
                // Counted on: later deletions within the window are held too.
                self.deletions.insert(key.clone(), RecentDeletion { passed: None, ..deletion });
                taken.push((key, entry));
            }
        }
        taken
    }
}

/// Whether deletions of this kind may be undone. A revoked credential stays revoked.
fn may_return(kind: Kind) -> bool {
    !kind.descriptor().plugins.holds_keys()
}
