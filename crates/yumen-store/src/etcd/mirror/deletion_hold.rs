//! Deletions of much at once, which wait for somebody's word. Pure.

use imbl::{OrdMap, Vector};
use yumen_base::Problem;
use yumen_config::Kind;

use crate::state::{ResourceKey, StoreEntry};

/// Fewer are everyday, whatever their share.
const OBJECTS_MIN: usize = 10;

/// Deletions within this time, in milliseconds, count together.
const WINDOW_MS: u64 = 60_000;

/// Which deletions wait, and what is let through.
#[derive(Debug, Clone)]
pub(in crate::etcd) struct DeletionHold {
    /// More than this share of what is served waits; 0 lets all pass.
    percent: u32,
    /// What is gone in the store and still served, and the revision that says so.
    keys: OrdMap<ResourceKey, u64>,
    window: DeletionWindow,
}

/// When deletions were seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) revision: u64,
    pub(super) now_ms: u64,
}

/// The decision on the deletions of one revision.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Keys whose deletion passes.
    pub(super) passing: Vec<ResourceKey>,
    /// Objects whose deletion had passed and is held now: they are served again.
    pub(super) restored: Vec<(ResourceKey, StoreEntry)>,
}

impl Verdict {
    /// What becomes of each object that it is about.
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

    /// Decides on the deletions in one revision, of so many objects served.
    ///
    /// A batch that is too much by itself is held. Deletions that become too much together with those of the window
    /// are held like one batch: those that had passed are undone.
    pub(super) fn admit(
        &mut self,
        mut gone: Vec<(ResourceKey, StoreEntry)>,
        served: usize,
        at: Moment,
    ) -> Verdict {
        // What is held already stays so, and does not count as served.
        gone.retain(|(key, _)| !self.keys.contains_key(key));
        if self.percent == 0 || gone.is_empty() {
            return Verdict { passing: keys_of(gone), ..Verdict::default() };
        }
        self.window.expire(at.now_ms);
        let (of, earlier) = (served.saturating_sub(self.keys.len()), self.window.len());
        if self.is_much(gone.len(), of) {
            self.keep(keys_of(gone), at);
            return Verdict::default();
        }
        if self.is_much(gone.len() + earlier, of + earlier) {
            self.keep(keys_of(gone), at);
            let restored = self.window.take_back();
            self.keys.extend(restored.iter().map(|(key, _)| (key.clone(), at.revision)));
            return Verdict { passing: Vec::new(), restored };
        }
        let passing = gone.iter().map(|(key, _)| key.clone()).collect();
        gone.into_iter().for_each(|(key, entry)| self.window.note(key, Some(entry), at.now_ms));
        Verdict { passing, restored: Vec::new() }
    }

    fn is_much(&self, gone: usize, of: usize) -> bool {
        gone >= OBJECTS_MIN && gone * 100 > of * self.percent as usize
    }

    fn keep(&mut self, keys: Vec<ResourceKey>, at: Moment) {
        for key in keys {
            self.window.note(key.clone(), None, at.now_ms);
            self.keys.insert(key, at.revision);
        }
    }

    /// It is there again.
    pub(super) fn release(&mut self, key: &ResourceKey) {
        self.keys.remove(key);
        self.window.forget(key);
    }

    /// Gives all that was held. Later deletions are judged as if there had been none before.
    pub(super) fn release_all(&mut self) -> Vec<ResourceKey> {
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

fn keys_of(gone: Vec<(ResourceKey, StoreEntry)>) -> Vec<ResourceKey> {
    gone.into_iter().map(|(key, _)| key).collect()
}

/// Deletions of the last [`WINDOW_MS`] that nobody confirmed and nothing undid.
#[derive(Debug, Clone, Default)]
struct DeletionWindow {
    /// In the order of their times. A key may be here that is not in `deletions` any more, or with another time.
    order: Vector<(u64, ResourceKey)>,
    deletions: OrdMap<ResourceKey, RecentDeletion>,
}

#[derive(Debug, Clone)]
struct RecentDeletion {
    at_ms: u64,
    /// The object, where its deletion has passed.
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

    /// Forgets what is older than the window, and what a clock that was set back puts into the future.
    fn expire(&mut self, now_ms: u64) {
        let is_over = |at_ms: u64| at_ms > now_ms || now_ms - at_ms > WINDOW_MS;
        while let Some((at_ms, key)) = self.order.front().filter(|(at_ms, _)| is_over(*at_ms)).cloned() {
            self.order.pop_front();
            if self.deletions.get(&key).is_some_and(|deletion| deletion.at_ms == at_ms) {
                self.deletions.remove(&key);
            }
        }
    }

    /// The objects whose deletion has passed and may be undone, which count as held from now on.
    fn take_back(&mut self) -> Vec<(ResourceKey, StoreEntry)> {
        let mut taken = Vec::new();
        for (key, deletion) in self.deletions.clone() {
            if !may_return(key.kind) {
                continue;
            }
            if let Some(entry) = deletion.passed {
                self.deletions.insert(key.clone(), RecentDeletion { passed: None, ..deletion });
                taken.push((key, entry));
            }
        }
        taken
    }
}

/// Whether the deletion of an object of this kind may be undone. A revoked credential stays revoked.
fn may_return(kind: Kind) -> bool {
    !kind.descriptor().plugins.holds_keys()
}
