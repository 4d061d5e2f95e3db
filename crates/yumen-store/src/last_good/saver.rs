//! Keeps the last good state on disk in step with a store.
//!
//! Writes from a thread of its own, so that neither the store nor its followers wait.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::versions::{self, LastGoodVersion, LastGoodVersions};
use super::{AppendableFile, LastGood};
use crate::seal::{OptionalSeal, TextSeal};
use crate::state::{Revision, StoreState};
use crate::store::{Store, StoreError};

/// Between two saves, at least this.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// And at least so many times what the last save took, for tables of which a second is not enough.
const PAUSE_PER_SAVE: u32 = 10;
/// Settings change without a revision, so nobody is told; they are looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Saves what a store holds soon after it changed, with the versions in force in place of what is broken in it, and once
/// more when dropped.
#[derive(Debug)]
pub struct LastGoodTask {
    notice: Arc<SaveNotifier>,
    thread: Option<JoinHandle<()>>,
}

impl LastGoodTask {
    /// Saves the store's state now where the disk says otherwise, and follows the store from here on.
    ///
    /// Fails when no thread can be started. A save that fails is logged and tried again.
    pub fn start(
        directory: &Path,
        store: Arc<dyn Store>,
        seal: Option<Arc<dyn TextSeal>>,
        versions: Arc<LastGoodVersions>,
    ) -> Result<LastGoodTask, StoreError> {
        let notice = Arc::new(SaveNotifier::default());
        versions.followed_by(&notice);
        let told = notice.clone();
        store.follow(Box::new(move |_| told.set(|news| news.changed = true)));
        let directory = directory.to_owned();
        let mut saver = StateSaver {
            directory,
            store,
            edge: OptionalSeal(seal),
            saved: None,
            versions,
            saved_versions: None,
        };
        let inbox = notice.clone();
        let run = move || saver.run(&inbox);
        let thread = thread::Builder::new().name("yumen-last-good".into()).spawn(run)?;
        Ok(LastGoodTask { notice, thread: Some(thread) })
    }
}

impl Drop for LastGoodTask {
    fn drop(&mut self) {
        self.notice.set(|news| news.ends = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("last good state task panicked");
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SaveSignal {
    pub(super) changed: bool,
    ends: bool,
}

#[derive(Debug, Default)]
pub(super) struct SaveNotifier {
    news: Mutex<SaveSignal>,
    came: Condvar,
}

impl SaveNotifier {
    pub(super) fn set(&self, change: impl FnOnce(&mut SaveSignal)) {
        change(&mut self.news());
        self.came.notify_all();
    }

    /// Waits for one of the news that count, at most so long; whether the end has come.
    fn wait(&self, at_most: Duration, counts: impl Fn(&SaveSignal) -> bool) -> bool {
        let waited = self.came.wait_timeout_while(self.news(), at_most, |news| !counts(news));
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    fn news(&self) -> MutexGuard<'_, SaveSignal> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A revision that is not compiled by then is saved all the same.
const COMPILED_WITHIN: Duration = Duration::from_secs(1);
/// The first one is compiled as a whole, when other things begin as well.
const COMPILED_FIRST_WITHIN: Duration = Duration::from_secs(30);

/// The nice value of the thread that saves.
const NICE: i32 = 19;

struct StateSaver {
    directory: PathBuf,
    store: Arc<dyn Store>,
    edge: OptionalSeal,
    /// What is on the disk.
    saved: Option<SavedState>,
    versions: Arc<LastGoodVersions>,
    /// Those on the disk, once they were written here.
    saved_versions: Option<Arc<[LastGoodVersion]>>,
}

/// What is on the disk, and by whom.
enum SavedState {
    /// Found there; what was changed since begins a new file.
    Found(StoreState),
    /// Written here.
    Kept(AppendableFile),
}

impl SavedState {
    fn state(&self) -> &StoreState {
        match self {
            SavedState::Found(state) => state,
            SavedState::Kept(kept) => kept.state(),
        }
    }
}

impl StateSaver {
    fn run(&mut self, notice: &SaveNotifier) {
        // It writes all there is, and nobody waits for it: traffic goes first. Where that cannot be had it does not matter.
        let _ = rustix::process::setpriority_process(None, NICE);
        // What is on the disk already need not be written; the same revision may be that of another store.
        let state = self.store.state();
        let saved = LastGood::load(&self.directory, &self.edge).ok();
        self.saved = saved.filter(|saved| saved.entries().eq(state.entries())).map(SavedState::Found);
        let mut compiled_within = COMPILED_FIRST_WITHIN;
        loop {
            // Before the state is taken: what changes from here on is news again.
            notice.set(|news| news.changed = false);
            self.wait_for_versions(notice, compiled_within);
            compiled_within = COMPILED_WITHIN;
            let begin = Instant::now();
            self.save();
            let pause = PAUSE_MIN.max(begin.elapsed() * PAUSE_PER_SAVE);
            let ends = notice.wait(pause, |news| news.ends)
                || notice.wait(LOOK_EVERY, |news| news.ends || news.changed);
            if ends {
                return self.save();
            }
        }
    }

    /// What is in force in place of a broken text is known once that was compiled, some milliseconds after it was
    /// written: a process that is killed in between shall not leave the one without the other.
    fn wait_for_versions(&self, notice: &SaveNotifier, at_most: Duration) {
        let until = Instant::now() + at_most;
        while !self.versions.is_told_of(self.store.state().revision) && Instant::now() < until {
            if notice.wait(Duration::from_millis(5), |news| news.ends) {
                return;
            }
        }
    }

    fn save(&mut self) {
        let state = self.store.state();
        self.save_versions(&state);
        self.save_state(state);
    }

    fn save_versions(&mut self, state: &StoreState) {
        let Some(now) = self.versions.now() else { return };
        if self.saved_versions.as_ref() == Some(&now) {
            return;
        }
        match versions::save(&self.directory, &now, state, &self.edge) {
            Ok(is_all) => self.saved_versions = is_all.then_some(now),
            Err(error) => {
                tracing::warn!(%error, "last good versions of broken objects not saved")
            }
        }
    }

    fn save_state(&mut self, state: StoreState) {
        // What nobody has written to is nothing to fall back to.
        let is_new = state.revision == Revision::default();
        if is_new || self.saved.as_ref().is_some_and(|saved| is_same(saved.state(), &state)) {
            return;
        }
        if let Some(SavedState::Kept(kept)) = &mut self.saved {
            match kept.append(&state, &self.edge) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "last good state not appended to, writing it anew"),
            }
        }
        // Where this fails too, there is nothing that could be continued.
        self.saved = None;
        match LastGood::save(&self.directory, &state, &self.edge) {
            Ok(kept) => self.saved = Some(SavedState::Kept(kept)),
            Err(error) => tracing::warn!(%error, "last good state not saved"),
        }
    }
}

/// Entries do not change without a revision. A store that was restored may count from lower again.
fn is_same(one: &StoreState, other: &StoreState) -> bool {
    one.revision == other.revision && one.settings().eq(other.settings())
}
