//! Deletions of much at once, which wait for somebody's word. Pure.

use imbl::OrdMap;
use yumen_base::Problem;

use crate::state::Key;

/// Fewer are everyday, whatever their share.
const OBJECTS_MIN: usize = 10;

/// Which deletions wait, and what is let through.
#[derive(Debug, Clone)]
pub(in crate::etcd) struct Hold {
    /// More than this share of what is served waits; 0 lets all pass.
    percent: u32,
    /// What is gone in the store and still served, and the revision that says so.
    keys: OrdMap<Key, u64>,
}

impl Hold {
    pub(super) fn new(percent: u32) -> Hold {
        Hold { percent, keys: OrdMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys()
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// What of the deletions in one revision may pass, of so many objects served.
    pub(super) fn admit(&mut self, mut gone: Vec<Key>, served: usize, revision: u64) -> Vec<Key> {
        // What is held already stays so, and counts neither as served nor as lost now.
        gone.retain(|key| !self.keys.contains_key(key));
        let of = served.saturating_sub(self.keys.len());
        let is_much = gone.len() >= OBJECTS_MIN && gone.len() * 100 > of * self.percent as usize;
        if self.percent == 0 || !is_much {
            return gone;
        }
        self.keys.extend(gone.into_iter().map(|key| (key, revision)));
        Vec::new()
    }

    /// It is there again.
    pub(super) fn release(&mut self, key: &Key) {
        self.keys.remove(key);
    }

    /// Gives all that was held.
    pub(super) fn release_all(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.keys).keys().cloned().collect()
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        let (first, revision) = self.keys.get_min()?;
        let count = self.keys.len();
        let found = format!(
            "{count} objects were deleted in etcd at once (revision {revision}, such as {first}); they are served until somebody confirms it"
        );
        let hint = "POST /yumen/v1/store/confirm deletes them on every node; putting them back ends it too";
        Some(Problem::error("store", "", found).hint(hint))
    }
}
