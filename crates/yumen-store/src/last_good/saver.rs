//! Keeps the last good state on disk in step with a store.
//!
//! Writes on its own thread, so that neither the store nor its followers wait for the disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::versions::{self, LastGoodVersion, LastGoodVersions};
use super::{AppendableFile, LastGood};
use crate::seal::{OptionalSeal, TextSeal};
use crate::state::{Revision, StoreState};
use crate::store::{Store, StoreError};

/// Minimum pause between two saves.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Minimum pause as a multiple of the duration of the last save. Large states need more than a second.
const PAUSE_PER_SAVE: u32 = 10;
/// Poll interval for settings, which change without a revision and so without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Task that saves the state of a store, and the active versions of its broken objects, after each change
/// and on drop.
#[derive(Debug)]
pub struct LastGoodTask {
    notice: Arc<SaveNotifier>,
    thread: Option<JoinHandle<()>>,
}

impl LastGoodTask {
    /// Saves the store's state if the disk differs, and follows the store.
    ///
    /// Fails if no thread can be started. A failed save is logged and retried.
    pub fn start(
        directory: &Path,
        store: Arc<dyn Store>,
        seal: Option<Arc<dyn TextSeal>>,
        versions: Arc<LastGoodVersions>,
    ) -> Result<LastGoodTask, StoreError> {
        let notice = Arc::new(SaveNotifier::default());
        // Registered before the first state is read, so that no change is missed.
        versions.followed_by(&notice);
        let notifier = notice.clone();
        store.follow(Box::new(move |_| notifier.set(|news| news.changed = true)));
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
            // The last save must have finished before the lock of the directory is released.
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
    signalled: Condvar,
}

impl SaveNotifier {
    pub(super) fn set(&self, change: impl FnOnce(&mut SaveSignal)) {
        change(&mut self.news());
        self.signalled.notify_all();
    }

    /// Waits at most `at_most` for a signal accepted by `counts`; returns whether the task must end.
    fn wait(&self, at_most: Duration, counts: impl Fn(&SaveSignal) -> bool) -> bool {
        // The predicate covers spurious wake-ups and signals that came before the wait.
        let waited = self.signalled.wait_timeout_while(self.news(), at_most, |news| !counts(news));
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    fn news(&self) -> MutexGuard<'_, SaveSignal> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum wait for the compilation of a revision before its save.
const COMPILED_WITHIN: Duration = Duration::from_secs(1);
/// The same for the first revision, which is compiled in full during start-up.
const COMPILED_FIRST_WITHIN: Duration = Duration::from_secs(30);

/// The nice value of the thread that saves.
const NICE: i32 = 19;

struct StateSaver {
    directory: PathBuf,
    store: Arc<dyn Store>,
    edge: OptionalSeal,
    /// State on disk.
    saved: Option<SavedState>,
    versions: Arc<LastGoodVersions>,
    /// Versions on disk, once this task has written them.
    saved_versions: Option<Arc<[LastGoodVersion]>>,
}

/// The state on disk, by origin.
enum SavedState {
    /// Loaded from disk; the next change starts a new file.
    Found(StoreState),
    /// Written by this task, so records may be appended.
    Kept(AppendableFile),
}

impl SavedState {
    fn state(&self) -> &StoreState {
        match self {
            SavedState::Found(state) => state,
            SavedState::Kept(last_good) => last_good.state(),
        }
    }
}

impl StateSaver {
    fn run(&mut self, notice: &SaveNotifier) {
        // Saving is I/O in bulk and no caller waits for it, so traffic takes precedence. Failure to lower the
        // priority is harmless.
        let _ = rustix::process::setpriority_process(None, NICE);
        // An identical state on disk is not written again. The entries are compared because the same revision
        // number may belong to another store.
        let state = self.store.state();
        let saved = LastGood::load(&self.directory, &self.edge).ok();
        self.saved = saved.filter(|saved| saved.entries().eq(state.entries())).map(SavedState::Found);
        let mut compiled_within = COMPILED_FIRST_WITHIN;
        loop {
            // Cleared before reading the state, so that later changes set the flag again.
            notice.set(|news| news.changed = false);
            self.wait_for_versions(notice, compiled_within);
            // Later revisions compile in milliseconds.
            compiled_within = COMPILED_WITHIN;
            let begin = Instant::now();
            self.save();
            // At most a tenth of a core goes into saving, however large the state is.
            let pause = PAUSE_MIN.max(begin.elapsed() * PAUSE_PER_SAVE);
            let ends = notice.wait(pause, |news| news.ends)
                || notice.wait(LOOK_EVERY, |news| news.ends || news.changed);
            if ends {
                // Once more at the end, since the pause may have held back a change.
                return self.save();
            }
        }
    }

    /// Waits until the current revision is compiled.
    ///
    /// The compiler reports the active version of a broken object milliseconds after the commit. A process
    /// killed in between must not leave the state without the version.
    fn wait_for_versions(&self, notice: &SaveNotifier, at_most: Duration) {
        // Bounded: a compiler that hangs must not prevent the save of the state.
        let until = Instant::now() + at_most;
        while !self.versions.has_result_for(self.store.state().revision) && Instant::now() < until {
            if notice.wait(Duration::from_millis(5), |news| news.ends) {
                return;
            }
        }
    }

    fn save(&mut self) {
        let state = self.store.state();
        // Before the state: a state on disk without its versions would lose the last good ones at a crash.
        self.save_versions(&state);
        self.save_state(state);
    }

    fn save_versions(&mut self, state: &StoreState) {
        // Before the first compilation the file of the predecessor is still the true one.
        let Some(now) = self.versions.now() else { return };
        if self.saved_versions.as_ref() == Some(&now) {
            return;
        }
        match versions::save(&self.directory, &now, state, &self.edge) {
            // Versions that were left out are reported again by the compiler, and the file is then rewritten.
            Ok(is_all) => self.saved_versions = is_all.then_some(now),
            Err(error) => {
                tracing::warn!(%error, "last good versions of broken objects not saved")
            }
        }
    }

    fn save_state(&mut self, state: StoreState) {
        // A store that was never written is no state to fall back to.
        let is_new = state.revision == Revision::default();
        if is_new || self.saved.as_ref().is_some_and(|saved| is_same(saved.state(), &state)) {
            return;
        }
        if let Some(SavedState::Kept(last_good)) = &mut self.saved {
            match last_good.append(&state, &self.edge) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot append to the last good state, rewriting it"),
            }
        }
        // If the save fails too, no file remains to which records could be appended.
        self.saved = None;
        match LastGood::save(&self.directory, &state, &self.edge) {
            Ok(last_good) => self.saved = Some(SavedState::Kept(last_good)),
            Err(error) => tracing::warn!(%error, "last good state not saved"),
        }
    }
}

/// Entries do not change without a revision. A lower revision is possible after a restore.
fn is_same(one: &StoreState, other: &StoreState) -> bool {
    one.revision == other.revision && one.settings().eq(other.settings())
}
