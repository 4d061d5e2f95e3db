//! Helpers shared by the tests of several modules: a directory, seeded randomness, blocking writes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use yumen_config::Kind;

use crate::state::{Authorship, ResourceKey, StoreCommit, StoreEntry, StoreState};
use crate::store::{Draft, Proposal, Store, StoreError};

/// Longer than any operation on a working machine.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// A directory per test, removed at the end.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("yumen-store-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seeded random numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub(crate) fn key(id: &str) -> ResourceKey {
    ResourceKey::new(Kind::Routes, id)
}

/// The complete content of a state, for comparison.
pub(crate) type Contents = (u64, Vec<(ResourceKey, StoreEntry)>, Vec<(Arc<str>, Arc<str>)>);

pub(crate) fn contents(state: &StoreState) -> Contents {
    let entries = state.entries().map(|(key, entry)| (key.clone(), entry.clone()));
    let settings = state.settings().map(|(name, value)| (name.clone(), value.clone()));
    (state.revision.0, entries.collect(), settings.collect())
}

/// Proposes a change and waits for its result.
pub(crate) fn write(
    store: &dyn Store,
    mut decide: impl FnMut(&mut Draft) + Send + 'static,
) -> Result<Option<Arc<StoreCommit>>, StoreError> {
    let (sender, receiver) = channel();
    store.propose(Proposal {
        by: Authorship { author: "test".into(), reason: Some("why not".into()) },
        decide: Box::new(move |draft| {
            decide(draft);
            true
        }),
        done: Box::new(move |result| sender.send(result).unwrap()),
    });
    receiver.recv_timeout(WAIT).unwrap()
}

pub(crate) fn put(store: &dyn Store, id: &str, json: &str) -> Result<u64, StoreError> {
    let (key, json): (ResourceKey, Arc<str>) = (key(id), json.into());
    let committed = write(store, move |draft| draft.put(key.clone(), json.clone(), None))?;
    Ok(committed.unwrap().revision.0)
}

/// Registers a follower that records the revisions.
pub(crate) fn note(store: &dyn Store) -> Arc<Mutex<Vec<Arc<StoreCommit>>>> {
    let commits = Arc::new(Mutex::new(Vec::new()));
    let notes = commits.clone();
    store.follow(Box::new(move |committed| notes.lock().unwrap().push(committed.clone())));
    commits
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WAIT, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
